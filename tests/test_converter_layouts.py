"""Every layout of tiny/layouts.py, which says where each is documented: converted, and compared tensor by tensor.

What is expected is worked out here from docs/head-format.md, apart from the converter.
"""

import gguf
import numpy as np
import pytest

import conversion
from llama_eagle.conversion.converter import convert
from tiny import write_folder
from tiny.layouts import CASES, HEADS, KV_HEADS, VOCAB, Draft

OUTER = {
    "eagle3": {
        "norm": "output_norm", "input_norm": "enc.output_norm", "lm_head": "output", "embed_tokens": "token_embd",
    },
    "eagle": {
        "embedding_layernorm": "blk.0.attn_norm", "hidden_states_layernorm": "blk.0.attn_norm_2",
        "pre_lm_head_layernorm": "output_norm", "embed_tokens": "", "lm_head": "",
    },
}  # fmt: skip
LAYER = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
    "post_attention_layernorm": "ffn_norm", "input_layernorm": "attn_norm",
}  # fmt: skip
TURNED = {"attn_q": HEADS, "attn_k": KV_HEADS, "attn_q_norm": 1, "attn_k_norm": 1}
LEFT_OUT = ("t2d", "verifier_norm.weight")


def turned(rows, heads):
    """Row 2i of a head is its row i, row 2i + 1 its row i + half."""
    out, size = np.empty_like(rows), len(rows) // heads
    for head in range(heads):
        for i in range(size // 2):
            out[head * size + 2 * i] = rows[head * size + i]
            out[head * size + 2 * i + 1] = rows[head * size + size // 2 + i]
    return out


def expected(draft: Draft):
    """Name -> values of the GGUF's tensors."""
    found, features = {}, []
    for name, values in draft.state.items():
        stem, _, kind = name.rpartition(".")
        block = next((i for i, prefix in enumerate(draft.prefixes) if name.startswith(prefix)), None)
        if name in LEFT_OUT:
            continue
        if name == "d2t":
            found["d2t"] = values + np.arange(len(values))
        elif stem.startswith("fc_norm."):
            features.append(values)
        elif stem == draft.fc:
            found[f"fc.{kind}"] = values
        elif block is None:
            found[f"{OUTER[draft.arch][stem]}.{kind}"] = values
        else:
            part = stem.removeprefix(draft.prefixes[block])
            new = LAYER.get(part) or ("attn_norm" if block else "attn_norm_2")  # hidden_norm
            found[f"blk.{block}.{new}.{kind}"] = turned(values, TURNED[new]) if new in TURNED else values
    if features:
        found["fc_norm.weight"] = np.stack(features)
    return {name: values for name, values in found.items() if not name.startswith(".")}


@pytest.mark.parametrize("case", list(CASES))
def test_a_layout_becomes_the_documented_file(tmp_path, case):
    draft = CASES[case]()
    target = conversion.write_target(tmp_path / "target.gguf", vocab=VOCAB)
    folder = write_folder(tmp_path / case, draft.config, draft.state)
    report = convert(folder, target, tmp_path / "head.gguf", "f32")
    got = (report.arch, report.version, report.layout, tuple(report.target_layers))
    assert got == (draft.arch, draft.version, draft.layout, draft.layers)
    reader = gguf.GGUFReader(report.out)
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    values = expected(draft)
    assert set(tensors) == set(values)
    for name, value in values.items():
        np.testing.assert_array_equal(tensors[name].data, value, err_msg=name)
        assert tensors[name].tensor_type.name == ("I64" if name == "d2t" else "F32")
    check_metadata(draft, {key: field.contents() for key, field in reader.fields.items()})


def check_metadata(draft: Draft, meta):
    sizes = {
        "block_count": len(draft.prefixes), "embedding_length": 32, "feed_forward_length": 48,
        "attention.head_count": 4, "attention.head_count_kv": 2, "attention.key_length": draft.head_dim,
        "attention.value_length": draft.head_dim, "rope.dimension_count": draft.head_dim, "vocab_size": VOCAB,
        "target_hidden_size": 32, "target_layers": list(draft.layers),
    }  # fmt: skip
    assert {key: meta.get(f"{draft.arch}.{key}") for key in sizes} == sizes
    assert meta["general.architecture"] == draft.arch
    body = {**draft.config, **draft.config.get("transformer_layer_config", {})}
    base = body.get("rope_theta") or body.get("rope_parameters", {}).get("rope_theta", 10000.0)
    assert meta[f"{draft.arch}.rope.freq_base"] == base
    assert meta[f"{draft.arch}.attention.layer_norm_rms_epsilon"] == pytest.approx(1e-6)
    if draft.arch == "eagle3":
        assert meta["eagle3.norm_before_residual"] == bool(draft.config.get("norm_before_residual"))
        assert meta["eagle3.norm_before_fc"] == ("input_norm.weight" in draft.state)
        assert meta.get("eagle3.norm_output", False) == bool(draft.config.get("norm_output"))
    assert meta["llama_eagle.conversion.layout"] == draft.layout


@pytest.mark.parametrize("case", [name for name in CASES if CASES[name]().arch == "eagle"])
def test_eagle1_needs_no_target_and_copies_none_of_its_matrices(tmp_path, case):
    draft = CASES[case]()
    folder = write_folder(tmp_path / case, draft.config, draft.state)
    report = convert(folder, None, tmp_path / "head.gguf", "f16")
    reader = gguf.GGUFReader(report.out)
    meta = {key: field.contents() for key, field in reader.fields.items()}
    assert (meta["tokenizer.ggml.model"], meta["eagle.vocab_size"], meta["eagle.context_length"]) == (
        "none",
        VOCAB,
        2048,
    )
    names = {tensor.name for tensor in reader.tensors}
    assert not names & {"token_embd.weight", "output.weight"}
    assert any("EAGLE-1 and EAGLE-2 are one network" in note for note in report.notes)


@pytest.mark.parametrize("case", list(CASES))
def test_the_keys_of_other_networks_are_left_out(tmp_path, case):
    """A head without additions has upstream's keys alone, besides strings that upstream does not read."""
    draft = CASES[case]()
    folder = write_folder(tmp_path / case, draft.config, draft.state)
    target = conversion.write_target(tmp_path / "target.gguf", vocab=VOCAB)
    meta = gguf.GGUFReader(convert(folder, target, tmp_path / "head.gguf", "f32").out).fields
    assert ("eagle3.norm_output" in meta) == (draft.version == "3.1")
    extra = [key for key in meta if key.startswith("llama_eagle.")]
    assert all(meta[key].types == [gguf.GGUFValueType.STRING] for key in extra)
    assert not any(key.startswith("eagle.") for key in meta) or draft.arch == "eagle"


@pytest.mark.parametrize("case", list(CASES))
def test_norms_and_biases_stay_in_f32(tmp_path, case):
    draft = CASES[case]()
    folder = write_folder(tmp_path / case, draft.config, draft.state)
    target = conversion.write_target(tmp_path / "target.gguf", vocab=VOCAB)
    for tensor in gguf.GGUFReader(convert(folder, target, tmp_path / "head.gguf", "f16").out).tensors:
        small = "norm" in tensor.name or tensor.name.endswith(".bias")
        assert tensor.tensor_type.name == ("I64" if tensor.name == "d2t" else "F32" if small else "F16"), tensor.name
