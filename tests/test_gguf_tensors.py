"""Tensor lists that do not describe what lies in the file are refused, each by the tensor's name."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import pytest

from gguf_edit import GgufFile, check_refused
from llama_eagle.gguf_files.tensors import BLOCKS, IDS


def test_the_block_sizes_are_those_of_gguf() -> None:
    known = {**BLOCKS, **IDS}
    sizes = {int(kind): size for kind, size in gguf.GGML_QUANT_SIZES.items()}
    assert {kind: sizes[kind] for kind in known if kind in sizes} == {k: v for k, v in known.items() if k in sizes}


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("kind", 26, "cannot compute"),  # i32
        ("kind", 99, "cannot compute"),
        ("kind", 2, "multiples of 32|ends at byte|rows of"),
        ("shape", [0, 272], "has the shape"),
        ("shape", [2**60, 2**60], "has the shape"),
        ("shape", [2**39, 2**39, 2**39, 2**39], "overflows"),
        ("shape", [2**31, 2**30], "ends at byte"),
        ("shape", [1] * 5, "5 dimensions"),
        ("shape", [32, 1], "leaves a gap"),  # the one behind it
        ("offset", 2**63, "ends at byte"),
        ("offset", 2**64 - 1, "ends at byte"),
        ("offset", 32, "leaves a gap before it: its offset is 32, expected 0"),
        ("name", b"x" * 64, "expected 1 to 63 bytes"),
    ],
)
def test_hostile_tensors(field: str, value: Any, words: str, tiny_target: Callable[..., Any], tmp_path: Path) -> None:
    parts = GgufFile(tiny_target("llama", n_embd=48, n_head=3, n_head_kv=3).path.read_bytes())
    setattr(parts.tensors[0], field, value)
    (tmp_path / "bad.gguf").write_bytes(bytes(parts))
    check_refused(tmp_path / "bad.gguf", words)


@pytest.mark.parametrize(
    ("field", "words"), [("name", "comes twice"), ("offset", "overlaps the one before it: its offset is 0")]
)
def test_two_tensors_in_one(field: str, words: str, tiny_target: Callable[..., Any], tmp_path: Path) -> None:
    parts = GgufFile(tiny_target("llama").path.read_bytes())
    setattr(parts.tensors[1], field, getattr(parts.tensors[0], field))
    (tmp_path / "bad.gguf").write_bytes(bytes(parts))
    check_refused(tmp_path / "bad.gguf", words)


def test_a_norm_in_half_precision(tiny_target: Callable[..., Any], tmp_path: Path) -> None:
    parts = GgufFile(tiny_target("llama").path.read_bytes())
    norm = next(entry for entry in parts.tensors if entry.name == b"output_norm.weight")
    norm.kind = 1
    (tmp_path / "bad.gguf").write_bytes(bytes(parts))
    check_refused(tmp_path / "bad.gguf", "must be f32")
