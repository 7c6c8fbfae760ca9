"""start.py, shape.py and export.py: first weights, sizes, and the checkpoint that comes out."""

import json

import gguf
import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="training needs torch")

import training  # noqa: E402 - needs torch
from llama_eagle.conversion.converter import convert, interleave_rope  # noqa: E402
from llama_eagle.conversion.layer_ids import read_layer_ids  # noqa: E402
from llama_eagle.errors import CheckpointError, InputError, ModelError  # noqa: E402
from llama_eagle.train import export  # noqa: E402
from llama_eagle.train.shape import shape_for  # noqa: E402
from llama_eagle.train.start import halves, head_of_checkpoint, head_of_target, with_vocabulary  # noqa: E402
from reference import Eagle3  # noqa: E402
from tiny import write_head_gguf  # noqa: E402

IDS = np.arange(0, 272, 2)
SCALES = np.array([1.0, 2.0], np.float32)


@pytest.fixture
def target(tiny_target):
    return tiny_target("llama")


def test_halves_undo_the_converters_pairs():
    rows = np.arange(48, dtype=np.float32).reshape(24, 2)
    np.testing.assert_array_equal(interleave_rope(halves(rows, 8), 3, 8), rows)


def test_a_head_has_its_targets_sizes(target):
    shape = shape_for(target.path)
    assert (shape.n_embd, shape.n_head, shape.n_head_kv, shape.head_dim, shape.n_ff) == (64, 4, 2, 16, 96)
    assert (shape.n_vocab, shape.n_ctx, shape.rotary_base) == (272, 512, 10000.0)
    assert shape.layers == (2, 3)
    assert shape_for(target.path, (5, 1, 6)).layers == (1, 5, 6)
    for layers in ((1, 1), (7,), (-1, 2)):
        with pytest.raises(InputError, match="--layers"):
            shape_for(target.path, layers)


@pytest.mark.parametrize("arch", ["qwen2", "gemma2", "deepseek2", "llama4"])
def test_other_architectures_get_a_head(arch, tiny_target):
    path = tiny_target(arch).path
    shape = shape_for(path)
    head = head_of_target(path, shape, IDS, 0)
    assert shape.n_head % shape.n_head_kv == 0
    assert all(torch.isfinite(weight).all() for weight in head.parameters())


def test_a_head_begins_as_its_targets_last_layer(target):
    head = head_of_target(target.path, shape_for(target.path), IDS, 0)
    weights = {name: value.numpy() for name, value in head.state_dict().items()}
    own = target.tensors
    np.testing.assert_array_equal(weights["lm_head.weight"], own["output.weight"][IDS])
    np.testing.assert_array_equal(weights["norm.weight"], own["output_norm.weight"])
    np.testing.assert_array_equal(weights["midlayer.mlp.up_proj.weight"], own["blk.5.ffn_up.weight"])
    key = weights["midlayer.self_attn.k_proj.weight"]
    np.testing.assert_array_equal(interleave_rope(key[:, 64:], 2, 16), own["blk.5.attn_k.weight"])
    np.testing.assert_array_equal(weights["fc.weight"][:, 64:], np.eye(64))
    np.testing.assert_array_equal(head.embeddings.numpy(), own["token_embd.weight"])


def test_what_is_exported_is_read_again(target, tmp_path):
    shape = shape_for(target.path)
    head = head_of_target(target.path, shape, IDS, 0)
    export.write_checkpoint(tmp_path / "head", head, SCALES, "tiny")
    again = head_of_checkpoint(target.path, shape, tmp_path / "head", SCALES)
    assert again.ids.tolist() == IDS.tolist()
    for (name, mine), theirs in zip(head.state_dict().items(), again.state_dict().values(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-2, atol=1e-3, msg=name)
    config = json.loads((tmp_path / "head" / "config.json").read_text())
    assert read_layer_ids(config, {}).ids == read_layer_ids({}, config["eagle_config"]).ids == shape.layers
    report = convert(tmp_path / "head", target.path, tmp_path / "head.gguf")
    assert (report.arch, report.version, tuple(report.target_layers)) == ("eagle3", "3", shape.layers)
    other = shape_for(target.path, (1, 2, 4))
    with pytest.raises(CheckpointError, match=r"fc\.weight is \[64, 128\], a head for this target has \[64, 192\]"):
        head_of_checkpoint(target.path, other, tmp_path / "head", SCALES)


def test_another_draft_vocabulary_keeps_the_rows_of_known_tokens(target):
    shape = shape_for(target.path)
    head = head_of_target(target.path, shape, IDS, 0)
    with torch.no_grad():
        head.lm_head.weight.mul_(3.0)
        head.fc.weight.add_(1.0)
    other = with_vocabulary(head, target.path, np.arange(30, 60))
    factors = np.where(np.arange(30, 60) % 2, 1.0, 3.0)[:, None]
    expected = target.tensors["output.weight"][30:60] * factors
    np.testing.assert_allclose(other.lm_head.weight.detach().numpy(), expected, rtol=1e-6)
    assert other.ids.tolist() == list(range(30, 60))
    torch.testing.assert_close(other.fc.weight, head.fc.weight)


def test_scales_go_into_the_exported_weights():
    head = training.random_head()
    features = np.random.default_rng(0).standard_normal((3, 64))
    state = {name: value.float().numpy() for name, value in export.tensors(head, SCALES).items()}
    state["d2t"] = state["d2t"].astype(np.int64)
    scaled = (features.reshape(3, 2, 32) / SCALES[:, None]).reshape(3, 64)
    mine = head.fc(torch.from_numpy(scaled).float()).detach().numpy()
    sizes = training.numpy_net(head).sizes
    np.testing.assert_allclose(
        Eagle3(state, sizes, head.embeddings.numpy()).encode(features), mine, rtol=0.05, atol=0.02
    )


def test_what_can_have_no_head_is_refused(tmp_path, tiny_pair):
    with pytest.raises(ModelError, match="itself a draft"):
        shape_for(write_head_gguf(tmp_path / "head.gguf", tiny_pair.head, tiny_pair.state))
    (tmp_path / "text.gguf").write_text("hello, I am no model")
    with pytest.raises(ModelError, match=r"text\.gguf"):
        shape_for(tmp_path / "text.gguf")
    writer = gguf.GGUFWriter(tmp_path / "plamo.gguf", "plamo2")
    for key, value in (("block_count", 4), ("embedding_length", 64), ("vocab_size", 272)):
        writer.add_uint32(f"plamo2.{key}", value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(ModelError, match="does not give the inputs of its layers"):
        shape_for(tmp_path / "plamo.gguf")
