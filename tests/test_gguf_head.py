"""Heads as docs/head-format.md lays them out pass; contradictory ones are refused by key or tensor."""

from pathlib import Path
from typing import Any

import pytest

from gguf_edit import check_refused, write_sketch
from llama_eagle.gguf_files.check import check_gguf
from tiny import HeadShape, random_head, write_head_gguf

Shapes = dict[str, tuple[int, ...]]

H, T, V, D = 32, 48, 64, 40
SIZES = {"block_count": 1, "embedding_length": H, "attention.head_count": 4, "attention.key_length": 8,
         "attention.value_length": 8}  # fmt: skip
VOCAB = {"tokenizer.ggml.model": "none", "vocab_size": V}


def eagle3(count: int = 3, **more: Any) -> dict[str, Any]:
    layers = [-1, *range(1, count)]
    return SIZES | VOCAB | {"target_layers": layers, "target_hidden_size": T, **more}


def eagle(**more: Any) -> dict[str, Any]:
    return SIZES | VOCAB | {"target_layers": [-1], "target_hidden_size": H, **more}


def fused(count: int = 3) -> Shapes:
    return {"fc.weight": (H, T * count)}


GOOD: list[tuple[str, dict[str, Any], Shapes]] = [
    *(("eagle3", eagle3(count), fused(count)) for count in (1, 2, 3, 64)),
    ("eagle3", eagle3(), fused() | {"fc.bias": (H,), "fc_norm.weight": (3, T)}),
    ("eagle3", eagle3(norm_before_fc=True), fused() | {"enc.output_norm.weight": (3 * T,)}),
    ("eagle3", eagle3(norm_output=True, norm_before_residual=True), fused()),
    ("eagle3", eagle3(), fused() | {"token_embd.weight": (V, H), "output.weight": (D, H), "d2t": (D,)}),
    ("eagle3", eagle3(block_count=3), fused() | {"blk.0.attn_q.weight": (H, 2 * H), "blk.2.attn_q.weight": (H, H)}),
    ("eagle3", eagle3(1, target_hidden_size=H), {}),
    ("eagle", eagle(), {"fc.weight": (H, 2 * H), "fc.bias": (H,), "blk.0.attn_norm.weight": (H,)}),
    ("eagle", eagle(), {"fc.weight": (H, 2 * H), "blk.0.attn_q.bias": (H,), "output.weight": (V, H)}),
]


@pytest.mark.parametrize(("arch", "keys", "tensors"), GOOD, ids=lambda value: str(value)[-60:])
def test_heads_of_the_format_pass(arch: str, keys: dict[str, Any], tensors: Shapes, tmp_path: Path) -> None:
    check_gguf(write_sketch(tmp_path / "head.gguf", arch, keys, tensors))


@pytest.mark.parametrize("head", [HeadShape(), HeadShape(n_draft_vocab=272), HeadShape(own_embeddings=True)], ids=str)
def test_real_heads_pass(head: HeadShape, tmp_path: Path) -> None:
    check_gguf(write_head_gguf(tmp_path / "head.gguf", head, random_head(head)))


BAD: list[tuple[str, dict[str, Any], Shapes, str]] = [
    ("eagle3", eagle3(65), fused(65), "target_layers has 65 entries"),
    ("eagle3", eagle3(target_layers=[]), fused(), "no eagle3.target_layers|no whole number"),
    ("eagle3", eagle3(target_layers=3), fused(), "target_layers has 1 entries"),
    ("eagle3", eagle3(target_layers=[1, -2, 3]), fused(), "target_layers is -2"),
    ("eagle3", eagle3(target_layers=[1, 2, 513]), fused(), "target_layers is 513"),
    ("eagle3", eagle3(target_layers=["a", "b"]), fused(), "target_layers is no whole number"),
    ("eagle3", eagle3(target_hidden_size=0), fused(), "target_hidden_size is 0"),
    ("eagle3", eagle3(target_hidden_size=2**32 - 1), fused(), "target_hidden_size is 4294967295"),
    ("eagle3", eagle3(target_hidden_size=T + 1), fused(), r"fc.weight is \[144, 32\], expected \[147, 32\]"),
    ("eagle3", eagle3(2), fused(3), r"fc.weight is \[144, 32\], expected \[96, 32\] of 2 features of 48"),
    ("eagle3", eagle3(), {}, "no fc.weight, which 3 features of 48 need"),
    ("eagle3", eagle3(1), {}, "no fc.weight, which 1 features of 48 need"),
    ("eagle3", eagle3(1, target_hidden_size=H), {"fc.bias": (H,)}, "it has fc.bias, and no fc.weight"),
    ("eagle3", eagle3(), fused() | {"fc_norm.weight": (T, 3)}, "fc_norm.weight is"),
    ("eagle3", eagle3(norm_before_fc=True), fused(), "norm_before_fc is True, enc.output_norm.weight is missing"),
    ("eagle3", eagle3(), fused() | {"enc.output_norm.weight": (3 * T,)}, "norm_before_fc is False"),
    ("eagle3", eagle3(norm_before_fc=1), fused(), "norm_before_fc is no bool"),
    ("eagle3", eagle3(norm_before_fc=True), fused() | {"enc.output_norm.weight": (3 * T,), "fc_norm.weight": (3, T)},
     "two norms"),
    ("eagle3", eagle3(), fused() | {"token_embd.weight": (V - 1, H)}, "token_embd.weight is"),
    ("eagle3", eagle3(), fused() | {"output.weight": (D, H)}, r"output.weight is \[32, 40\], expected \[32, 64\]"),
    ("eagle3", eagle3(), fused() | {"d2t": (D,)}, "d2t maps 40 of 64 tokens"),
    ("eagle3", eagle3(), fused() | {"d2t": (V + 1,), "output.weight": (V + 1, H)}, "d2t maps 65 of 64"),
    ("eagle3", eagle3(vocab_size=2**32 - 1), fused(), "vocab_size is 4294967295"),
    ("eagle3", eagle3(block_count=513), fused(), "block_count is 513"),
    ("eagle", eagle(target_layers=[5]), {"fc.weight": (H, 2 * H)}, r"eagle.target_layers is \[5\], expected \[-1\]"),
    ("eagle", eagle(target_layers=[-1, -1]), {"fc.weight": (H, 2 * H)}, "eagle.target_layers is"),
    ("eagle", eagle(target_hidden_size=T), {"fc.weight": (H, 2 * H)}, "target_hidden_size is 48, expected .* 32"),
    ("eagle", eagle(), {}, "no fc.weight"),
    ("eagle", eagle(), {"fc.weight": (H, H)}, "fc.weight is"),
]  # fmt: skip


@pytest.mark.parametrize(("arch", "keys", "tensors", "words"), BAD, ids=lambda value: str(value)[-60:])
def test_contradictory_heads(arch: str, keys: dict[str, Any], tensors: Shapes, words: str, tmp_path: Path) -> None:
    check_refused(write_sketch(tmp_path / "head.gguf", arch, keys, tensors), words)


def test_a_vocabulary_one_token_off(tmp_path: Path) -> None:
    tokens = [str(i) for i in range(150_000)]
    keys = eagle() | {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.tokens": tokens, "vocab_size": 150_001}
    path = write_sketch(tmp_path / "head.gguf", "eagle", keys, {"fc.weight": (H, 2 * H)})
    check_refused(path, "eagle.vocab_size is 150001, tokenizer.ggml.tokens has 150000 entries")
