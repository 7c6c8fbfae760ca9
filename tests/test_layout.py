"""layout.py: detection by tensors and config together; tests/tiny/layouts.py has every layout in full."""

import numpy as np
import pytest

import conversion
from llama_eagle.conversion.checkpoint import Checkpoint
from llama_eagle.conversion.layout import find_layout
from llama_eagle.errors import CheckpointError
from tiny import write_folder
from tiny.layouts import CASES


def layout_of(tmp_path, names, config=None, shapes=None):
    weights = {name: np.ones((shapes or {}).get(name, (2, 2)), np.float32) for name in names}
    return find_layout(Checkpoint(write_folder(tmp_path / "draft", config or {}, weights)))


@pytest.mark.parametrize("architecture", ["LlamaForCausalLMEagle3", "LlamaForCausalLM", "Nonsense", None])
def test_the_architectures_string_decides_nothing(tmp_path, architecture):
    draft = CASES["vicuna"]()
    config = {**draft.config, "architectures": [architecture], "draft_vocab_size": 24}
    assert find_layout(Checkpoint(write_folder(tmp_path / "a", config, draft.state))).arch == "eagle"
    config = conversion.config(architectures=[architecture], draft_vocab_size=None)
    assert find_layout(Checkpoint(write_folder(tmp_path / "b", config, conversion.tensors()))).arch == "eagle3"


def test_layers_0_over_both_inputs_is_eagle3_even_without_its_norm(tmp_path):
    names = ["fc.weight", "layers.0.self_attn.q_proj.weight", "layers.0.self_attn.o_proj.weight"]
    assert layout_of(tmp_path, names).arch == "eagle"
    assert layout_of(tmp_path, names, shapes={names[1]: (2, 4)}).arch == "eagle3"


def test_layers_are_counted(tmp_path):
    found = layout_of(tmp_path, [f"{prefix}x" for prefix in ("midlayer.", "layers.1.", "layers.2.", "layers.4.")])
    assert found.prefixes == ("midlayer.", "layers.1.", "layers.2.")


@pytest.mark.parametrize(
    "names",
    [
        ["model.layers.0.self_attn.q_proj.weight", "lm_head.weight"],
        ["layers.0.self_attn.q_proj.weight"],
        ["transformer.h.0.attn.weight", "fc.weight"],
        ["x"],
    ],
)
def test_what_is_no_draft_is_refused(tmp_path, names):
    with pytest.raises(CheckpointError, match="not an EAGLE draft"):
        layout_of(tmp_path, names)
