"""Tensors of a target's GGUF as float32, by their names; of a split file from all its parts. Knows no architecture.

Unlike the converter's reader it does not look at the tokenizer, which takes longer than the tensors.
"""

from collections.abc import Collection
from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt

from ..errors import ModelError
from ..gguf_files.header import GgufHeader, TensorEntry, read_header
from ..gguf_files.model_header import named_errors
from ..gguf_files.split import read_parts
from ..gguf_files.tensors import BLOCKS

Array = npt.NDArray[np.float32]


def read_tensors(target: Path, names: Collection[str]) -> dict[str, Array]:
    """Those of the names that the file has, [out, in]. Raises ModelError for types that cannot be widened."""
    found = {}
    with named_errors(target):
        for part, header in read_parts(target, read_header(target)):
            for entry in header.tensors:
                if entry.name in names:
                    found[entry.name] = _read(part, header, entry)
    return found


def _read(part: Path, header: GgufHeader, entry: TensorEntry) -> Array:
    values, size = BLOCKS.get(entry.kind, (1, 0))
    shape = tuple(int(length) for length in reversed(entry.shape))
    width = shape[-1] // values * size
    count = int(np.prod(shape[:-1], dtype=np.int64))
    raw = np.fromfile(part, np.uint8, count * width, offset=header.data_start + entry.offset)
    if not size or raw.size != count * width:
        raise ModelError(f"tensor {entry.name} of type {entry.kind} cannot be read")
    kind = gguf.GGMLQuantizationType(entry.kind)
    try:
        wide = gguf.quants.dequantize(raw.reshape(count, width), kind)
    except NotImplementedError:
        raise ModelError(f"tensor {entry.name} has type {kind.name}, which cannot be widened here") from None
    return np.ascontiguousarray(wide, np.float32).reshape(shape)
