"""Pickle file: a .bin written by torch.save since PyTorch 1.6, opened so that no code in it can run.

Such a file is a zip archive of stored (never compressed) entries: `data.pkl`, and `data/KEY` for each storage
(PyTorch, torch/serialization.py and caffe2/serialize/inline_container.h). Reads no values.
"""

import struct
import zipfile
from pathlib import Path
from typing import BinaryIO

import numpy as np

from ..errors import CheckpointError
from .inert_pickle import MAX_BYTES, View, read_state_dict
from .stored_tensor import DTYPES, StoredTensor, check_shape

AGAIN = "load it with PyTorch and save it as safetensors"
_LOCAL = struct.Struct("<4s22xHH")  # local file header: signature, lengths of the name and of the extra field
_ENCRYPTED = 1
_BROKEN = (zipfile.BadZipFile, NotImplementedError, ValueError, LookupError, OverflowError, EOFError, struct.error)


def read_pickle_file(path: Path) -> dict[str, StoredTensor]:
    """Tensors of the file by name. Raises CheckpointError if it is no such file, is cut off, or holds anything else."""
    try:
        with path.open("rb") as file:
            if not file.read(4).startswith(b"PK"):
                raise CheckpointError(f"it is no zip archive (older than PyTorch 1.6, or cut off); {AGAIN}")
            archive = _Archive(file)
            views = read_state_dict(archive.pickle())
            return {name: archive.tensor(path, name, view) for name, view in views.items()}
    except CheckpointError as error:
        raise CheckpointError(f"{path} is refused: {error}") from None
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror}") from None
    except _BROKEN as error:
        why = " ".join(str(error).split())[:100]
        raise CheckpointError(f"{path} is a broken zip archive ({why}); download it again") from None


class _Archive:
    """The entries of the zip file and where their bytes lie in it."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._size = file.seek(0, 2)
        found = zipfile.ZipFile(file).infolist()
        self._entries = {entry.filename: entry for entry in found}
        if len(self._entries) != len(found):
            raise CheckpointError("its archive has two entries of the same name")
        roots = [name.removesuffix("/data.pkl") for name in self._entries if name.endswith("/data.pkl")]
        if len(roots) != 1 or "/" in roots[0]:
            raise CheckpointError(f"its archive has {len(roots)} entries named data.pkl, not one; {AGAIN}")
        self._root = roots[0]
        self._starts: dict[str, tuple[int, int]] = {}

    def pickle(self) -> bytes:
        """The bytes of data.pkl."""
        order = self._read("byteorder", 16) if f"{self._root}/byteorder" in self._entries else b"little"
        if order != b"little":
            raise CheckpointError(f"its byte order is {order!r}, not little; {AGAIN}")
        return self._read("data.pkl", MAX_BYTES)

    def tensor(self, path: Path, name: str, view: View) -> StoredTensor:
        """Where a tensor lies. Raises CheckpointError if it reaches beyond its storage."""
        check_shape(name, view.shape)
        storage = view.storage
        item = np.dtype(DTYPES[storage.dtype]).itemsize
        start, size = self._extent(f"data/{storage.key}")
        if size != storage.count * item:
            raise CheckpointError(
                f"tensor {name} has a storage of {size} bytes, which are not {storage.count} values of {storage.dtype}"
            )
        steps = [(n - 1) * stride for n, stride in zip(view.shape, view.strides, strict=True)]
        if all(view.shape) and view.offset + sum(steps) >= storage.count:
            raise CheckpointError(f"tensor {name} of shape {list(view.shape)} reaches beyond its storage")
        tensor = StoredTensor(
            name, path, storage.dtype, view.shape, start + view.offset * item, _gaps(view.shape, view.strides)
        )
        if tensor.count > storage.count:
            raise CheckpointError(f"tensor {name} of shape {list(view.shape)} repeats values; {AGAIN}")
        return tensor

    def _read(self, name: str, limit: int) -> bytes:
        start, size = self._extent(name)
        if size > limit:
            raise CheckpointError(f"its {name} has {size} bytes, more than {limit}")
        self._file.seek(start)
        return self._file.read(size)

    def _extent(self, name: str) -> tuple[int, int]:
        """Offset and size of an entry's bytes, which are in the file as they are."""
        if name not in self._starts:
            self._starts[name] = self._locate(name)
        return self._starts[name]

    def _locate(self, name: str) -> tuple[int, int]:
        entry = self._entries.get(f"{self._root}/{name}")
        if entry is None:
            raise CheckpointError(f"its archive lacks {name[:80]!r}; download it again")
        if entry.compress_type != zipfile.ZIP_STORED or entry.flag_bits & _ENCRYPTED:
            raise CheckpointError(f"its entry {name[:80]!r} is compressed or encrypted, which torch.save never does")
        self._file.seek(entry.header_offset)
        signature, name_length, extra_length = _LOCAL.unpack(self._file.read(_LOCAL.size))
        start = entry.header_offset + _LOCAL.size + name_length + extra_length
        if signature != b"PK\3\4" or entry.compress_size != entry.file_size or start + entry.file_size > self._size:
            raise CheckpointError(f"its entry {name[:80]!r} lies outside the file; download it again")
        return start, entry.file_size


def _gaps(shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, ...] | None:
    """The strides, or None where rows follow each other as usual."""
    expected = 1
    for n, stride in zip(reversed(shape), reversed(strides), strict=True):
        if n > 1 and stride != expected:
            return strides
        expected *= n
    return None
