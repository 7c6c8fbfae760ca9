"""Vocabularies that make llama.cpp abort are refused, each by its key."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gguf_edit import ARRAY, BOOL, I32, STRING, U32, Changes, check_refused, rewrite, write_sketch
from llama_eagle.gguf_files.check import check_gguf


def tokens(*texts: bytes) -> tuple[int, int, list[bytes]]:
    """A vocabulary of 272 with these texts at its end."""
    return ARRAY, STRING, [b"%d" % i for i in range(272 - len(texts))] + list(texts)


HOSTILE: list[tuple[str, Changes, str]] = [
    ("llama", {"tokenizer.ggml.tokens": tokens(b"a", b"a")}, "271 of them different"),
    ("llama", {"tokenizer.ggml.tokens": tokens(b"", b"[EMPTY_270]")}, "271 of them different"),
    ("llama", {"tokenizer.ggml.token_type": (ARRAY, I32, [1] * 271)}, "has 271 entries"),
    ("llama", {"tokenizer.ggml.model": (STRING, b"t5"), "tokenizer.ggml.add_bos_token": (BOOL, True),
               "tokenizer.ggml.bos_token_id": None}, "adds a bos token"),
    ("llama", {"tokenizer.ggml.pre": (STRING, b"whitespace")}, "does not go with"),
    ("llama", {"tokenizer.ggml.model": (STRING, b"bert"),
               "tokenizer.ggml.token_type": (ARRAY, I32, [6] * 272)}, "bytes"),
    ("llama", {"tokenizer.ggml.model": (STRING, b"gemma4"), "tokenizer.ggml.add_bos_token": (BOOL, False),
               "tokenizer.ggml.bos_token_id": None}, "adds a bos token to every text and there is none"),
    ("llama", {"tokenizer.ggml.model": (STRING, b"gemma4"), "tokenizer.ggml.bos_token_id": (U32, 272)},
     "its id is 272 of 272 tokens"),
    ("llama", {"tokenizer.ggml.model": (STRING, b"none"), "llama.vocab_size": (U32, 2**32 - 1)},
     "vocab_size is 4294967295"),
    ("llama", {"tokenizer.ggml.tokens": (ARRAY, STRING, []), "tokenizer.ggml.scores": None,
               "tokenizer.ggml.token_type": None}, "has 0 entries"),
]  # fmt: skip


@pytest.mark.parametrize(("arch", "changes", "words"), HOSTILE, ids=lambda value: str(value)[:60])
def test_hostile_vocabularies(
    arch: str, changes: Changes, words: str, tiny_target: Callable[..., Any], tmp_path: Path
) -> None:
    check_refused(rewrite(tiny_target(arch).path, tmp_path / "bad.gguf", changes), words)


def small(kind: str, **changes: Any) -> dict[str, Any]:
    return {"tokenizer.ggml.model": kind, "tokenizer.ggml.tokens": [f"t{i}" for i in range(8)], **changes}


@pytest.mark.parametrize("kind", ["gpt2", "bert"])
def test_a_vocabulary_too_small_for_the_default_ids(kind: str, tmp_path: Path) -> None:
    check_refused(write_sketch(tmp_path / "bad.gguf", "llama", small(kind), {}), "adds a bos token")


def test_a_missing_separator(tmp_path: Path) -> None:
    keys = small("bert") | {"tokenizer.ggml.bos_token_id": 1}
    check_refused(write_sketch(tmp_path / "bad.gguf", "llama", keys, {}), "seperator_token_id")
    check_gguf(write_sketch(tmp_path / "good.gguf", "llama", keys | {"tokenizer.ggml.seperator_token_id": 2}, {}))


@pytest.mark.parametrize("missing", ["a", "\\n", "\\x41"])
def test_a_text_that_would_never_end(missing: str, tmp_path: Path) -> None:
    texts = ["a", "ab", "\\n", "\\nb", "\\x41", "Ab"]
    keys = {"tokenizer.ggml.model": "rwkv", "tokenizer.ggml.tokens": texts}
    check_gguf(write_sketch(tmp_path / "good.gguf", "llama", keys, {}))
    keys["tokenizer.ggml.tokens"] = [text for text in texts if text != missing]
    check_refused(write_sketch(tmp_path / "bad.gguf", "llama", keys, {}), "no token for its first byte")
