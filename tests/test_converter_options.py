"""converter.py: what a checkpoint leaves to its target or to the user: matrices, layers, widths, rope."""

import json

import gguf
import numpy as np
import pytest

import conversion
from llama_eagle.conversion.converter import convert
from llama_eagle.conversion.overrides import Overrides
from llama_eagle.errors import CheckpointError, InputError, ModelError
from tiny import write_folder
from tiny.layouts import CASES, VOCAB

FULL = conversion.tensors(n_draft_vocab=conversion.VOCAB)
PLAIN = conversion.tensors()
IDS = np.flatnonzero(PLAIN["t2d"])
TARGET = conversion.target_matrices()
EMBEDDINGS, HEAD = TARGET["model.embed_tokens.weight"], TARGET["lm_head.weight"]


@pytest.fixture
def target(tmp_path):
    return conversion.write_target(tmp_path / "target.gguf")


def without(weights, *names):
    return {name: value for name, value in weights.items() if name not in names}


def head(tmp_path, target, weights, overrides=Overrides(), **changes):  # noqa: B008 - frozen
    """The report, the tensors and the metadata of a converted head."""
    draft = write_folder(tmp_path / "draft", conversion.config(**changes), weights)
    report = convert(draft, target, tmp_path / "head.gguf", "f32", overrides)
    reader = gguf.GGUFReader(report.out)
    tensors = {tensor.name: tensor.data for tensor in reader.tensors}
    return report, tensors, {key: field.contents() for key, field in reader.fields.items()}


def test_a_missing_head_is_taken_from_the_target_through_the_map(tmp_path, target):
    report, tensors, _ = head(tmp_path, target, without(PLAIN, "lm_head.weight"))
    np.testing.assert_array_equal(tensors["output.weight"], HEAD[IDS])
    assert any("the target's head copied, 24 rows by d2t" in note for note in report.notes)
    tied = conversion.write_target(tmp_path / "tied.gguf", head=False)
    _, tensors, _ = head(tmp_path, tied, without(PLAIN, "lm_head.weight"))
    np.testing.assert_array_equal(tensors["output.weight"], EMBEDDINGS[IDS])
    folder = conversion.write_hf_target(tmp_path / "hf")
    _, tensors, meta = head(tmp_path, folder, without(PLAIN, "lm_head.weight"))
    np.testing.assert_array_equal(tensors["output.weight"], HEAD[IDS])
    assert meta["tokenizer.ggml.model"] == "none"


def test_a_missing_head_over_the_full_vocabulary_is_shared(tmp_path, target):
    for changes in ({"draft_vocab_size": None}, {"draft_vocab_size": conversion.VOCAB}):
        report, tensors, _ = head(tmp_path, target, without(FULL, "lm_head.weight"), **changes)
        assert "output.weight" not in tensors
        assert any("target's is the head" in note for note in report.notes)


def test_a_map_that_changes_nothing_is_left_out(tmp_path, target):
    weights = {**FULL, "d2t": np.zeros(conversion.VOCAB, np.int64)}
    assert "d2t" not in head(tmp_path, target, weights, draft_vocab_size=conversion.VOCAB)[1]


def test_a_tied_head_is_the_drafts_embeddings_or_else_the_targets(tmp_path, target):
    weights, tied = without(FULL, "lm_head.weight"), {"draft_vocab_size": None, "tie_word_embeddings": True}
    own = FULL["lm_head.weight"]
    _, tensors, _ = head(tmp_path, target, {**weights, "embed_tokens.weight": own}, **tied)
    np.testing.assert_array_equal(tensors["output.weight"], own)
    np.testing.assert_array_equal(tensors["token_embd.weight"], own)
    _, tensors, _ = head(tmp_path, target, weights, **tied)  # this target's head differs from its embeddings
    np.testing.assert_array_equal(tensors["output.weight"], EMBEDDINGS)
    alike = conversion.write_target(tmp_path / "tied.gguf", head=False)
    assert "output.weight" not in head(tmp_path, alike, weights, **tied)[1]
    mapped = {**without(PLAIN, "lm_head.weight"), "embed_tokens.weight": own}
    _, tensors, _ = head(tmp_path, target, mapped, tie_word_embeddings=True)
    np.testing.assert_array_equal(tensors["output.weight"], own[IDS])


def test_embeddings_are_copied_when_asked(tmp_path, target):
    _, tensors, _ = head(tmp_path, target, PLAIN, Overrides(with_embeddings=True))
    np.testing.assert_array_equal(tensors["token_embd.weight"], EMBEDDINGS)
    np.testing.assert_array_equal(tensors["output.weight"], PLAIN["lm_head.weight"])
    draft = CASES["vicuna"]()
    folder = write_folder(tmp_path / "eagle1", draft.config, draft.state)
    with pytest.raises(InputError, match=r"the target's head, to be written as output.weight.*--target"):
        convert(folder, None, tmp_path / "head.gguf", "f32", Overrides(with_embeddings=True))
    larger = conversion.write_target(tmp_path / "larger.gguf", vocab=VOCAB)
    convert(folder, larger, tmp_path / "head.gguf", "f32", Overrides(with_embeddings=True))
    found = {tensor.name: tensor.data for tensor in gguf.GGUFReader(tmp_path / "head.gguf").tensors}
    np.testing.assert_array_equal(found["token_embd.weight"], draft.state["embed_tokens.weight"])
    np.testing.assert_array_equal(found["output.weight"], conversion.target_matrices(vocab=VOCAB)["lm_head.weight"])


def test_given_layers_take_the_place_of_all_rules(tmp_path, target):
    report, _, meta = head(tmp_path, target, PLAIN, Overrides(target_layers=(9, 3, 12)))
    assert (report.target_layers, meta["eagle3.target_layers"]) == ([9, 3, 12], [9, 3, 12])
    assert meta["llama_eagle.layer_rule"] == "given with --target-layers"
    with pytest.raises(CheckpointError, match="fuses 3 features, but 2 layers"):
        head(tmp_path, target, PLAIN, Overrides(target_layers=(2, 3)))
    draft = CASES["vicuna"]()
    folder = write_folder(tmp_path / "eagle1", draft.config, draft.state)
    with pytest.raises(InputError, match="no use for EAGLE-1"):
        convert(folder, None, tmp_path / "e.gguf", "f32", Overrides(target_layers=(2,)))


@pytest.mark.parametrize("count", [1, 2, 4, 5])
def test_any_number_of_features(tmp_path, target, count):
    weights = {**PLAIN, "fc.weight": np.ones((32, 32 * count), np.float32)}
    nested = {"eagle_aux_hidden_state_layer_ids": list(range(1, count + 1))}
    _, tensors, meta = head(tmp_path, target, weights, eagle_config=nested)
    assert meta["eagle3.target_layers"] == list(range(2, count + 2))
    assert tensors["fc.weight"].shape == (32, 32 * count)


def test_a_norm_of_one_feature_is_a_row(tmp_path, target):
    weights = {**PLAIN, "fc.weight": np.ones((32, 32), np.float32), "fc_norm.0.weight": np.arange(32, dtype=np.float32)}
    report, tensors, _ = head(tmp_path, target, weights, eagle_config=None)
    np.testing.assert_array_equal(tensors["fc_norm.weight"], weights["fc_norm.0.weight"][None])
    assert report.version == "3.1"


def test_one_feature_without_a_layer_is_the_last_hidden_state(tmp_path, target):
    weights = {**PLAIN, "fc.weight": np.ones((32, 32), np.float32)}
    for nested in ({"use_aux_hidden_state": False}, None):
        report, _, meta = head(tmp_path, target, weights, eagle_config=nested)
        assert meta["eagle3.target_layers"] == [-1]
        assert "after the final norm" in report.notes[0]
        assert "--target-layers decides" in report.notes[0]


def test_a_draft_of_another_width_needs_its_own_matrices(tmp_path):
    target = conversion.write_target(tmp_path / "wide.gguf", hidden=64)
    weights = {**PLAIN, "fc.weight": np.ones((32, 192), np.float32)}
    with pytest.raises(ModelError, match="without embed_tokens needs"):
        head(tmp_path, target, weights)
    own = {**weights, "embed_tokens.weight": np.ones((40, 32), np.float32)}
    with pytest.raises(ModelError, match="shares the target's head"):
        head(tmp_path, target, without(own, "lm_head.weight"))
    meta = head(tmp_path, target, own, target_hidden_size=64)[2]
    assert (meta["eagle3.target_hidden_size"], meta["eagle3.embedding_length"]) == (64, 32)


def test_yarn_is_written_as_divisors_and_a_factor(tmp_path, target):
    scaling = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
    _, tensors, meta = head(tmp_path, target, PLAIN, rope_scaling=scaling)
    assert tensors["rope_freqs.weight"].shape == (conversion.HEAD_DIM // 2,)
    assert (tensors["rope_freqs.weight"][0], tensors["rope_freqs.weight"][-1]) == (1.0, 4.0)
    assert meta["eagle3.rope.scaling.attn_factor"] == pytest.approx(0.1 * np.log(4) + 1)
    assert "eagle3.rope.scaling.type" not in meta


def test_partial_rotation_turns_the_first_entries_alone(tmp_path, target):
    _, tensors, meta = head(tmp_path, target, PLAIN, partial_rotary_factor=0.5)
    assert meta["eagle3.rope.dimension_count"] == 8
    rows = PLAIN["midlayer.self_attn.q_proj.weight"]
    order = [0, 4, 1, 5, 2, 6, 3, 7, *range(8, 16)]
    np.testing.assert_array_equal(tensors["blk.0.attn_q.weight"][16:32], rows[16:32][order])


def test_safeailabs_eagle1_takes_10000_where_a_scaling_is_set(tmp_path):
    draft = CASES["llama3_eagle1"]()
    config = {**draft.config, "rope_scaling": {"type": "linear", "factor": 2.0}}
    folder = write_folder(tmp_path / "draft", config, draft.state)
    report = convert(folder, None, tmp_path / "head.gguf", "f32")
    fields = gguf.GGUFReader(report.out).fields
    assert fields["eagle.rope.freq_base"].contents() == 10000.0
    assert fields["eagle.rope.scaling.factor"].contents() == 2.0
    assert any("rope_theta 500000 is not used" in note for note in report.notes)
    assert any("head size 8 by the tensors (the config says 16)" in note for note in report.notes)


def test_a_target_may_be_left_out_where_the_checkpoint_suffices(tmp_path):
    report, _, meta = head(tmp_path, None, PLAIN)
    assert (report.target_layers, meta["tokenizer.ggml.model"]) == ([2, 6, 9], "none")
    assert any("by sizes only" in note for note in report.notes)
    for weights, changes, words in (
        (PLAIN, {"eagle_config": None, "target_hidden_size": 32}, "the default depends on"),
        (PLAIN, {"eagle_config": None}, "neither how wide nor how many"),
        (without(PLAIN, "lm_head.weight"), {}, "the target's head, to be written"),
    ):
        with pytest.raises(InputError, match=f"{words}.*--target"):
            head(tmp_path, None, weights, **changes)


def test_a_verifier_is_used_where_one_is_needed(tmp_path):
    folder = conversion.write_hf_target(tmp_path / "verifier")
    named = {"verifier": {"name_or_path": str(folder)}}
    report, _, meta = head(tmp_path, None, PLAIN, eagle_config=None, speculators_config=named)
    assert (report.target_layers, meta["eagle3.context_length"]) == ([2, 6, 9], conversion.CONTEXT)
    lost = {"verifier": {"name_or_path": "/no/such/folder"}}
    with pytest.raises(InputError, match="'/no/such/folder', which is not here: give the target with --target"):
        head(tmp_path, None, PLAIN, eagle_config=None, speculators_config=lost)


def test_an_hf_folder_of_a_model_for_more_than_text_is_a_target(tmp_path):
    text = json.loads((conversion.write_hf_target(tmp_path / "plain") / "config.json").read_text())
    folder = conversion.write_hf_target(
        tmp_path / "multi", hidden_size=None, num_hidden_layers=None, vocab_size=None, text_config=text
    )
    report, _, _ = head(tmp_path, folder, PLAIN, eagle_config=None)
    assert report.target_layers == [2, 6, 9]


def test_biases_that_only_the_config_has_are_said(tmp_path, target):
    report, _, _ = head(tmp_path, target, PLAIN, attention_bias=True)
    assert any("attention_bias = True, the file has no such biases" in note for note in report.notes)
