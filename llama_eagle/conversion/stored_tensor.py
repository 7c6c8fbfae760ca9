"""StoredTensor: where one tensor lies in a file, and its values read from there.

Knows number types and plain bytes. Does not know the formats of the files, nor what the tensors are for.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import CheckpointError

# numpy has no bfloat16: it is read as 16-bit patterns and widened by a shift. Names are those of safetensors.
DTYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2",
    "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1", "U8": "u1", "BOOL": "u1",
}  # fmt: skip
FLOATS = ("F64", "F32", "F16", "BF16")
INTEGERS = ("I64", "I32")
MAX_DIMS, MAX_SIZE = 8, 1 << 40
_PIECE = 1 << 22  # values widened at a time: only the result of floats() is large


@dataclass(frozen=True)
class StoredTensor:
    """One tensor of a checkpoint.

    dtype    one of DTYPES
    offset   bytes from the start of `file` to the first value
    strides  values from one index to the next, a dimension each; None where rows follow each other without gaps
    """

    name: str
    file: Path
    dtype: str
    shape: tuple[int, ...]
    offset: int
    strides: tuple[int, ...] | None = None

    @property
    def count(self) -> int:
        """Number of values."""
        return math.prod(self.shape)

    def floats(self) -> npt.NDArray[np.float32]:
        """Values as float32, the only large array made. Raises CheckpointError for other types, NaN and infinity."""
        if self.dtype not in FLOATS:
            raise CheckpointError(f"tensor {self.name} is {self.dtype}; weights must be one of {', '.join(FLOATS)}")
        self._check_count()
        values = np.empty(self.count, np.float32)
        done = bad = 0
        for piece in self._pieces():
            part = values[done : done + piece.size]
            _widen(piece, part, self.dtype)
            bad += part.size - int(np.count_nonzero(np.isfinite(part)))
            done += piece.size
        if bad:
            raise CheckpointError(
                f"tensor {self.name} holds {bad} values that are NaN or infinite; the checkpoint is broken"
            )
        return values.reshape(self.shape)

    def integers(self) -> npt.NDArray[np.int64]:
        """Values as int64. Raises CheckpointError for other types."""
        if self.dtype not in INTEGERS:
            raise CheckpointError(f"tensor {self.name} is {self.dtype}; it must be one of {', '.join(INTEGERS)}")
        return self._all().astype(np.int64, copy=False)

    def booleans(self) -> npt.NDArray[np.bool_] | None:
        """Values as booleans, None where they are stored as something else."""
        return self._all() != 0 if self.dtype in ("BOOL", "U8") else None

    def _check_count(self) -> None:
        if not self.count:
            raise CheckpointError(
                f"tensor {self.name} is empty: {list(self.shape)}; save the checkpoint with all weights gathered"
            )

    def _all(self) -> npt.NDArray[Any]:
        self._check_count()
        return np.concatenate(list(self._pieces())).reshape(self.shape)

    def _pieces(self) -> Iterator[npt.NDArray[Any]]:
        """All values in order, flat, a piece at a time."""
        if self.strides is not None:
            yield self._gathered(self.strides)
            return
        for start in range(0, self.count, _PIECE):
            yield self._raw(start, min(_PIECE, self.count - start))

    def _gathered(self, strides: tuple[int, ...]) -> npt.NDArray[Any]:
        extent = 1 + sum((n - 1) * stride for n, stride in zip(self.shape, strides, strict=True))
        flat = self._raw(0, extent)
        steps = [stride * flat.itemsize for stride in strides]
        return np.lib.stride_tricks.as_strided(flat, self.shape, steps, writeable=False).ravel()

    def _raw(self, start: int, count: int) -> npt.NDArray[Any]:
        kind = np.dtype(DTYPES[self.dtype])
        try:
            flat = np.fromfile(self.file, kind, count, offset=self.offset + start * kind.itemsize)
        except OSError as error:
            raise CheckpointError(f"cannot read {self.file}: {error.strerror or error}") from None
        if flat.size != count:
            raise CheckpointError(f"{self.file} changed while tensor {self.name} was read; try again")
        return flat


def check_shape(name: str, shape: tuple[int, ...]) -> None:
    """Raises CheckpointError for more dimensions or larger ones than any weight has."""
    if len(shape) > MAX_DIMS or any(n > MAX_SIZE for n in shape) or math.prod(shape) > MAX_SIZE:
        text = f"{len(shape)} dimensions" if len(shape) > MAX_DIMS else f"a shape beyond {MAX_SIZE} values"
        raise CheckpointError(f"tensor {name} has {text}; the file is broken, download it again")


def _widen(raw: npt.NDArray[Any], out: npt.NDArray[np.float32], dtype: str) -> None:
    if dtype == "BF16":
        bits = out.view(np.uint32)
        bits[:] = raw
        bits <<= 16
        return
    with np.errstate(over="ignore"):  # a float64 that overflows is counted as infinite
        out[:] = raw
