"""spec.py: every spelling of a config, and what is refused by name."""

import numpy as np
import pytest

from conversion import config
from llama_eagle.errors import CheckpointError
from llama_eagle.spec import IDS, Rope, choose_layers, read_spec


def ids(top=None, nested=None, n_layer=36):
    settings = config(eagle_config=None)
    if top is not None:
        settings[IDS] = top
    if nested is not None:
        settings["eagle_config"] = {IDS: nested}
    return choose_layers(read_spec(settings), n_layer)


@pytest.mark.parametrize(
    ("top", "nested", "expected", "words"),
    [
        (None, None, (2, 18, 33), "default"),
        ([2, 18, 36], None, (2, 18, 36), "inputs"),
        ([30, 2, 18], None, (2, 18, 30), "inputs"),
        (None, [1, 17, 33], (2, 18, 34), "+1"),
        (None, [32, 1, 17], (2, 18, 33), "+1"),
        (None, [2, 30, 34], (2, 30, 34), "ambiguous"),
        ([3, 18, 34], [1, 17, 33], (3, 18, 34), "top-level"),
        (None, [], (2, 18, 33), "default"),
    ],
)
def test_layer_ids_follow_the_rule_of_their_place(top, nested, expected, words):
    chosen = ids(top, nested)
    assert chosen.ids == expected
    assert words in chosen.rule


@pytest.mark.parametrize(
    ("top", "n_layer", "words"),
    [
        ([2, 18], 36, "2 features"),
        ([2, 18, 37], 36, "36 layers"),
        ([2, 2, 18], 36, "do not fit"),
        ([-1, 2, 18], 36, "do not fit"),
        ([2, "3", 18], 36, "list of layer numbers"),
        ([2, True, 18], 36, "list of layer numbers"),
        (None, 4, "do not fit"),
    ],
)
def test_layer_ids_that_fit_no_target_are_refused(top, n_layer, words):
    with pytest.raises(CheckpointError, match=words):
        ids(top, n_layer=n_layer)


def test_defaults_are_those_of_llama_configs_and_are_noted():
    spec = read_spec(
        config(head_dim=None, num_key_value_heads=None, draft_vocab_size=None, rope_theta=None, rms_norm_eps=None)
    )
    assert (spec.head_dim, spec.kv_heads, spec.draft_vocab) == (8, 4, spec.vocab)
    assert (spec.rope.theta, spec.eps) == (10000.0, 1e-6)
    assert len(spec.notes) == 2


def test_nested_body_and_switches_of_speculators_and_modelopt_are_read():
    body = {
        key: value
        for key, value in config(eagle_config=None).items()
        if key not in ("draft_vocab_size", "architectures")
    }
    spec = read_spec({"transformer_layer_config": body, "draft_vocab_size": 24, "norm_before_residual": True})
    assert (spec.hidden, spec.draft_vocab, spec.norm_before_residual) == (32, 24, True)
    assert read_spec(config(eagle_config={"norm_before_fc": True})).norm_before_fc is True


def test_rope_spellings():
    llama3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
    assert read_spec(config(rope_scaling={"type": "linear", "factor": 4})).rope == Rope("linear", 500.0, 4.0)
    expected = Rope("llama3", 7.0, 8.0, 1.0, 4.0, 8192)
    assert read_spec(config(rope_parameters={"rope_type": "llama3", "rope_theta": 7, **llama3})).rope == expected
    assert read_spec(config(rope_scaling={"rope_type": "default"})).rope.kind == "none"


def test_llama3_factors_keep_fast_frequencies_and_stretch_slow_ones():
    factors = Rope("llama3", 500000.0, 8.0, 1.0, 4.0, 8192).factors(128)
    assert factors.shape == (64,)
    assert factors.dtype == np.float32
    assert factors[0] == 1.0
    assert factors[-1] == 8.0
    assert (np.diff(factors) >= 0).all()
    assert ((factors > 1) & (factors < 8)).any()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"hidden_size": None}, "no hidden_size"),
        ({"intermediate_size": None}, "no intermediate_size"),
        ({"num_attention_heads": "4"}, "num_attention_heads = '4'"),
        ({"vocab_size": -1}, "vocab_size = -1"),
        ({"num_key_value_heads": 3}, "no such attention"),
        ({"head_dim": 7}, "no such attention"),
        ({"rms_norm_eps": float("nan")}, "rms_norm_eps"),
        ({"num_hidden_layers": 2}, "num_hidden_layers = 2"),
        ({"hidden_act": "gelu"}, "gelu"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 2}}, "yarn"),
        ({"rope_scaling": {"rope_type": "default", "mrope_section": [1, 2]}}, "mrope"),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 2}}, "low_freq_factor"),
        ({"rope_scaling": "linear"}, "expected an object"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
        ({"fc_norm": True}, "fc_norm"),
        ({"norm_output": True}, "norm_output"),
        ({"eagle_config": {"use_aux_hidden_state": False}}, "eagle_config.use_aux_hidden_state"),
        ({"eagle_config": [1]}, "expected an object"),
        ({"norm_before_fc": "yes"}, "true or false"),
        ({"layer_types": ["sliding_attention"]}, "sliding"),
    ],
)
def test_a_config_that_cannot_be_converted_is_refused_by_name(change, words):
    with pytest.raises(CheckpointError, match=words):
        read_spec(config(**change))
