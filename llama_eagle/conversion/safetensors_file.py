"""Safetensors file: its header, checked against the file.

The format is that of github.com/huggingface/safetensors ("Format"): an 8-byte length, a JSON header, raw little-endian
data. Reads no values.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import CheckpointError
from .stored_tensor import DTYPES, StoredTensor, check_shape

MAX_HEADER = 100 << 20  # the format's own limit
MAX_NAME = 256


def read_safetensors(path: Path) -> dict[str, StoredTensor]:
    """Tensors of the file by name. Raises CheckpointError if it is none, or is cut off."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if size < 8 or length > min(MAX_HEADER, size - 8):
                raise CheckpointError(f"{path} is truncated or no safetensors file ({size} bytes); download it again")
            header = json.loads(file.read(length))
    except CheckpointError:
        raise
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} has a broken header ({error}); download it again") from None
    if not isinstance(header, dict):
        raise CheckpointError(f"{path} has a broken header, which is no JSON object; download it again")
    data = _Data(path, 8 + length, size)
    return {name: data.tensor(name, value) for name, value in header.items() if name != "__metadata__"}


class _Data:
    """The part of the file behind the header: entries of the header are checked against it."""

    def __init__(self, path: Path, start: int, size: int) -> None:
        self._path, self._start, self._size = path, start, size

    def tensor(self, name: str, value: Any) -> StoredTensor:
        if not name.isprintable() or len(name) > MAX_NAME:
            raise CheckpointError(f"{self._path} has a broken header: tensor name {repr(name)[:80]}")
        try:
            dtype, shape, (begin, end) = value["dtype"], tuple(value["shape"]), value["data_offsets"]
            whole = all(type(n) is int and n >= 0 for n in (*shape, begin, end))
        except (TypeError, KeyError, ValueError):
            whole = False
        if not whole:
            raise CheckpointError(f"{self._path} has a broken header entry for tensor {name}; download it again")
        if not isinstance(dtype, str) or dtype not in DTYPES:
            raise CheckpointError(f"tensor {name} has type {repr(dtype)[:40]}; save it as one of {', '.join(DTYPES)}")
        check_shape(name, shape)
        tensor = StoredTensor(name, self._path, dtype, shape, self._start + begin)
        self._check_extent(tensor, begin, end)
        return tensor

    def _check_extent(self, tensor: StoredTensor, begin: int, end: int) -> None:
        if self._start + end > self._size:
            raise CheckpointError(
                f"{self._path} is truncated: tensor {tensor.name} ends after the file; download it again"
            )
        if end - begin != tensor.count * np.dtype(DTYPES[tensor.dtype]).itemsize:
            shape = f"{list(tensor.shape)} {tensor.dtype}"
            raise CheckpointError(
                f"tensor {tensor.name} of shape {shape} has {end - begin} bytes of data in {self._path}"
            )
