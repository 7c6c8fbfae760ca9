"""HeadFile: writes a draft's GGUF tensor by tensor, beside its final place, and renames it when it is whole.

Knows the file, not what the tensors are for.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

import gguf
import numpy as np
import numpy.typing as npt

from ..errors import InputError
from .number_format import Type, encode, row_bytes

_PIECE = 1 << 22  # values encoded at a time


@dataclass(frozen=True)
class Slot:
    """One tensor to write: `load` is called when its turn comes, so one tensor at a time is in memory."""

    name: str
    shape: tuple[int, ...]
    type: gguf.GGMLQuantizationType
    load: Callable[[], npt.NDArray[np.float32] | npt.NDArray[np.int64]]

    @property
    def nbytes(self) -> int:
        """Size in the file."""
        rows, columns = int(np.prod(self.shape[:-1], dtype=np.int64)), self.shape[-1]
        return rows * row_bytes(columns, self.type)

    def tofile(self, file: BinaryIO) -> None:
        """Write the values, encoded a few rows at a time; named as gguf's writer calls it on an array."""
        values = self.load()
        if self.type == Type.I64:
            values.tofile(file)
            return
        rows = cast("npt.NDArray[np.float32]", values).reshape(-1, self.shape[-1])
        step = max(1, _PIECE // max(1, self.shape[-1]))
        for start in range(0, len(rows), step):
            encode(self.name, rows[start : start + step], self.type).tofile(file)


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
        with suppress(OSError):  # a name that cannot be written cannot be removed
            part.unlink(missing_ok=True)


def write_head(out: Path, writer: gguf.GGUFWriter, slots: list[Slot]) -> None:
    """Write the metadata that `writer` holds and the tensors of `slots` to `out`, whole or not at all."""
    for slot in slots:
        # The dtype given here is not read: raw_dtype decides.
        writer.add_tensor_info(slot.name, slot.shape, np.dtype(np.float32), slot.nbytes, slot.type)
    with written_beside(out) as part:
        try:
            writer.write_header_to_file(part)
            writer.write_kv_data_to_file()
            writer.write_ti_data_to_file()
            for slot in slots:
                writer.write_tensor_data(cast(Any, slot))  # it needs nbytes and tofile alone
        finally:
            writer.close()
