"""Headers of GGUF files: whatever the bytes, one line of error, in little time and memory."""

import struct
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import pytest

from gguf_edit import GgufFile, check_refused
from llama_eagle.errors import ModelError
from llama_eagle.gguf_files.check import check_gguf
from llama_eagle.gguf_files.header import MOST_ITEMS, read_header

U8, U32, STRING, ARRAY = 0, 4, 8, 9


def header(n_tensors: int, n_keys: int, *parts: bytes, version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("=IQQ", version, n_tensors, n_keys) + b"".join(parts)


def text(value: bytes, size: int | None = None) -> bytes:
    return struct.pack("=Q", len(value) if size is None else size) + value


def array(kind: int, count: int) -> bytes:
    return text(b"k") + struct.pack("=IIQ", ARRAY, kind, count)


def number(key: bytes, value: int) -> bytes:
    return text(key) + struct.pack("=II", U32, value)


def tensor(name: bytes, shape: list[int], n_dims: int | None = None) -> bytes:
    dims = struct.pack("=I", len(shape) if n_dims is None else n_dims) + struct.pack(f"={len(shape)}Q", *shape)
    return text(name) + dims + struct.pack("=IQ", 0, 0)


BROKEN: list[tuple[bytes, str]] = [
    (b"", "cannot be read|does not begin"),
    (b"GGUF", "ends inside the version"),
    (b"GGML" + bytes(1000), "does not begin with GGUF"),
    (header(0, 0, version=1), "version is 1"),
    (header(2**63, 0), "9223372036854775808 tensors"),
    (header(0, 2**63), "9223372036854775808 metadata keys"),
    (header(0, 1, text(b"", 2**63)), "ends inside a metadata key"),
    (header(0, 1, text(b"\xff"), b"\0" * 8), "is not UTF-8"),
    (header(0, 1, text(b""), b"\0" * 8), "a metadata key is ''"),
    (header(0, 1, text(b"a\nb"), b"\0" * 8), "printable"),
    (header(0, 1, text(b"k" * 300), b"\0" * 8), "1 to 256"),
    (header(0, 2, text(b"k") + struct.pack("=IB", U8, 1), text(b"k") + struct.pack("=IB", U8, 1)), "comes twice"),
    (header(0, 1, text(b"k") + struct.pack("=I", 77)), "unknown type 77"),
    (header(0, 1, text(b"k") + struct.pack("=I", STRING) + text(b"", 2**60)), "ends inside k"),
    (header(0, 1, array(77, 1)), "array of the unknown type 77"),
    (header(0, 1, array(ARRAY, 1), struct.pack("=IQ", U8, 1) + b"\0"), "array of arrays"),
    (header(0, 1, array(U32, 2**60)), "1152921504606846976 entries"),
    (header(0, 1, array(U32, 2**62)), "entries"),
    (header(0, 1, array(STRING, 2**60)), "1152921504606846976 entries"),
    (header(0, 1, array(U32, MOST_ITEMS)), "ends inside k"),
    (header(0, 1, array(STRING, MOST_ITEMS)), "ends inside k"),
    (header(0, 1, array(STRING, 2), text(b"", 2**64 - 8) + text(b"")), "ends inside k"),
    (header(0, 1, number(b"general.alignment", 0)), "general.alignment is 0"),
    (header(0, 1, number(b"general.alignment", 24)), "general.alignment is 24"),
    (header(0, 1, number(b"general.alignment", 2**31)), "general.alignment is 2147483648"),
    (header(0, 1, text(b"general.alignment") + struct.pack("=IQ", 10, 32)), "general.alignment is no u32"),
    (header(1, 0, tensor(b"", [1])), "tensor's name"),
    (header(1, 0, tensor(b"x" * 64, [1])), "1 to 63 bytes"),
    (header(1, 0, tensor(b"\xff", [1])), "not UTF-8"),
    (header(1, 0, tensor(b"a\x1b[2J", [1])), "cannot be printed"),
    (header(1, 0, tensor(b"x", [1] * 5)), "5 dimensions"),
    (header(1, 0, tensor(b"x", [1], n_dims=2**32 - 1)), "4294967295 dimensions"),
    (header(1, 0, tensor(b"x", [], n_dims=0)), "0 dimensions"),
]  # fmt: skip


@pytest.mark.parametrize(("raw", "words"), BROKEN, ids=lambda value: str(value)[:70])
def test_broken_headers_take_no_memory(raw: bytes, words: str, tmp_path: Path) -> None:
    path = tmp_path / "broken.gguf"
    path.write_bytes(raw)
    tracemalloc.start()
    with pytest.raises(ModelError, match=words):
        read_header(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20
    check_refused(path, words)


def test_every_cut_is_refused(tiny_target: Callable[..., Any], tmp_path: Path) -> None:
    raw = tiny_target("llama").path.read_bytes()
    path = tmp_path / "cut.gguf"
    for size in [*range(0, GgufFile(raw).header_size, 61), len(raw) - 1]:
        path.write_bytes(raw[:size])
        with pytest.raises(ModelError):
            check_gguf(path)


def test_a_large_vocabulary_is_quick(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "big.gguf", "llama")
    writer.add_token_list([f"token {i}" for i in range(150_000)])
    writer.add_token_merges([f"token {i}" for i in range(250_000)])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    start = time.perf_counter()
    check_gguf(tmp_path / "big.gguf")
    assert time.perf_counter() - start < 5  # 0.2 on an idle machine
