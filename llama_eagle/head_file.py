"""HeadFile: writes a draft's GGUF tensor by tensor, beside its final place, and renames it when it is whole.

Knows number formats and the file, not what the tensors are for.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt

from .errors import CheckpointError, InputError

Type = gguf.GGMLQuantizationType
OUTTYPES = {"f32": Type.F32, "f16": Type.F16, "bf16": Type.BF16, "q8_0": Type.Q8_0}
FILE_TYPES = {
    "f32": gguf.LlamaFileType.ALL_F32,
    "f16": gguf.LlamaFileType.MOSTLY_F16,
    "bf16": gguf.LlamaFileType.MOSTLY_BF16,
    "q8_0": gguf.LlamaFileType.MOSTLY_Q8_0,
}


@dataclass(frozen=True)
class Slot:
    """One tensor to write: `load` is called when its turn comes, so one tensor at a time is in memory."""

    name: str
    shape: tuple[int, ...]
    type: gguf.GGMLQuantizationType
    load: Callable[[], npt.NDArray[np.float32] | npt.NDArray[np.int64]]


def stored_type(shape: tuple[int, ...], outtype: str) -> gguf.GGMLQuantizationType:
    """Type that a weight of `shape` is stored in: vectors (norms) stay f32, rows that q8_0 cannot cut become f16."""
    if len(shape) < 2:
        return Type.F32
    wanted = OUTTYPES[outtype]
    return Type.F16 if shape[-1] % gguf.GGML_QUANT_SIZES[wanted][0] else wanted


def check_outtype(outtype: str) -> None:
    """Raises InputError unless `outtype` is one of OUTTYPES."""
    if outtype not in OUTTYPES:
        raise InputError(f"outtype {outtype!r} is unknown; choose one of {', '.join(OUTTYPES)}")


@contextmanager
def written_beside(out: Path) -> Iterator[Path]:
    """A path beside `out` that replaces it when the block ends well and is removed when it does not."""
    part = out.with_name(f".{out.name}.{os.getpid()}.part")
    try:
        yield part
        os.replace(part, out)
    except OSError as error:
        raise InputError(f"cannot write {out}: {error.strerror or error}; choose another place") from None
    finally:
        part.unlink(missing_ok=True)


def write_head(out: Path, writer: gguf.GGUFWriter, slots: list[Slot]) -> None:
    """Write the metadata that `writer` holds and the tensors of `slots` to `out`, whole or not at all."""
    for slot in slots:
        block, size = gguf.GGML_QUANT_SIZES[slot.type]
        # The dtype given here is not read: raw_dtype decides.
        nbytes = int(np.prod(slot.shape, dtype=np.int64)) // block * size
        writer.add_tensor_info(slot.name, slot.shape, np.dtype(np.float32), nbytes, slot.type)
    with written_beside(out) as part:
        try:
            writer.write_header_to_file(part)
            writer.write_kv_data_to_file()
            writer.write_ti_data_to_file()
            for slot in slots:
                writer.write_tensor_data(_encode(slot))
        finally:
            writer.close()


def _encode(slot: Slot) -> npt.NDArray[np.generic]:
    values = slot.load()
    if slot.type == Type.I64:
        return values
    if slot.type == Type.F16 and values.size and max(values.max(), -values.min()) > np.finfo(np.float16).max:
        raise CheckpointError(f"tensor {slot.name} has values beyond f16's range; use --outtype bf16 or f32")
    return gguf.quants.quantize(values, slot.type)
