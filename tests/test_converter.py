"""converter.py: keys, names, types and numbers of what is written, for EAGLE-3 heads that upstream reads too."""

import os
import sys
from dataclasses import replace
from pathlib import Path

import gguf
import numpy as np
import pytest

import conversion
import llama_eagle
from llama_eagle.conversion.checkpoint import Checkpoint
from llama_eagle.conversion.converter import convert, interleave_rope
from llama_eagle.errors import CheckpointError, InputError
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
    assert interleave_rope(rows, 2, 6).ravel().tolist() == [0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11]
    assert interleave_rope(rows.ravel(), 2, 6).tolist() == [0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11]
    assert interleave_rope(rows, 2, 4).ravel().tolist() == [0, 2, 1, 3, 4, 5, 6, 8, 7, 9, 10, 11]
    assert interleave_rope(rows, 0, 6) is rows


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


@pytest.mark.usefixtures("requires_native")
def test_rows_too_short_for_a_k_quant_are_q8_0_and_the_notes_say_so(tmp_path, target):
    report, reader = converted(tmp_path, target, outtype="q4_k")
    kinds = {t.name: t.tensor_type.name for t in reader.tensors}
    assert (kinds["fc.weight"], kinds["blk.0.ffn_down.weight"]) == ("Q8_0", "F16")  # rows of 96 and 48
    notes = [note for note in report.notes if "instead of q4_k where rows do not fill its blocks: " in note]
    assert [note.split()[0] for note in notes] == ["q8_0", "f16"]
    assert "fc.weight" in notes[0]
    assert notes[1].endswith(": blk.0.ffn_down.weight")


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


def test_weights_beyond_f16_are_refused_for_f16_only(tmp_path, target):
    weights = {**conversion.tensors(), "fc.weight": np.full((32, 96), 1e5, np.float32)}
    with pytest.raises(CheckpointError, match="--outtype bf16"):
        converted(tmp_path, target, weights=weights, outtype="f16")
    converted(tmp_path, target, weights=weights, outtype="bf16")


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
    for out in (draft / "config.json", draft / "model.safetensors"):
        before = out.read_bytes()
        with pytest.raises(InputError, match="a file of the checkpoint"):
            convert(draft, target, out)
        assert out.read_bytes() == before
    folder = conversion.write_hf_target(tmp_path / "hf")
    with pytest.raises(InputError, match="a file of the checkpoint or the target"):
        convert(draft, folder, folder / "config.json")
    with pytest.raises(InputError, match="choose another place"):
        convert(draft, target, tmp_path / ("x" * 250))
    with pytest.raises(InputError, match="outtype 'q4_x'"):
        convert(draft, target, tmp_path / "o.gguf", "q4_x")


@pytest.mark.skipif(sys.platform != "linux", reason="file names are text there")
def test_a_folder_whose_name_is_no_text_converts(tmp_path, target):
    draft = write_folder(tmp_path / os.fsdecode(b"draft\xff"), conversion.config(), conversion.tensors())
    convert(draft, target, tmp_path / "o.gguf")
    assert values(gguf.GGUFReader(tmp_path / "o.gguf"))["general.name"] == "draft\N{REPLACEMENT CHARACTER}"


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
