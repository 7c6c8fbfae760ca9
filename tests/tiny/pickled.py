"""Writes a state dict as torch.save does since PyTorch 1.6, without PyTorch: a zip archive around a pickle.

Opcodes are put together one by one, so that tests can also write what torch.save never would.
"""

import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

STORAGES = {
    "float64": "DoubleStorage",
    "float32": "FloatStorage",
    "float16": "HalfStorage",
    "uint16": "BFloat16Storage",  # numpy has no bfloat16: its bits are kept as uint16
    "int64": "LongStorage",
    "int32": "IntStorage",
    "bool": "BoolStorage",
}
START, STOP, EMPTY, CALL = b"\x80\x02", b".", b")", b"R"
ORDERED_DICT = b"ccollections\nOrderedDict\n" + EMPTY + CALL


def write_pickled(path: Path, weights: Mapping[str, npt.NDArray[Any]]) -> Path:
    """Write `weights` as a state dict; a tensor that is a view of another array keeps its strides."""
    storages = [_whole(tensor) for tensor in weights.values()]
    entries = b"".join(
        text(name) + tensor(str(key), storages[key], values) + b"s"
        for key, (name, values) in enumerate(weights.items())
    )
    return write_archive(path, START + b"}" + entries + STOP, {str(k): s.tobytes() for k, s in enumerate(storages)})


def write_archive(path: Path, pickle: bytes, storages: Mapping[str, bytes] | None = None, **options: Any) -> Path:
    """Write a zip archive with this pickle and these storages; `options` are ZipFile's."""
    with zipfile.ZipFile(path, "w", **options) as archive:
        archive.writestr("archive/data.pkl", pickle)
        archive.writestr("archive/byteorder", b"little")
        for key, data in (storages or {}).items():
            archive.writestr(f"archive/data/{key}", data)
        archive.writestr("archive/version", b"3\n")
    return path


def tensor(key: str, storage: npt.NDArray[Any], values: npt.NDArray[Any]) -> bytes:
    """Opcodes of one tensor, `values`, which is `storage` or a view of it."""
    offset = (values.__array_interface__["data"][0] - storage.__array_interface__["data"][0]) // values.itemsize
    strides = tuple(stride // values.itemsize for stride in values.strides)
    return rebuilt(
        stored(STORAGES[values.dtype.name], key, storage.size), number(offset), numbers(values.shape), numbers(strides)
    )


def rebuilt(storage: bytes, offset: bytes, shape: bytes, strides: bytes) -> bytes:
    """A call of _rebuild_tensor_v2 on opcodes for its arguments."""
    arguments = b"(" + storage + offset + shape + strides + b"\x89" + ORDERED_DICT + b"t"
    return b"ctorch._utils\n_rebuild_tensor_v2\n" + arguments + CALL


def stored(kind: str, key: str, count: int) -> bytes:
    """A persistent id: `count` values in the archive's entry data/`key`."""
    return b"(" + text("storage") + f"ctorch\n{kind}\n".encode() + text(key) + text("cpu") + number(count) + b"tQ"


def text(value: str) -> bytes:
    """Opcode of a string."""
    data = value.encode()
    return b"X" + struct.pack("<I", len(data)) + data


def number(value: int) -> bytes:
    """Opcode of a whole number."""
    data = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
    return b"\x8a" + bytes([len(data)]) + data


def numbers(values: tuple[int, ...]) -> bytes:
    """Opcodes of a tuple of whole numbers."""
    return b"(" + b"".join(map(number, values)) + b"t"


def _whole(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The array whose memory `values` shows, contiguous."""
    while isinstance(values.base, np.ndarray) and values.base.dtype == values.dtype:
        values = values.base
    return np.ascontiguousarray(values)
