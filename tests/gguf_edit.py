"""Takes a small GGUF file apart and puts it together again, right or wrong: for tests of what refuses broken ones."""

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from llama_eagle.errors import ModelError
from llama_eagle.gguf_files.check import check_gguf
from tiny.target import finish

FORMATS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
U16, U32, I32, F32, BOOL, STRING, ARRAY = 2, 4, 5, 6, 7, 8, 9
Changes = dict[str, tuple[Any, ...] | None]


@dataclass
class Entry:
    """A line of the tensor list."""

    name: bytes
    shape: list[int]
    kind: int
    offset: int


class GgufFile:
    """The parts of a version 3 file. keys: name -> (type, value), or (ARRAY, item type, values)."""

    def __init__(self, raw: bytes) -> None:
        self._raw, self._at = raw, 24
        _, self.version, n_tensors, n_keys = struct.unpack_from("<4sIQQ", raw)
        self.keys = {self._text().decode(): self._value() for _ in range(n_keys)}
        self.tensors = [self._entry() for _ in range(n_tensors)]
        self.header_size = self._at
        self.data = raw[-(-self._at // 32) * 32 :]

    def _read(self, layout: str) -> Any:
        found = struct.unpack_from("<" + layout, self._raw, self._at)
        self._at += struct.calcsize("<" + layout)
        return found

    def _text(self) -> bytes:
        (size,) = self._read("Q")
        self._at += size
        return self._raw[self._at - size : self._at]

    def _item(self, kind: int) -> Any:
        return self._text() if kind == STRING else self._read(FORMATS[kind])[0]

    def _value(self) -> tuple[Any, ...]:
        (kind,) = self._read("I")
        if kind != ARRAY:
            return kind, self._item(kind)
        item, count = self._read("IQ")
        return ARRAY, item, [self._item(item) for _ in range(count)]

    def _entry(self) -> Entry:
        name = self._text()
        (n_dims,) = self._read("I")
        shape = list(self._read(f"{n_dims}Q"))
        return Entry(name, shape, *self._read("IQ"))

    def __bytes__(self) -> bytes:
        out = struct.pack("<4sIQQ", b"GGUF", self.version, len(self.tensors), len(self.keys))
        for name, value in self.keys.items():
            out += _pack(STRING, name.encode()) + struct.pack("<I", value[0])
            if value[0] == ARRAY:
                out += struct.pack("<IQ", value[1], len(value[2])) + b"".join(_pack(value[1], v) for v in value[2])
            else:
                out += _pack(*value)
        for entry in self.tensors:
            out += _pack(STRING, entry.name) + struct.pack("<I", len(entry.shape))
            out += struct.pack(f"<{len(entry.shape)}Q", *entry.shape) + struct.pack("<IQ", entry.kind, entry.offset)
        return out + bytes(-len(out) % 32) + self.data


def _pack(kind: int, value: Any) -> bytes:
    if kind == STRING:
        return struct.pack("<Q", len(value)) + value
    return struct.pack("<" + FORMATS[kind], value)


def rewrite(source: Path, target: Path, changes: Changes) -> Path:
    """Writes `source` with other metadata; None removes a key."""
    parts = GgufFile(source.read_bytes())
    for key, value in changes.items():
        if value is None:
            parts.keys.pop(key, None)
        else:
            parts.keys[key] = value
    target.write_bytes(bytes(parts))
    return target


def write_sketch(path: Path, arch: str, keys: dict[str, Any], tensors: dict[str, tuple[int, ...]]) -> Path:
    """A file with these keys (without the architecture's prefix) and zeros of these shapes, as numpy orders them."""
    writer = gguf.GGUFWriter(path, arch)
    for key, value in keys.items():
        name = key if "tokenizer" in key else f"{arch}.{key}"
        if isinstance(value, bool):
            writer.add_bool(name, value)
        elif isinstance(value, list):
            writer.add_array(name, value)
        elif isinstance(value, str):
            writer.add_string(name, value)
        else:
            writer.add_uint32(name, value)
    for name, shape in tensors.items():
        writer.add_tensor(name, np.zeros(shape, np.int64 if name == "d2t" else np.float32))
    finish(writer)
    return path


def check_refused(path: Path, words: str) -> None:
    """The file is refused in one line that names it and matches `words`."""
    with pytest.raises(ModelError, match=words) as caught:
        check_gguf(path)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)
