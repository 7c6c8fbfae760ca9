"""checkpoint_info.py: a checkpoint described as its GGUF will be, and what stays open without a target."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import conversion
from llama_eagle.checkpoint_info import folder_side, read_checkpoint_head
from llama_eagle.conversion.converter import convert
from llama_eagle.errors import CheckpointError, ModelError
from llama_eagle.head_info import read_head
from llama_eagle.target_side import read_target_side
from tiny import write_folder

SAME = ("arch", "version", "layout", "features", "target_hidden", "rule", "n_vocab", "n_draft", "map_end", "switches")


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return conversion.write_target(tmp_path / "target.gguf")


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"norm_before_residual": True},
        {"eagle_config": None, "eagle_aux_hidden_state_layer_ids": [2, 6, 12]},
        {"norm_output": True, "eagle_config": {"eagle_aux_hidden_state_layer_ids": [3, 6, 9]}},
        {"eagle_config": None},
        {"rope_scaling": {"rope_type": "linear", "factor": 4.0}},
        {"rope_scaling": {"rope_type": "dynamic", "factor": 4.0}},
        {"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}},
    ],
)
def test_a_checkpoint_is_what_its_gguf_says(tmp_path: Path, target: Path, changes: dict[str, object]) -> None:
    folder = write_folder(tmp_path / "draft", conversion.config(**changes), conversion.tensors())
    convert(folder, target, tmp_path / "head.gguf", "f32")
    before, after = read_checkpoint_head(folder, read_target_side(target)), read_head(tmp_path / "head.gguf")
    for name in SAME:
        assert getattr(before, name) == getattr(after, name), name
    assert before.shares == after.shares == ("embeddings",)
    assert set(before.choices) == set(after.choices)
    assert before.rope == after.rope
    ours, theirs = before.sizes, after.sizes
    assert replace(ours, bytes=0, types={}) == replace(theirs, bytes=0, types={})


def test_eagle_1_needs_no_target(tmp_path: Path) -> None:
    shapes = {
        "fc.weight": (32, 64),
        **{f"layers.0.self_attn.{part}_proj.weight": (rows, 32) for part, rows in (("q", 32), ("k", 16), ("v", 16))},
        "layers.0.self_attn.o_proj.weight": (32, 32),
        "layers.0.post_attention_layernorm.weight": (32,),
        **{f"layers.0.mlp.{part}_proj.weight": (48, 32) for part in ("gate", "up")},
        "layers.0.mlp.down_proj.weight": (32, 48),
    }
    config = {
        "architectures": ["LlamaForCausalLM"], "hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 2,
        "num_key_value_heads": 1, "num_hidden_layers": 1, "vocab_size": 40, "rms_norm_eps": 1e-5, "bias": False,
        "rope_theta": 10000.0, "max_position_embeddings": 64,
    }  # fmt: skip
    weights = {name: np.ones(shape, np.float32) for name, shape in shapes.items()}
    head = read_checkpoint_head(write_folder(tmp_path / "draft", config, weights), None)
    assert (head.arch, head.version, head.features, head.target_hidden) == ("eagle", "1", (-1,), 32)
    assert (head.shares, head.map_end, head.switches) == (("embeddings", "output head"), None, ())


def test_without_the_target_layers_stay_open(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "draft", conversion.config(eagle_config=None), conversion.tensors())
    head = read_checkpoint_head(folder, None)
    assert head.features == ()
    assert any("-m" in note for note in head.notes)


def test_what_cannot_be_converted_is_told(tmp_path: Path, target: Path) -> None:
    extra = write_folder(tmp_path / "a", conversion.config(), {**conversion.tensors(), "odd": np.ones(3, np.float32)})
    with pytest.raises(CheckpointError, match="tensor odd"):
        read_checkpoint_head(extra, None)
    wide = write_folder(tmp_path / "b", conversion.config(target_hidden_size=64), conversion.tensors())
    with pytest.raises(ModelError, match="hidden size 64"):
        read_checkpoint_head(wide, read_target_side(target))


def test_a_folder_is_a_target_without_tokens(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(
        '{"model_type": "qwen3", "num_hidden_layers": 4, "hidden_size": 8, "vocab_size": 9}'
    )
    side = folder_side(tmp_path)
    assert (side.arch, side.n_layer, side.n_embd, side.n_vocab, side.vocabulary) == ("qwen3", 4, 8, 9, None)


def test_a_tied_folder_shares_its_head(tmp_path: Path) -> None:
    config = conversion.config(tie_word_embeddings=True, draft_vocab_size=conversion.VOCAB)
    shared = ("lm_head.weight", "embed_tokens.weight", "d2t", "t2d")
    weights = {name: value for name, value in conversion.tensors().items() if name not in shared}
    draft = write_folder(tmp_path / "draft", config, weights)
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / "config.json").write_text(
        f'{{"num_hidden_layers": {conversion.LAYERS}, "hidden_size": {conversion.HIDDEN}, '
        f'"vocab_size": {conversion.VOCAB}, "tie_word_embeddings": true}}'
    )
    head = read_checkpoint_head(draft, folder_side(tmp_path / "target"))
    assert head.shares == ("embeddings", "output head")
