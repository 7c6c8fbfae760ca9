"""spec.py: sizes and switches of a config, wherever they stand, and what is refused by name."""

import pytest

from conversion import config
from llama_eagle.conversion.layer_ids import IDS
from llama_eagle.conversion.spec import Attention, read_spec
from llama_eagle.errors import CheckpointError


def test_defaults_are_those_of_llama_configs_and_are_noted():
    spec = read_spec(
        config(head_dim=None, num_key_value_heads=None, draft_vocab_size=None, rope_theta=None, rms_norm_eps=None)
    )
    assert (spec.attention, spec.draft_vocab, spec.layers) == (Attention(4, 4, 8), spec.vocab, 1)
    assert (spec.attention.queries, spec.attention.keys) == (32, 32)
    assert (spec.rope.theta, spec.eps) == (10000.0, 1e-6)
    assert len(spec.notes) == 2


def test_nested_body_switches_and_verifier_of_speculators_and_modelopt_are_read():
    outside = ("draft_vocab_size", "architectures")
    body = {key: value for key, value in config(eagle_config=None).items() if key not in outside}
    spec = read_spec(
        {
            "transformer_layer_config": body, "draft_vocab_size": 24, "norm_before_residual": True, IDS: [2, 6, 9],
            "speculators_config": {"verifier": {"name_or_path": "owner/name"}},
        }
    )  # fmt: skip
    assert (spec.hidden, spec.draft_vocab, spec.switches.norm_before_residual) == (32, 24, True)
    assert spec.layer_ids is not None
    assert (spec.layer_ids.ids, spec.verifier) == ((2, 6, 9), "owner/name")
    switches = read_spec(config(eagle_config={"norm_before_fc": True, "return_hidden_post_norm": False})).switches
    assert (switches.norm_before_fc, switches.return_hidden_post_norm, switches.fc_norm) == (True, False, None)


def test_a_window_that_nothing_applies_is_noted():
    assert any("sliding_window" in note for note in read_spec(config(sliding_window=16)).notes)
    assert not any("sliding_window" in note for note in read_spec(config(sliding_window=4096)).notes)
    assert not any("sliding_window" in n for n in read_spec(config(sliding_window=16, use_sliding_window=False)).notes)


def test_what_eagle1_lacks_by_nature_is_refused_for_eagle3_alone():
    settings = config(eagle_config={"use_input_layernorm_in_first_layer": False, "use_last_layernorm": False})
    read_spec(settings, "eagle")
    with pytest.raises(CheckpointError, match="input norm"):
        read_spec(settings, "eagle3")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"hidden_size": None}, "no hidden_size"),
        ({"intermediate_size": None}, "no intermediate_size"),
        ({"num_attention_heads": "4"}, "num_attention_heads = '4'"),
        ({"vocab_size": -1}, "vocab_size = -1"),
        ({"draft_vocab_size": 41}, "draft_vocab_size 41"),
        ({"num_key_value_heads": 3}, "no such attention"),
        ({"head_dim": 7}, "no such attention"),
        ({"rms_norm_eps": float("nan")}, "rms_norm_eps"),
        ({"rms_norm_eps": 1e300}, "rms_norm_eps"),
        ({"num_hidden_layers": 0}, "num_hidden_layers = 0"),
        ({"hidden_act": "gelu"}, "gelu"),
        ({"eagle_config": [1]}, "expected an object"),
        ({"norm_before_fc": "yes"}, "true or false"),
        ({"tie_word_embeddings": 1}, "true or false"),
        ({"eagle_config": {"use_mtp_layernorm": True}}, "eagle_config.use_mtp_layernorm"),
        ({"use_last_layernorm": False}, "last norm"),
        ({"use_sliding_window": True}, "sliding window"),
        ({"layer_types": ["sliding_attention"]}, "sliding"),
    ],
)
def test_a_config_that_cannot_be_converted_is_refused_by_name(change, words):
    with pytest.raises(CheckpointError, match=words):
        read_spec(config(**change))
