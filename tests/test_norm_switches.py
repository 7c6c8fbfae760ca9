"""norm_switches.py: keys that mean different things to different producers, and what a user may say to them."""

import pytest

import conversion
from llama_eagle.conversion.checkpoint import Checkpoint
from llama_eagle.conversion.layout import find_layout
from llama_eagle.conversion.norm_switches import decide_norms
from llama_eagle.conversion.overrides import Overrides
from llama_eagle.conversion.spec import read_spec
from llama_eagle.errors import CheckpointError, InputError
from tiny import write_folder

PRODUCERS = {  # config and prefix that mark each one
    "safeailab": ({"architectures": ["LlamaForCausalLM"], "eagle_config": None}, "midlayer."),
    "specforge": ({}, "midlayer."),
    "modelopt": ({"eagle_config": {"use_last_layernorm": True}}, "midlayer."),
    "speculators": ({"eagle_config": None}, "layers.0."),
}


def decide(tmp_path, producer, overrides=Overrides(), weights=None, **changes):  # noqa: B008 - frozen
    marks, prefix = PRODUCERS[producer]
    settings = conversion.config(**{**marks, **changes})
    source = Checkpoint(write_folder(tmp_path / "draft", settings, weights or conversion.tensors(prefix)))
    layout = find_layout(source)
    assert layout.name == producer
    return decide_norms(source, layout, read_spec(source.config), overrides)


@pytest.mark.parametrize(
    ("producer", "said", "on", "words"),
    [
        ("speculators", True, True, ""),
        ("speculators", None, False, ""),
        ("specforge", True, False, "before-head"),
        ("specforge", False, False, "no norm before the head"),
        ("specforge", None, False, ""),
        ("modelopt", True, True, "fed-back"),
        ("safeailab", True, True, "fed-back"),
        ("safeailab", False, False, ""),
    ],
)
def test_norm_output_is_read_by_its_producers_rule(tmp_path, producer, said, on, words):
    output = decide(tmp_path, producer, norm_output=said).output
    assert output.on == on
    assert (words in output.rule) if words else output.rule == ""


def test_tensorrts_name_for_it_is_unambiguous(tmp_path):
    nested = {"return_hidden_post_norm": True, "use_last_layernorm": True}
    assert decide(tmp_path, "modelopt", eagle_config=nested).output.on


@pytest.mark.parametrize(("word", "on"), [("fed-back", True), ("before-head", False)])
def test_the_user_decides_norm_output(tmp_path, word, on):
    for producer in PRODUCERS:
        output = decide(tmp_path, producer, Overrides(norm_output=word), norm_output=not on).output
        assert (output.on, word in output.rule) == (on, True)
    with pytest.raises(InputError, match="norm_output 'maybe'"):
        Overrides(norm_output="maybe")


def test_a_missing_norm_before_residual_is_never_silent_where_it_is_open(tmp_path):
    residual = decide(tmp_path, "speculators").residual
    assert not residual.on
    assert "--norm-before-residual" in residual.rule
    assert decide(tmp_path, "specforge").residual.rule == ""
    assert decide(tmp_path, "speculators", norm_before_residual=True).residual.on
    given = decide(tmp_path, "speculators", Overrides(norm_before_residual=False), norm_before_residual=True)
    assert not given.residual.on
    assert "given" in given.residual.rule


def test_config_and_tensors_must_agree_on_norms_of_the_features(tmp_path):
    weights = conversion.tensors()
    with pytest.raises(CheckpointError, match=r"norm_before_fc = True, but tensor input_norm.weight is missing"):
        decide(tmp_path, "specforge", norm_before_fc=True)
    with pytest.raises(CheckpointError, match=r"fc_norm = True, but tensor fc_norm.0.weight is missing"):
        decide(tmp_path, "specforge", fc_norm=True)
    both = {**weights, "input_norm.weight": weights["norm.weight"], "fc_norm.0.weight": weights["norm.weight"]}
    with pytest.raises(CheckpointError, match=r"norm_before_fc = False, but tensor input_norm.weight is in the file"):
        decide(tmp_path, "specforge", weights=both, norm_before_fc=False)
    with pytest.raises(CheckpointError, match="both in the file"):
        decide(tmp_path, "specforge", weights=both)
