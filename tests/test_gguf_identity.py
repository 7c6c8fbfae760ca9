"""file_identity tells models apart that differ in any tensor, value or part, and reads little."""

import shutil
from collections.abc import Callable
from pathlib import Path

import gguf
import pytest

from llama_eagle.errors import ModelError
from llama_eagle.gguf_files.header import read_header
from llama_eagle.gguf_files.identity import SAMPLE, file_identity
from tiny import TinyTarget, target_shape, write_target

Tiny = Callable[..., TinyTarget]


def test_a_copy_is_the_same_and_another_model_is_not(tiny_target: Tiny, tmp_path: Path) -> None:
    target = tiny_target("llama")
    copy = shutil.copy(target.path, tmp_path / "copy.gguf")
    assert file_identity(Path(copy)) == file_identity(target.path)
    assert len(file_identity(target.path)) == 64
    others = [file_identity(write_target(tmp_path / f"{s}.gguf", target_shape("llama", seed=s)).path) for s in (1, 2)]
    assert len({*others, file_identity(target.path)}) == 3


def test_every_tensor_and_key_counts(tiny_target: Tiny, tmp_path: Path) -> None:
    path = Path(shutil.copy(tiny_target("llama").path, tmp_path / "t.gguf"))
    seen = {file_identity(path)}
    reader = gguf.GGUFReader(path)
    for tensor in reader.tensors:
        data = bytearray(path.read_bytes())
        data[int(tensor.data_offset) + int(tensor.n_bytes) // 2] ^= 1
        (tmp_path / "changed.gguf").write_bytes(data)
        seen.add(file_identity(tmp_path / "changed.gguf"))
    assert len(seen) == 1 + len(reader.tensors)
    text = path.read_bytes()
    (tmp_path / "changed.gguf").write_bytes(text.replace(b"tiny llama 0", b"tiny llama 1"))
    assert file_identity(tmp_path / "changed.gguf") not in seen
    (tmp_path / "changed.gguf").write_bytes(text + b"\0" * 64)
    assert file_identity(tmp_path / "changed.gguf") not in seen


def test_little_is_read(tiny_target: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tiny_target("llama", n_embd=256, n_ff=512)
    header = read_header(target.path)
    count = 0
    opened = Path.open

    def counting(self: Path, *args: str) -> object:
        file = opened(self, *args)
        read = file.read

        class Counting:
            def read(self, size: int = -1) -> bytes:
                nonlocal count
                data: bytes = read(size)
                count += len(data)
                return data

            def __getattr__(self, name: str) -> object:
                return getattr(file, name)

            def __enter__(self) -> "Counting":
                return self

            def __exit__(self, *_: object) -> None:
                file.close()

        return Counting()

    monkeypatch.setattr(Path, "open", counting)
    file_identity(target.path)
    assert count <= header.data_start + SAMPLE * len(header.tensors) + 64
    assert count < header.size / 4


def test_what_is_no_model(tmp_path: Path) -> None:
    (tmp_path / "a.gguf").write_bytes(b"nothing")
    with pytest.raises(ModelError, match=r"a\.gguf"):
        file_identity(tmp_path / "a.gguf")
    with pytest.raises(ModelError, match="cannot be read"):
        file_identity(tmp_path / "none.gguf")
