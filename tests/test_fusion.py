"""fusion.py: how many features a draft fuses and how wide they are, with a target and without."""

import numpy as np
import pytest

import conversion
from llama_eagle.conversion.checkpoint import Checkpoint
from llama_eagle.conversion.draft_plan import read_draft
from llama_eagle.conversion.fusion import TargetNeededError, find_fusion
from llama_eagle.conversion.overrides import Overrides
from llama_eagle.conversion.target_info import read_target
from llama_eagle.errors import CheckpointError, ModelError
from tiny import write_folder

IDS = "eagle_aux_hidden_state_layer_ids"
NESTED = {IDS: [1, 5, 8]}


def fuse(tmp_path, columns=96, overrides=Overrides(), target=None, **changes):  # noqa: B008 - frozen
    weights = conversion.tensors()
    del weights["fc.weight"]
    if columns:
        weights["fc.weight"] = np.ones((32, columns), np.float32)
    source = Checkpoint(write_folder(tmp_path / "draft", conversion.config(**changes), weights))
    found = find_fusion(source, *read_draft(source), target, overrides)
    return found.width, found.layers.ids


def test_the_width_is_the_targets_or_the_configs_or_follows_from_the_ids(tmp_path):
    target = read_target(conversion.write_hf_target(tmp_path / "hf", hidden_size=48))
    assert fuse(tmp_path, 144, target=target) == (48, (2, 6, 9))
    assert fuse(tmp_path, 144, target_hidden_size=48) == (48, (2, 6, 9))
    assert fuse(tmp_path, 144) == (48, (2, 6, 9))
    assert fuse(tmp_path, 144, Overrides(target_layers=(7, 3)), eagle_config=None) == (72, (7, 3))


def test_without_ids_or_width_the_target_is_needed(tmp_path):
    for changes in ({"eagle_config": None}, {"eagle_config": None, "target_hidden_size": 32}):
        with pytest.raises(TargetNeededError, match="--target"):
            fuse(tmp_path, **changes)
    target = read_target(conversion.write_hf_target(tmp_path / "hf"))
    assert fuse(tmp_path, eagle_config=None, target=target) == (32, (2, 6, 9))


def test_widths_that_do_not_divide_are_refused(tmp_path):
    with pytest.raises(CheckpointError, match="100 columns are no whole number of features of 32"):
        fuse(tmp_path, 100, target_hidden_size=32)
    target = read_target(conversion.write_hf_target(tmp_path / "hf"))
    with pytest.raises(ModelError, match="hidden size 48, this target has 32"):
        fuse(tmp_path, 144, target_hidden_size=48, target=target)


def test_without_fc_there_is_one_feature_of_the_drafts_width(tmp_path):
    last = {"use_aux_hidden_state": False}
    assert fuse(tmp_path, 0, eagle_config=last) == (32, (-1,))
    assert fuse(tmp_path, 0, eagle_config={**last, IDS: [1, 5, 8]}) == (32, (-1,))
    assert fuse(tmp_path, 0, Overrides(target_layers=(12,)), eagle_config=NESTED) == (32, (12,))
    with pytest.raises(CheckpointError, match=r"no fc\.weight, and its config does not say"):
        fuse(tmp_path, 0)
    with pytest.raises(CheckpointError, match="must be 32 wide, the target's is 48"):
        fuse(tmp_path, 0, eagle_config=last, target_hidden_size=48)
