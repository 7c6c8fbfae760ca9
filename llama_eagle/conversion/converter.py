"""convert: a checkpoint of any EAGLE draft becomes the GGUF that docs/head-format.md describes.

What llama.cpp's own converter writes is written as it writes it (conversion/llama.py: names, keys, permutation,
absolute d2t). Loads no model and runs nothing from the checkpoint.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import InputError
from .checkpoint import Checkpoint
from .draft_plan import DraftPlan, make_plan, read_draft
from .fusion import TargetNeededError
from .head_file import Slot, write_head
from .head_metadata import context_length, write_metadata
from .head_tensors import HeadTensor
from .inputs import find_checkpoint, find_target, find_verifier
from .number_format import OUTTYPES, Type, check_outtype, stored_type
from .overrides import Overrides
from .target_info import TargetInfo, read_target
from .target_rows import read_embeddings, read_output
from .vocab_matrices import TARGET_EMBEDDINGS, TARGET_HEAD, VocabMatrix

Floats = npt.NDArray[np.float32]
AS_THE_CHECKPOINT_SAYS = Overrides()
_FOLDER_FILES = ("*.json", "*.safetensors", "*.bin")  # of a target given as a folder


@dataclass(frozen=True)
class ConvertReport:
    """What was converted: the JSON of `llama-eagle convert --json`. `target_layers` as in docs/head-format.md."""

    arch: str
    version: str
    layout: str
    target_layers: list[int]
    notes: list[str]
    out: str

    def to_json(self) -> dict[str, Any]:
        """The fields as a dict that json.dumps takes."""
        return asdict(self)


def convert(
    checkpoint: str | Path,
    target: str | Path | None,
    out: str | Path,
    outtype: str = "f16",
    overrides: Overrides = AS_THE_CHECKPOINT_SAYS,
) -> ConvertReport:
    """Convert the draft `checkpoint` (folder or hub id) for `target` (GGUF, HF folder or hub id) into the file `out`.

    target     may be None where the checkpoint suffices (EAGLE-1 and EAGLE-2 always do) or names its verifier
    outtype    one of number_format.OUTTYPES, for matrices; norms and biases stay f32
    overrides  what the checkpoint leaves open
    Raises CheckpointError (the draft), ModelError (the target, or a draft that does not fit it), DownloadError and
    InputError (arguments, unwritable place). On an error `out` is what it was before.
    """
    check_outtype(outtype)
    out = _check_out(Path(out), None if target is None else Path(target))
    source = Checkpoint(find_checkpoint(checkpoint))
    _check_not_input(out, source.files)
    layout, spec = read_draft(source)
    info = None if target is None else read_target(find_target(target))
    try:
        plan = make_plan(source, layout, spec, info, overrides)
    except TargetNeededError:
        if not spec.verifier:
            raise
        plan = make_plan(source, layout, spec, read_target(find_verifier(spec.verifier)), overrides)
    write_head(out, write_metadata(plan, outtype), _slots(plan, outtype))
    layers = list(plan.fusion.layers.ids)
    return ConvertReport(layout.arch, plan.version, layout.name, layers, _notes(plan, outtype), str(out))


def _check_out(out: Path, target: Path | None) -> Path:
    if out.is_dir():
        raise InputError(f"output {out} is a folder; give a file name, such as {out / 'head.gguf'}")
    if out.exists() and not out.is_file():  # it would be replaced, as root even /dev/null
        raise InputError(f"output {out} is a device or pipe; give a file name, such as head.gguf")
    if not out.parent.is_dir():
        raise InputError(f"folder {out.parent} of the output does not exist; make it first")
    if target is not None:
        _check_not_input(out, [target, *(file for kind in _FOLDER_FILES for file in target.glob(kind))])
    return out


def _check_not_input(out: Path, files: Iterable[Path]) -> None:
    """Raises InputError where the output would replace one of the files that it is made from."""
    if out.exists() and any(file.exists() and out.samefile(file) for file in files):
        raise InputError(f"output {out} is a file of the checkpoint or the target itself; choose another name")


def _notes(plan: DraftPlan, outtype: str) -> list[str]:
    layers = plan.fusion.layers
    notes = [f"target layers {', '.join(map(str, layers.ids))} (inputs): {layers.rule}", *plan.notes]
    if plan.spec.context != context_length(plan):
        whose = "the target's" if plan.target else "assumed"
        notes.append(f"context length {context_length(plan)} is {whose} (the draft's config says {plan.spec.context})")
    shapes: dict[str, tuple[int, ...]] = {tensor.name: tensor.shape for tensor in plan.tensors}
    shapes.update({matrix.name: matrix.shape for matrix in plan.matrices})
    for other in (name for name in ("q8_0", "f16") if name != outtype):
        names = [name for name, shape in shapes.items() if _type(name, shape, outtype) == OUTTYPES[other]]
        if names:
            notes.append(f"{other} instead of {outtype} where rows do not fill its blocks: {', '.join(names)}")
    return notes


def _type(name: str, shape: tuple[int, ...], outtype: str) -> Type:
    """Norms stay f32, stacked ones too."""
    return Type.F32 if "norm" in name else stored_type(shape, outtype)


def _slots(plan: DraftPlan, outtype: str) -> list[Slot]:
    slots = [_tensor_slot(plan, tensor, outtype) for tensor in plan.tensors]
    slots += [_matrix_slot(plan, matrix, outtype) for matrix in plan.matrices]
    ids, divisors = plan.ids, plan.spec.rope.divisors(plan.spec.attention.head_dim)
    if ids is not None:
        slots.append(Slot("d2t", ids.shape, Type.I64, lambda: ids))
    if divisors is not None:
        slots.append(Slot("rope_freqs.weight", divisors.shape, Type.F32, lambda: divisors))
    return slots


def _tensor_slot(plan: DraftPlan, tensor: HeadTensor, outtype: str) -> Slot:
    rotated = plan.spec.rope.rotated(plan.spec.attention.head_dim)

    def load() -> Floats:
        parts = [interleave_rope(plan.checkpoint.floats(name), tensor.rope_heads, rotated) for name in tensor.sources]
        return parts[0] if len(parts) == 1 else np.stack(parts)

    return Slot(tensor.name, tensor.shape, _type(tensor.name, tensor.shape, outtype), load)


def _matrix_slot(plan: DraftPlan, matrix: VocabMatrix, outtype: str) -> Slot:
    def load() -> Floats:
        if matrix.of_target and plan.target is not None:
            return _read_target_rows(plan.target, matrix)
        values = plan.checkpoint.floats(matrix.source)
        return values if matrix.rows is None else values[matrix.rows]

    return Slot(matrix.name, matrix.shape, stored_type(matrix.shape, outtype), load)


def _read_target_rows(target: TargetInfo, matrix: VocabMatrix) -> Floats:
    read = {TARGET_EMBEDDINGS: read_embeddings, TARGET_HEAD: read_output}[matrix.source]
    return read(target, matrix.rows)[: matrix.shape[0]]


def interleave_rope(weight: Floats, heads: int, rotated: int) -> Floats:
    """Rows of each head from HF's order (halves) to llama.cpp's rope type NORM (pairs); heads = 0 changes nothing.

    weight [heads x head size, columns] or a vector of one entry a row; `rotated`: the first entries of each head that
    are rotated, the others stay where they are.
    """
    if not heads:
        return weight
    rows = weight.reshape(heads, len(weight) // heads, -1)
    order = np.arange(rows.shape[1])
    order[:rotated] = order[:rotated].reshape(2, -1).T.ravel()
    return np.ascontiguousarray(rows[:, order]).reshape(weight.shape)
