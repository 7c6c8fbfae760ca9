"""GgufHeader: metadata and tensor list of a GGUF file, every length checked against the file before it is used.

Knows the container (version 2 and 3, as llama.cpp's `gguf.cpp` reads it) and no model. Nothing of a file is trusted: no
count is allocated for before the bytes are known to be there.
"""

import mmap
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ..errors import ModelError

BOOL, STRING, ARRAY = 7, 8, 9
# numpy's letter of each scalar type; the numbers are those of `enum gguf_type`
NUMBERS = {0: "u1", 1: "i1", 2: "u2", 3: "i2", 4: "u4", 5: "i4", 6: "f4", 7: "u1", 10: "u8", 11: "i8", 12: "f8"}
WHOLE = (0, 1, 2, 3, 4, 5, 10, 11)
MOST_KEYS, MOST_TENSORS, MOST_KEY, MOST_NAME = 1 << 16, 1 << 18, 256, 64
MOST_ITEMS, MOST_TEXT = 1 << 24, 1 << 26  # entries of an array, bytes of one string: far above what models have

_U32, _U64, _TENSOR_TAIL = struct.Struct("=I"), struct.Struct("=Q"), struct.Struct("=IQ")


@dataclass(frozen=True)
class Value:
    """A metadata value. kind: its type, of the items for an array. `data`: a number as an array of one, an array as an
    array, one string as bytes, an array of strings as a list of bytes where it was asked for, else empty."""

    kind: int
    is_array: bool
    count: int
    data: "np.ndarray | bytes | list[bytes]"


@dataclass(frozen=True)
class TensorEntry:
    """A line of the tensor list: shape as GGUF orders it (fastest first), number of the type, offset in the data."""

    name: str
    shape: tuple[int, ...]
    kind: int
    offset: int


@dataclass
class GgufHeader:
    """What stands before the tensors. data_start: offset of their data, size: of the file, in bytes, alignment: of each
    tensor."""

    version: int = 0
    values: dict[str, Value] = field(default_factory=dict)
    tensors: list[TensorEntry] = field(default_factory=list)
    data_start: int = 0
    size: int = 0
    alignment: int = 32


def read_header(path: Path, keep: frozenset[str] = frozenset()) -> GgufHeader:
    """Reads a file's header. keep: keys whose arrays of strings are wanted. Raises ModelError where it is broken."""
    with _mapped(path) as data:
        return _Reader(data, keep).header()


@contextmanager
def _mapped(path: Path) -> Iterator[mmap.mmap]:
    try:
        with path.open("rb") as file:
            if file.read(4) != b"GGUF":
                raise ModelError("it does not begin with GGUF: it is another kind of file, or was cut or damaged")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                yield data
    except (OSError, ValueError) as error:
        raise ModelError(f"it cannot be read: {error}") from None


class _Reader:
    """A cursor over the mapped file."""

    def __init__(self, data: mmap.mmap, keep: frozenset[str]) -> None:
        self._data = data
        self._size = len(data)
        self._keep = keep
        self._at = 4

    def header(self) -> GgufHeader:
        header = GgufHeader(version=self._u32("the version"), size=self._size)
        if header.version not in (2, 3):
            raise ModelError(f"its GGUF version is {header.version}, versions 2 and 3 are read")
        n_tensors = self._count("tensors", MOST_TENSORS)
        for _ in range(self._count("metadata keys", MOST_KEYS)):
            key = self._string("a metadata key")
            try:
                name = key.decode("utf-8")
            except UnicodeDecodeError:
                raise ModelError(f"the metadata key {key[:40]!r} is not UTF-8") from None
            if not name or len(name) > MOST_KEY or not name.isprintable():
                raise ModelError(f"a metadata key is {name[:40]!r}, expected 1 to {MOST_KEY} printable characters")
            if name in header.values:
                raise ModelError(f"the metadata key {name} comes twice")
            header.values[name] = self._value(name)
        for _ in range(n_tensors):
            header.tensors.append(self._tensor())
        header.alignment = self._alignment(header)
        header.data_start = -(-self._at // header.alignment) * header.alignment
        return header

    def _alignment(self, header: GgufHeader) -> int:
        given = header.values.get("general.alignment")
        step = 32
        if given is not None:
            if given.is_array or given.kind != 4:
                raise ModelError("general.alignment is no u32")
            step = int(given.data[0])
        if step < 8 or step & (step - 1) or step > 1 << 20:
            raise ModelError(f"general.alignment is {step}, expected a power of two from 8 on")
        return step

    def _take(self, size: int, what: str) -> int:
        """Moves on by size bytes; returns where they begin."""
        if size > self._size - self._at:
            raise ModelError(f"it ends inside {what}: it was cut, or a length in it is wrong")
        begin = self._at
        self._at += size
        return begin

    def _u32(self, what: str) -> int:
        return int(_U32.unpack_from(self._data, self._take(4, what))[0])

    def _u64(self, what: str) -> int:
        return int(_U64.unpack_from(self._data, self._take(8, what))[0])

    def _count(self, what: str, most: int) -> int:
        count = self._u64(f"the number of {what}")
        if count > most:
            raise ModelError(f"it claims to have {count} {what}, more than {most} are not taken")
        return count

    def _string(self, what: str) -> bytes:
        size = self._u64(what)
        begin = self._take(size, what)
        if size > MOST_TEXT:
            raise ModelError(f"{what} has a string of {size} bytes, more than {MOST_TEXT} are not taken")
        return self._data[begin : begin + size]

    def _value(self, key: str) -> Value:
        kind = self._u32(key)
        if kind == STRING:
            return Value(kind, False, 1, self._string(key))
        if kind in NUMBERS:
            return Value(kind, False, 1, self._numbers(key, kind, 1))
        if kind != ARRAY:
            raise ModelError(f"{key} has the unknown type {kind}")
        kind, count = self._u32(key), self._u64(key)
        if count > MOST_ITEMS:
            raise ModelError(f"{key} claims to have {count} entries, more than {MOST_ITEMS} are not taken")
        if kind == STRING:
            return Value(kind, True, count, self._strings(key, count))
        if kind not in NUMBERS:
            what = "arrays, which no model has" if kind == ARRAY else f"the unknown type {kind}"
            raise ModelError(f"{key} is an array of {what}")
        return Value(kind, True, count, self._numbers(key, kind, count))

    def _numbers(self, key: str, kind: int, count: int) -> np.ndarray:
        dtype = np.dtype(NUMBERS[kind])
        begin = self._take(count * dtype.itemsize, key)
        return np.frombuffer(self._data[begin : self._at], dtype)

    def _strings(self, key: str, count: int) -> list[bytes]:
        data, at, size, kept = self._data, self._at, self._size, key in self._keep
        found: list[bytes] = []
        try:  # the one hot loop: half a million strings in large vocabularies
            for _ in range(count):
                begin = at + 8
                at = begin + _U64.unpack_from(data, at)[0]
                if at > size:
                    break
                if kept:
                    found.append(data[begin:at])
        except struct.error:
            at = size + 1
        self._take(at - self._at, key)
        return found

    def _tensor(self) -> TensorEntry:
        name = self._string("the name of a tensor")
        if not name or len(name) >= MOST_NAME or b"\0" in name:
            raise ModelError(f"a tensor's name is {name[:40]!r}, expected 1 to {MOST_NAME - 1} bytes")
        try:
            text = name.decode("utf-8")
        except UnicodeDecodeError:
            raise ModelError(f"the name of tensor {name!r} is not UTF-8") from None
        if not text.isprintable():
            raise ModelError(f"the name of tensor {text!r} cannot be printed")
        n_dims = self._u32(text)
        if not 1 <= n_dims <= 4:
            raise ModelError(f"tensor {text} has {n_dims} dimensions, expected 1 to 4")
        shape = tuple(self._u64(text) for _ in range(n_dims))
        kind, offset = _TENSOR_TAIL.unpack_from(self._data, self._take(_TENSOR_TAIL.size, text))
        return TensorEntry(text, shape, int(kind), int(offset))
