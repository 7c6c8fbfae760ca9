"""Rows of a target's embeddings or output head, read and dequantized for a draft that lacks its own.

From the tensors of a GGUF (all parts of a split one) or of an HF folder. Holds the rows that are asked for, no more
where the file's format allows it.
"""

import gguf
import numpy as np
import numpy.typing as npt

from ..errors import CheckpointError, ModelError
from ..gguf_files.header import read_header
from ..gguf_files.split import read_parts
from .checkpoint import Checkpoint
from .target_info import BROKEN, BoundedReader, TargetInfo
from .vocab_map import Ids

Rows = npt.NDArray[np.float32]
GGUF_EMBEDDINGS, GGUF_HEAD = "token_embd.weight", "output.weight"
_PREFIXES = ("", "model.", "language_model.", "language_model.model.", "model.language_model.")


def read_embeddings(target: TargetInfo, rows: Ids | None) -> Rows:
    """float32[len(rows) or vocabulary, hidden size]. Raises ModelError where they cannot be read."""
    if target.path.is_dir():
        return _from_folder(target, [f"{prefix}embed_tokens.weight" for prefix in _PREFIXES], rows)
    return _from_gguf(target, GGUF_EMBEDDINGS, rows)


def read_output(target: TargetInfo, rows: Ids | None) -> Rows:
    """The head, which is the embeddings of a tied target; as read_embeddings."""
    if target.tied:
        return read_embeddings(target, rows)
    if target.path.is_dir():
        return _from_folder(target, [f"{prefix}lm_head.weight" for prefix in _PREFIXES], rows)
    return _from_gguf(target, GGUF_HEAD, rows)


def _from_gguf(target: TargetInfo, name: str, rows: Ids | None) -> Rows:
    try:
        for part, _ in read_parts(target.path, read_header(target.path)):
            found = [tensor for tensor in BoundedReader(part).tensors if tensor.name == name]
            if found:
                return _dequantized(target, found[0], rows)
    except ModelError as error:
        raise ModelError(f"target {target.path}: {error}") from None
    except (*BROKEN, OSError) as error:
        raise ModelError(
            f"target {target.path} is no readable GGUF file ({' '.join(str(error).split())}); download it again"
        ) from None
    raise ModelError(f"target {target.path} has no tensor {name}, whose rows the draft needs; give another file of it")


def _dequantized(target: TargetInfo, tensor: gguf.ReaderTensor, rows: Ids | None) -> Rows:
    shape = tuple(int(n) for n in reversed(tensor.shape))
    _check(target, tensor.name, shape)
    data = tensor.data if rows is None else tensor.data[rows]
    try:
        values: Rows = gguf.quants.dequantize(data, tensor.tensor_type).astype(np.float32, copy=False)
    except NotImplementedError:
        raise ModelError(
            f"tensor {tensor.name} has type {tensor.tensor_type.name}, which this converter cannot read; "
            "give an f16 or q8_0 GGUF of it, or its HF folder"
        ) from None
    return _finite(tensor.name, values)


def _from_folder(target: TargetInfo, names: list[str], rows: Ids | None) -> Rows:
    try:
        source = Checkpoint(target.path)
        name = next((name for name in names if name in source), None)
        if name is None:
            raise ModelError(f"no tensor {names[0]} in it, whose rows the draft needs")
        _check(target, name, source.shape(name))
        values = source.floats(name)
    except (CheckpointError, ModelError) as error:
        raise ModelError(
            f"target {target.path}: {error}; give a GGUF of the target (f16 or q8_0), or its HF folder with weights"
        ) from None
    return values if rows is None else values[rows]


def _check(target: TargetInfo, name: str, shape: tuple[int, ...]) -> None:
    if len(shape) != 2 or shape[0] < target.n_vocab or shape[1] != target.n_embd:
        raise ModelError(f"tensor {name} is {list(shape)}; expected {[target.n_vocab, target.n_embd]}")


def _finite(name: str, values: Rows) -> Rows:
    if not np.isfinite(values).all():
        raise ModelError(f"the target's tensor {name} holds values that are NaN or infinite")
    return values
