"""vocab_map.py: offsets become target ids, and broken maps are named."""

import numpy as np
import pytest

import conversion
from llama_eagle.conversion.checkpoint import Checkpoint
from llama_eagle.conversion.spec import read_spec
from llama_eagle.conversion.vocab_map import inverse_agrees, read_map
from llama_eagle.errors import CheckpointError
from tiny import write_folder


def draft(tmp_path, offsets=None, t2d=None, **changes):
    weights = {"x": np.ones(1, np.float32)}
    weights.update({name: value for name, value in (("d2t", offsets), ("t2d", t2d)) if value is not None})
    settings = conversion.config(vocab_size=6, **{"draft_vocab_size": 3, **changes})
    return Checkpoint(write_folder(tmp_path / "draft", settings, weights)), read_spec(settings)


def test_offsets_are_added_to_draft_ids(tmp_path):
    assert read_map(*draft(tmp_path, np.array([1, 1, 3], np.int64))).tolist() == [1, 2, 5]
    assert read_map(*draft(tmp_path, np.array([1, 1, 3], np.int32))).dtype == np.int64
    assert read_map(*draft(tmp_path, np.array([5, 0, -2], np.int64))).tolist() == [5, 1, 0]


def test_over_the_full_vocabulary_a_map_is_optional(tmp_path):
    assert read_map(*draft(tmp_path, draft_vocab_size=6)) is None
    assert read_map(*draft(tmp_path, np.zeros(6, np.int64), draft_vocab_size=6)) is None
    swapped = np.array([1, -1, 0, 0, 0, 0], np.int64)
    assert read_map(*draft(tmp_path, swapped, draft_vocab_size=6)).tolist() == [1, 0, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("offsets", "words"),
    [
        (None, "d2t is missing"),
        ([0, 0], r"d2t is \[2\]"),
        ([[0, 0, 0]], r"d2t is \[1, 3\]"),
        ([0, 0, 4], r"d2t\[2\] points at token 6"),
        ([-1, 0, 0], r"d2t\[0\] points at token -1"),
        ([1, 0, 0], "2 draft tokens to the same target token 1"),
        ([0, 0, 2**63 - 1], r"d2t\[2\]"),
    ],
)
def test_broken_maps_are_refused(tmp_path, offsets, words):
    given = None if offsets is None else np.array(offsets, np.int64)
    with pytest.raises(CheckpointError, match=words):
        read_map(*draft(tmp_path, given))


def test_the_inverse_is_compared(tmp_path):
    ids = np.array([1, 2, 5], np.int64)
    for mask, agrees in (([0, 1, 1, 0, 0, 1], True), ([1, 1, 0, 0, 0, 1], False), ([0, 1, 1, 0, 0], False)):
        checkpoint, _ = draft(tmp_path, ids - np.arange(3), np.array(mask, bool))
        assert inverse_agrees(checkpoint, ids, 6) == agrees
    assert inverse_agrees(draft(tmp_path)[0], ids, 6)
