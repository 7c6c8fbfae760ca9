"""The tiny models' files: sizes, determinism, layouts. That llama.cpp loads them is shown by the native tests."""

import json
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest

from tiny import (
    EOS,
    PRESETS,
    HeadShape,
    TinyTarget,
    random_head,
    target_ids,
    target_shape,
    write_checkpoint,
    write_head_gguf,
    write_target,
)
from tiny.head_gguf import interleave
from tiny.tokenizer import tokens


@pytest.mark.parametrize("arch", sorted(PRESETS))
def test_target_is_small_equal_by_seed_and_readable(arch: str, tmp_path: Path) -> None:
    first = write_target(tmp_path / "a.gguf", target_shape(arch))
    again = write_target(tmp_path / "b.gguf", target_shape(arch))
    other = write_target(tmp_path / "c.gguf", target_shape(arch, seed=1))
    assert first.path.stat().st_size < 1_000_000
    assert first.path.read_bytes() == again.path.read_bytes() != other.path.read_bytes()
    reader = gguf.GGUFReader(first.path)
    stored = {t.name: t.data for t in reader.tensors}
    assert stored.keys() == first.tensors.keys()
    for name, tensor in first.tensors.items():
        np.testing.assert_array_equal(stored[name], tensor)
    assert reader.fields["general.architecture"].contents() == arch
    assert reader.fields["tokenizer.ggml.eos_token_id"].contents() == EOS


def test_f16_target_reports_the_rounded_weights(tmp_path: Path, tiny_target: Callable[..., TinyTarget]) -> None:
    half = tiny_target("llama", dtype="f16")
    stored = {t.name: np.asarray(t.data) for t in gguf.GGUFReader(half.path).tensors}
    assert stored["blk.0.attn_q.weight"].dtype == np.float16
    np.testing.assert_array_equal(stored["blk.0.attn_q.weight"].astype(np.float32), half.tensors["blk.0.attn_q.weight"])
    assert not np.array_equal(half.tensors["output.weight"], tiny_target("llama").tensors["output.weight"])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"dtype": "q4"}, "dtype"),
        ({"arch": "gemma2", "bigram": 0.5}, "ties its output"),
        ({"arch": "qwen2", "head_dim": 32}, "n_head"),
        ({"swa_pattern": (True,)}, "1 entries for 6 layers"),
        ({"arch": "gpt"}, "no tiny 'gpt'"),
    ],
)
def test_shapes_that_cannot_be(changes: dict, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        target_shape(**{"arch": "llama", **changes})


def test_vocabulary_covers_every_byte_once() -> None:
    texts = tokens(272)
    assert len(set(texts)) == len(texts) == 272
    assert texts[ord("A")] == "A"
    with pytest.raises(ValueError, match="too small"):
        tokens(200)


@pytest.mark.parametrize(("dtype", "bits"), [("f32", 0), ("f16", 13), ("bf16", 16)])
def test_checkpoint_stores_what_it_returns(dtype: str, bits: int, tmp_path: Path) -> None:
    head = HeadShape(n_draft_vocab=100)
    state = random_head(head)
    seen = write_checkpoint(tmp_path, head, state, dtype)
    raw = (tmp_path / "model.safetensors").read_bytes()
    size = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + size])
    assert header["fc.weight"]["shape"] == [64, 192]
    begin, end = header["fc.weight"]["data_offsets"]
    words = np.frombuffer(raw[8 + size + begin : 8 + size + end], dtype=np.uint32 if dtype == "f32" else np.uint16)
    if dtype == "bf16":
        words = (words.astype(np.uint32) << 16).view(np.uint32)
    stored = words.view(np.float32 if dtype != "f16" else np.float16).astype(np.float32).reshape(64, 192)
    np.testing.assert_array_equal(stored, seen["fc.weight"])
    assert (seen["fc.weight"].view(np.uint32) & ((1 << bits) - 1)).max() == 0
    assert np.abs(seen["fc.weight"] - state["fc.weight"]).max() <= {"f32": 0, "f16": 1e-3, "bf16": 4e-3}[dtype]
    ids = target_ids(head)
    np.testing.assert_array_equal(seen["d2t"] + np.arange(100), ids)
    assert np.flatnonzero(seen["t2d"]).tolist() == ids.tolist()


def test_checkpoint_opens_with_safetensors(tmp_path: Path) -> None:
    numpy = pytest.importorskip("safetensors.numpy")
    head = HeadShape()
    state = random_head(head)
    write_checkpoint(tmp_path, head, state)
    loaded = numpy.load_file(tmp_path / "model.safetensors")
    assert loaded.keys() == state.keys()
    for name, tensor in state.items():
        np.testing.assert_array_equal(loaded[name], tensor)


def test_head_gguf_has_absolute_ids_and_interleaved_rows(tmp_path: Path) -> None:
    head = HeadShape(own_embeddings=True, norm_before_fc=True)
    state = random_head(head)
    reader = gguf.GGUFReader(write_head_gguf(tmp_path / "h.gguf", head, state))
    stored = {t.name: t.data for t in reader.tensors}
    np.testing.assert_array_equal(stored["d2t"], target_ids(head))
    assert stored["d2t"].dtype == np.int64
    query = state["midlayer.self_attn.q_proj.weight"]
    assert stored["blk.0.attn_q.weight"][1].tolist() == query[8].tolist()  # row 1 = first of the second half
    assert len(stored) == len(state) - 1  # all but t2d
    assert [int(i) for i in reader.fields["eagle3.target_layers"].contents()] == [2, 3, 5]


def test_interleave_pairs_halves() -> None:
    rows = np.arange(8, dtype=np.float32)[:, None]
    assert interleave(rows, 4)[:, 0].tolist() == [0, 2, 1, 3, 4, 6, 5, 7]
