"""converter.py: what is written equals the checkpoint, and nothing is written when something is off."""

import os
from dataclasses import replace
from pathlib import Path

import gguf
import numpy as np
import pytest

import conversion
import llama_eagle
from llama_eagle.checkpoint import Checkpoint
from llama_eagle.converter import convert, interleave_rope
from llama_eagle.errors import CheckpointError, EagleError, InputError, ModelError
from reference import Eagle3, head_file_logits, rope_divisors
from tiny import as_float32, bf16, write_folder

SHARED = Path(__file__).resolve().parents[1].parent / "shared"
HEAD = SHARED / "models" / "smollm2-135m-instruct-eagle3"
LLAMA3 = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}  # fmt: skip


@pytest.fixture
def target(tmp_path):
    return conversion.write_target(tmp_path / "target.gguf")


def converted(tmp_path, target, settings=None, weights=None, outtype="f32"):
    draft = write_folder(tmp_path / "draft", settings or conversion.config(), weights or conversion.tensors())
    out = tmp_path / "head.gguf"
    return convert(draft, target, out, outtype), gguf.GGUFReader(out)


def values(reader):
    return {key: field.contents() for key, field in reader.fields.items()}


def test_keys_are_those_that_upstream_reads(tmp_path, target):
    report, reader = converted(tmp_path, target)
    meta = values(reader)
    expected = {
        "general.architecture": "eagle3", "eagle3.context_length": conversion.CONTEXT, "eagle3.embedding_length": 32,
        "eagle3.block_count": 1, "eagle3.feed_forward_length": 48, "eagle3.attention.head_count": 4,
        "eagle3.attention.head_count_kv": 2, "eagle3.attention.key_length": 16, "eagle3.attention.value_length": 16,
        "eagle3.rope.dimension_count": 16, "eagle3.rope.freq_base": 500.0, "eagle3.vocab_size": 40,
        "eagle3.target_layers": [2, 6, 9], "eagle3.target_hidden_size": 32, "eagle3.norm_before_residual": False,
        "eagle3.norm_before_fc": False, "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.add_bos_token": False, "tokenizer.ggml.merges": ["a b", "ab c"],
    }  # fmt: skip
    assert {key: meta.get(key) for key in expected} == expected
    assert len(meta["tokenizer.ggml.tokens"]) == conversion.VOCAB
    assert "tokenizer.chat_template" not in meta
    assert meta["eagle3.attention.layer_norm_rms_epsilon"] == pytest.approx(1e-5)
    assert (report.arch, report.version, report.layout, report.target_layers) == ("eagle3", "3", "specforge", [2, 6, 9])
    assert "+1" in report.notes[0]
    assert any("512" in note for note in report.notes)


def test_tensors_are_named_and_typed_as_upstream_wants(tmp_path, target):
    weights = conversion.tensors()
    _, reader = converted(tmp_path, target, weights=weights)
    found = {t.name: t for t in reader.tensors}
    attention = ["attn_norm", "attn_norm_2", "attn_q", "attn_k", "attn_v", "attn_output"]
    layer = [*attention, "ffn_norm", "ffn_gate", "ffn_up", "ffn_down"]
    outer = ["fc.weight", "output_norm.weight", "output.weight", "d2t"]
    assert set(found) == {*outer, *(f"blk.0.{name}.weight" for name in layer)}
    assert found["d2t"].tensor_type == gguf.GGMLQuantizationType.I64
    np.testing.assert_array_equal(found["d2t"].data, np.flatnonzero(weights["t2d"]))
    np.testing.assert_array_equal(found["fc.weight"].data, weights["fc.weight"])
    q = found["blk.0.attn_q.weight"].data
    np.testing.assert_array_equal(q[1], weights["midlayer.self_attn.q_proj.weight"][conversion.HEAD_DIM // 2])


def test_rope_rows_of_each_head_go_from_halves_to_pairs():
    rows = np.arange(12, dtype=np.float32).reshape(12, 1)
    assert interleave_rope(rows, 2).ravel().tolist() == [0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11]
    assert interleave_rope(rows, 0) is rows


def options():
    plain = conversion.tensors()
    embed = np.random.default_rng(5).normal(size=(conversion.VOCAB, conversion.HIDDEN)).astype(np.float32)
    normed = {**plain, "input_norm.weight": np.linspace(0.5, 2, 96, dtype=np.float32)}
    sink = {"verifier_norm.weight": embed, "midlayer.self_attn.rotary_emb.inv_freq": embed}
    ids = {"eagle_aux_hidden_state_layer_ids": [2, 6, 12], "eagle_config": None}
    return {
        "plain": ({}, plain),
        "llama3": ({"rope_scaling": LLAMA3}, plain),
        "linear": ({"rope_scaling": {"type": "linear", "factor": 4.0}}, plain),
        "residual": ({"norm_before_residual": True}, plain),
        "fc norm": ({"norm_before_fc": True}, normed),
        "fc norm by tensor": ({}, normed),
        "own embeddings": ({}, {**plain, "embed_tokens.weight": embed}),
        "layers.0": ({**ids, "architectures": ["Eagle3Speculator"]}, conversion.tensors("layers.0.")),
        "full vocabulary": ({"draft_vocab_size": None}, conversion.tensors(n_draft_vocab=conversion.VOCAB)),
        "leftovers": ({}, {**plain, **sink}),
        "bf16": ({}, {k: bf16(v) if v.ndim == 2 else v for k, v in plain.items()}),
    }


def checkpoint_logits(settings, weights, embeddings, tokens, features):
    """Draft logits over target ids [n, vocab] of the checkpoint's own tensors."""
    state = {name.replace("layers.0.", "midlayer."): as_float32(value) for name, value in weights.items()}
    residual, fc = settings.get("norm_before_residual", False), "input_norm.weight" in state
    sizes = replace(conversion.SHAPE, norm_before_residual=residual, norm_before_fc=fc)
    net = Eagle3(state, sizes, embeddings, rope_divisors(settings, sizes.head_dim))
    return net.scatter(net.decode(tokens, net.encode(features), np.arange(len(tokens)))[1])


@pytest.mark.parametrize("option", list(options()))
def test_the_file_gives_the_logits_of_the_checkpoint(tmp_path, target, option):
    changes, weights = options()[option]
    settings = conversion.config(**changes)
    _, reader = converted(tmp_path, target, settings, weights)
    rng = np.random.default_rng(3)
    tokens, features = rng.integers(0, conversion.VOCAB, 30), rng.normal(size=(30, 3 * conversion.HIDDEN))
    shared = rng.normal(size=(conversion.VOCAB, conversion.HIDDEN))
    expected = checkpoint_logits(settings, weights, shared, tokens, features)
    got = head_file_logits(reader, shared, tokens, features)
    np.testing.assert_array_equal(np.isinf(got), np.isinf(expected))
    finite = np.isfinite(expected)
    assert np.abs(got[finite] - expected[finite]).max() <= 1e-5 * np.abs(expected[finite]).max()


@pytest.mark.parametrize(
    ("outtype", "bits", "error"), [("f16", "F16", 1e-3), ("bf16", "BF16", 8e-3), ("q8_0", "Q8_0", 1e-2)]
)
def test_outtypes_hold_matrices_and_leave_norms_in_f32(tmp_path, target, outtype, bits, error):
    weights = conversion.tensors()
    report, reader = converted(tmp_path, target, weights=weights, outtype=outtype)
    found = {t.name: t for t in reader.tensors}
    assert found["fc.weight"].tensor_type.name == bits
    assert found["output_norm.weight"].tensor_type.name == "F32"
    fc = gguf.quants.dequantize(found["fc.weight"].data, found["fc.weight"].tensor_type)
    assert np.abs(fc - weights["fc.weight"]).max() < error * np.abs(weights["fc.weight"]).max()
    # ffn_down has rows of 48, which q8_0 cannot cut into blocks of 32
    assert found["blk.0.ffn_down.weight"].tensor_type.name == ("F16" if outtype == "q8_0" else bits)
    assert any("ffn_down" in note for note in report.notes) == (outtype == "q8_0")


def test_a_head_may_be_the_targets_or_the_embedding(tmp_path, target):
    full = conversion.tensors(n_draft_vocab=conversion.VOCAB)
    head = full.pop("lm_head.weight")
    report, reader = converted(tmp_path, target, conversion.config(draft_vocab_size=None), full)
    assert "output.weight" not in {t.name for t in reader.tensors}
    assert any("target's is the head" in note for note in report.notes)
    tied = conversion.config(draft_vocab_size=None, tie_word_embeddings=True)
    _, reader = converted(tmp_path, target, tied, {**full, "embed_tokens.weight": head})
    np.testing.assert_array_equal({t.name: t.data for t in reader.tensors}["output.weight"], head)
    with pytest.raises(CheckpointError, match="its embedding"):
        converted(tmp_path, target, tied, full)
    converted(tmp_path, conversion.write_target(tmp_path / "tied.gguf", head=False), tied, full)


def test_notes_name_what_was_decided(tmp_path, target):
    weights = conversion.tensors("layers.0.")
    weights["t2d"] = ~weights["t2d"]
    report, _ = converted(tmp_path, target, conversion.config(eagle_config=None, max_position_embeddings=4096), weights)
    text = "\n".join(report.notes)
    assert report.layout == "speculators"
    assert "default" in text
    assert "norm_before_residual" in text
    assert "t2d disagrees" in text
    assert "context length" not in text


def without(*names):
    return {k: v for k, v in conversion.tensors().items() if k not in names}


def with_map(offsets):
    return {**conversion.tensors(), "d2t": np.array(offsets, np.int64)}


def stray(name, shape=(2,)):
    return {**conversion.tensors(), name: np.ones(shape, np.float32)}


REFUSED = {
    "no draft": ({}, {"model.embed_tokens.weight": np.ones((2, 2), np.float32)}, "not an EAGLE draft"),
    "eagle-1": ({}, {"fc.weight": np.ones((2, 2)), "layers.0.mlp.up_proj.weight": np.ones((2, 2))}, "EAGLE-1/2"),
    "no fc": ({}, without("fc.weight"), "no fc.weight"),
    "missing tensor": ({}, without("midlayer.mlp.up_proj.weight"), "midlayer.mlp.up_proj.weight is missing"),
    "missing map": ({}, without("d2t"), "d2t is missing"),
    "missing head": ({}, without("lm_head.weight"), "lm_head.weight is missing"),
    "fc bias": ({}, stray("fc.bias"), "fc.bias"),
    "attention bias": ({}, stray("midlayer.self_attn.q_proj.bias"), "attention biases"),
    "q norm": ({}, stray("midlayer.self_attn.q_norm.weight"), "q/k norms"),
    "second layer": ({}, stray("layers.1.mlp.up_proj.weight"), "more than one layer"),
    "fc_norm": ({}, stray("fc_norm.0.weight"), "EAGLE-3.1"),
    "unknown": ({}, stray("surprise.weight"), "surprise.weight is none that"),
    "two features": ({}, {**conversion.tensors(), "fc.weight": np.ones((32, 64), np.float32)}, "fuses 2 features"),
    "fc width": ({}, {**conversion.tensors(), "fc.weight": np.ones((32, 90), np.float32)}, r"fc.weight is \[32, 90\]"),
    "width": ({"intermediate_size": 40}, conversion.tensors(), r"config.json calls for \[40, 32\]"),
    "head rows": ({}, {**conversion.tensors(), "lm_head.weight": np.ones((40, 32), np.float32)}, "lm_head.weight"),
    "fc norm missing": ({"norm_before_fc": True}, conversion.tensors(), "input_norm.weight is missing"),
    "fc norm denied": (
        {"norm_before_fc": False},
        stray("input_norm.weight", (96,)),
        "input_norm.weight is in the file",
    ),
    "map range": ({}, with_map([0] * 23 + [17]), r"d2t\[23\] points at token 40"),
    "map negative": ({}, with_map([-1] + [0] * 23), r"d2t\[0\] points at token -1"),
    "map double": ({}, with_map([0, -1] + [0] * 22), "2 draft tokens to the same target token 0"),
    "map short": ({}, with_map([0] * 5), "d2t"),
    "map type": ({}, {**conversion.tensors(), "d2t": np.zeros(24, np.float32)}, "d2t is F32"),
    "draft vocabulary": ({"draft_vocab_size": 41}, conversion.tensors(), "draft_vocab_size 41"),
    "nan": ({}, {**conversion.tensors(), "norm.weight": np.full(32, np.nan, np.float32)}, "norm.weight holds 32"),
    "layer ids": (
        {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 5, 30]}},
        conversion.tensors(),
        "12 layers",
    ),
    "target size": ({"target_hidden_size": 64}, conversion.tensors(), "hidden size 64"),
    "vocabulary": ({"vocab_size": 50}, conversion.tensors(), "vocabulary of 50"),
}


@pytest.mark.parametrize("case", list(REFUSED))
def test_a_bad_checkpoint_is_refused_in_one_line_and_leaves_no_trace(tmp_path, target, case):
    changes, weights, words = REFUSED[case]
    draft = write_folder(tmp_path / "draft", conversion.config(**changes), weights)
    out = tmp_path / "out" / "head.gguf"
    out.parent.mkdir()
    out.write_bytes(b"before")
    with pytest.raises(EagleError, match=words) as caught:
        convert(draft, target, out)
    assert "\n" not in str(caught.value)
    assert out.read_bytes() == b"before"
    assert list(out.parent.iterdir()) == [out]


def test_weights_beyond_f16_are_refused_for_f16_only(tmp_path, target):
    weights = {**conversion.tensors(), "fc.weight": np.full((32, 96), 1e5, np.float32)}
    with pytest.raises(CheckpointError, match="--outtype bf16"):
        converted(tmp_path, target, weights=weights, outtype="f16")
    converted(tmp_path, target, weights=weights, outtype="bf16")


def test_a_draft_of_another_width_needs_its_own_embeddings(tmp_path):
    target = conversion.write_target(tmp_path / "wide.gguf", hidden=64)
    weights = {**conversion.tensors(), "fc.weight": np.ones((32, 192), np.float32)}
    with pytest.raises(ModelError, match="without embed_tokens needs"):
        converted(tmp_path, target, weights=weights)
    own = {**weights, "embed_tokens.weight": np.ones((40, 32), np.float32)}
    _, reader = converted(tmp_path, target, conversion.config(target_hidden_size=64), own)
    assert values(reader)["eagle3.target_hidden_size"] == 64


def test_a_target_must_be_given(tmp_path):
    draft = write_folder(tmp_path / "draft", conversion.config(), conversion.tensors())
    with pytest.raises(InputError, match="--target"):
        convert(draft, None, tmp_path / "o.gguf")


def test_outputs_that_cannot_be_written_are_refused(tmp_path, target):
    draft = write_folder(tmp_path / "draft", conversion.config(), conversion.tensors())
    with pytest.raises(InputError, match="is a folder"):
        convert(draft, target, tmp_path)
    with pytest.raises(InputError, match="does not exist"):
        convert(draft, target, tmp_path / "none" / "head.gguf")
    if hasattr(os, "mkfifo"):  # stands for /dev/null, which root could replace
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(InputError, match="device or pipe"):
            convert(draft, target, tmp_path / "pipe")
    with pytest.raises(InputError, match="target itself"):
        convert(draft, target, target)
    with pytest.raises(InputError, match="outtype 'q4_k'"):
        convert(draft, target, tmp_path / "o.gguf", "q4_k")


@pytest.mark.skipif(not HEAD.is_dir(), reason="the shared head is not here")
def test_the_shared_head_converts(tmp_path):
    target = conversion.write_target(tmp_path / "target.gguf", hidden=576, vocab=49152, n_layer=30)
    report = convert(HEAD, target, tmp_path / "head.gguf", "q8_0")
    assert (report.layout, report.target_layers) == ("specforge", [2, 15, 27])
    found = {t.name: t for t in gguf.GGUFReader(tmp_path / "head.gguf").tensors}
    draft = Checkpoint(HEAD)
    np.testing.assert_array_equal(found["d2t"].data, np.flatnonzero(draft.booleans("t2d")))
    head = gguf.quants.dequantize(found["output.weight"].data, found["output.weight"].tensor_type)
    assert np.abs(head - draft.floats("lm_head.weight")).max() < 0.01


def test_the_embedded_head_is_small_and_whole():
    path = Path(llama_eagle.__file__).parent / "data" / "smollm2-135m-instruct-eagle3.gguf"
    assert path.stat().st_size < 20_000_000
    meta = values(gguf.GGUFReader(path))
    assert meta["eagle3.target_layers"] == [2, 15, 27]
    assert len(meta["tokenizer.ggml.tokens"]) == meta["eagle3.vocab_size"] == 49152
