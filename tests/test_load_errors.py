"""A file that llama.cpp refuses: the error quotes the line of its log that names the cause, not those that follow."""

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from gguf_edit import STRING, U32, GgufFile
from llama_eagle import Model, ModelError
from tiny import TinyTarget

pytestmark = pytest.mark.native
Edit = Callable[[GgufFile], object]


def put(key: str, kind: int, value: object) -> Edit:
    return lambda file: file.keys.update({key: (kind, value)})


def drop(key: str) -> Edit:
    return lambda file: file.keys.pop(key)


EDITS: dict[str, tuple[Edit, str]] = {
    "architecture": (put("general.architecture", STRING, b"nonsense"), "unknown model architecture: 'nonsense'"),
    "tensor": (lambda file: file.tensors.pop(), "tensor 'blk.5.ffn_down.weight' not found"),
    "gap": (lambda file: file.tensors.pop(3), "has offset"),
    "twice": (lambda file: file.tensors.append(file.tensors[-1]), "duplicate tensor name 'blk.5.ffn_down.weight'"),
    "key": (drop("llama.embedding_length"), "key not found in model: llama.embedding_length"),
    "rope": (put("llama.rope.dimension_count", U32, 8), "invalid n_rot: 8, expected 16"),
    "alignment": (put("general.alignment", U32, 7), "alignment 7 is not a power of 2"),
    "vocabulary": (drop("tokenizer.ggml.tokens"), "cannot find tokenizer vocab"),
    "tokenizer": (put("tokenizer.ggml.model", STRING, b"nonsense"), "unknown tokenizer: 'nonsense'"),
    "merges": (drop("tokenizer.ggml.merges"), "cannot find tokenizer merges"),
}
BYTES: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "empty": (lambda raw: b"", "failed to read magic"),
    "magic": (lambda raw: b"GGML" + raw[4:], "invalid magic characters: 'GGML'"),
    "version": (lambda raw: raw[:4] + struct.pack("<I", 9) + raw[8:], "version 9"),
    "cut keys": (lambda raw: raw[:1000], "failed to read key-value pairs"),
    "cut tensors": (lambda raw: raw[: len(raw) * 2 // 3], "data is not within the file bounds"),
}


@pytest.fixture
def refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[bytes], str]:
    """refused(raw): what Model says about a file of these bytes that only llama.cpp looks at."""
    monkeypatch.setattr("llama_eagle.model.check_gguf", lambda path: None)
    path = tmp_path / "broken.gguf"

    def load(raw: bytes) -> str:
        path.write_bytes(raw)
        with pytest.raises(ModelError) as caught:
            Model(path)
        return str(caught.value)

    return load


@pytest.mark.parametrize("case", EDITS)
def test_wrong_parts(case: str, refused: Callable[[bytes], str], tiny_target: Callable[..., TinyTarget]) -> None:
    edit, words = EDITS[case]
    file = GgufFile(tiny_target("llama").path.read_bytes())
    edit(file)
    assert words in refused(bytes(file))


@pytest.mark.parametrize("case", BYTES)
def test_wrong_bytes(case: str, refused: Callable[[bytes], str], tiny_target: Callable[..., TinyTarget]) -> None:
    change, words = BYTES[case]
    assert words in refused(change(tiny_target("llama").path.read_bytes()))


def test_each_failure_has_a_line_of_its_own(
    refused: Callable[[bytes], str], tiny_target: Callable[..., TinyTarget]
) -> None:
    raw = tiny_target("llama").path.read_bytes()
    assert "failed to read magic" in refused(b"")
    assert "'GGML'" in refused(b"GGML" + raw[4:])
