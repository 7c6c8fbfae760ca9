"""converter.py: a checkpoint that is off is refused in one line that names what, and nothing is written."""

import numpy as np
import pytest

import conversion
from llama_eagle.conversion.converter import convert
from llama_eagle.conversion.overrides import Overrides
from llama_eagle.errors import CheckpointError, EagleError, InputError
from tiny import write_folder
from tiny.layouts import CASES


@pytest.fixture
def target(tmp_path):
    return conversion.write_target(tmp_path / "target.gguf")


def without(*names):
    return {k: v for k, v in conversion.tensors().items() if k not in names}


def with_map(offsets):
    return {**conversion.tensors(), "d2t": np.array(offsets, np.int64)}


def stray(name, shape=(2,)):
    return {**conversion.tensors(), name: np.ones(shape, np.float32)}


REFUSED = {
    "no draft": ({}, {"model.embed_tokens.weight": np.ones((2, 2), np.float32)}, "not an EAGLE draft"),
    "no fc": ({}, without("fc.weight"), "no fc.weight"),
    "missing tensor": ({}, without("midlayer.mlp.up_proj.weight"), "midlayer.mlp.up_proj.weight is missing"),
    "missing map": ({}, without("d2t"), "d2t is missing"),
    "fc bias": ({}, stray("fc.bias"), r"fc.bias is \[2\]; config.json calls for \[32\]"),
    "fc bias denied": ({"bias": False}, stray("fc.bias", (32,)), "bias = False, but tensor fc.bias is in the file"),
    "fc bias missing": ({"bias": True}, conversion.tensors(), "bias = True, but tensor fc.bias is missing"),
    "qkv bias missing": ({"qkv_bias": True}, conversion.tensors(), "qkv_bias"),
    "attention bias": ({}, stray("midlayer.self_attn.q_proj.bias"), r"q_proj.bias is \[2\]"),
    "q norm": ({}, stray("midlayer.self_attn.q_norm.weight"), r"q_norm.weight is \[2\]"),
    "second layer": ({}, stray("layers.1.mlp.up_proj.weight"), "holds 2 decoder layers"),
    "lost layer": ({"num_hidden_layers": 2}, conversion.tensors(), "num_hidden_layers = 2"),
    "gap": ({}, stray("midlayer.2.mlp.up_proj.weight"), "midlayer.2.mlp.up_proj.weight: a part of a layer"),
    "fc_norm short": ({}, stray("fc_norm.0.weight", (32,)), "fc_norm.1.weight is missing"),
    "norm without fc": (
        {"eagle_config": {"use_aux_hidden_state": False}},
        {**without("fc.weight"), "input_norm.weight": np.ones(32, np.float32)},
        "norms of the features and no fc.weight",
    ),
    "last norm": ({}, without("norm.weight"), "norm.weight is missing"),
    "input norm": ({}, without("midlayer.input_layernorm.weight"), "midlayer.input_layernorm.weight is missing"),
    "feature norm": ({}, without("midlayer.hidden_norm.weight"), "midlayer.hidden_norm.weight is missing"),
    "parallel": ({}, stray("mask_hidden"), "P-EAGLE"),
    "latent": ({}, stray("midlayer.self_attn.q_a_proj.weight"), "MLA"),
    "experts": ({}, stray("midlayer.mlp.experts.0.up_proj.weight"), "mixture of experts"),
    "sinks": ({}, stray("midlayer.self_attn.sinks"), "sinks"),
    "extra norm": ({}, stray("enorm.weight"), "extra norms"),
    "rotation": ({"partial_rotary_factor": 0.2}, conversion.tensors(), "partial_rotary_factor = 0.2"),
    "longrope": ({"rope_scaling": {"type": "longrope"}}, conversion.tensors(), "longrope"),
    "modelopt's other fc": (
        {"eagle_config": {"use_aux_hidden_state": False}},
        {**conversion.tensors(), "fc.weight": np.ones((32, 64), np.float32)},
        "use_aux_hidden_state = False, but fc.weight fuses 2",
    ),
    "unknown": ({}, stray("surprise.weight"), "surprise.weight is none that"),
    "two features": ({}, {**conversion.tensors(), "fc.weight": np.ones((32, 64), np.float32)}, "fuses 2 features"),
    "four features": (
        {"eagle_config": None},
        {**conversion.tensors(), "fc.weight": np.ones((32, 128), np.float32)},
        "name them with --target-layers",
    ),
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
    "layer that no target has": (
        {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [2, 5, 1 << 40]}},
        conversion.tensors(),
        "--target-layers names others",
    ),
    "one feature of three": (
        {},
        {**conversion.tensors(), "fc.weight": np.ones((32, 32), np.float32)},
        "fuses 1 features, but 3 layers",
    ),
    "long word": ({"hidden_act": "x" * 5000}, conversion.tensors(), "only silu"),
    "long number": ({"hidden_size": "9" * 5000}, conversion.tensors(), "expected a positive number"),
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
    assert len(str(caught.value)) < 500
    assert out.read_bytes() == b"before"
    assert list(out.parent.iterdir()) == [out]


EAGLE1 = {
    "input norm": ("layers.0.input_layernorm.weight", (32,), "an input norm in the first layer of EAGLE-1"),
    "hass input norm": ("hidden_layernorm.weight", (32,), "an input norm in the first layer of EAGLE-1"),
    "embeddings": ("embed_tokens.weight", (41, 32), r"embed_tokens.weight is \[41, 32\]"),
    "fc": ("fc.weight", (32, 96), r"fc.weight is \[32, 96\]; config.json calls for \[32, 64\]"),
    "unknown": ("surprise", (1,), "surprise is none that"),
}


@pytest.mark.parametrize("case", list(EAGLE1))
def test_what_eagle1_has_no_place_for_is_refused(tmp_path, case):
    name, shape, words = EAGLE1[case]
    draft = CASES["vicuna"]()
    folder = write_folder(tmp_path / "draft", draft.config, {**draft.state, name: np.ones(shape, np.float32)})
    with pytest.raises(CheckpointError, match=words):
        convert(folder, None, tmp_path / "head.gguf")
    assert not (tmp_path / "head.gguf").exists()


@pytest.mark.parametrize("given", [Overrides(norm_output="fed-back"), Overrides(norm_before_residual=False)])
def test_what_the_user_decides_for_eagle3_is_refused_for_eagle1(tmp_path, given):
    draft = CASES["vicuna"]()
    folder = write_folder(tmp_path / "draft", draft.config, draft.state)
    with pytest.raises(InputError, match="has no use for EAGLE-1"):
        convert(folder, None, tmp_path / "head.gguf", "f32", given)


def test_weights_that_are_nan_leave_nothing_behind(tmp_path):
    draft = CASES["qwen2_eagle1"]()
    bad = {**draft.state, "layers.0.self_attn.k_proj.bias": np.full(16, np.inf, np.float32)}
    folder = write_folder(tmp_path / "draft", draft.config, bad)
    with pytest.raises(CheckpointError, match=r"k_proj.bias holds 16 values that are NaN or infinite"):
        convert(folder, None, tmp_path / "head.gguf")
    assert [path.name for path in tmp_path.iterdir()] == ["draft"]
