"""predict.py: chains as the runtime walks them, by hand."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="training needs torch")

from llama_eagle.train.predict import Foretold  # noqa: E402 - needs torch


def walked(rows, depth=2):
    found = Foretold([0] * depth, [0] * depth)
    found.walk(np.array(rows, np.bool_))
    return found


def test_a_chain_starts_behind_what_was_emitted():
    # rows 0 (both right) -> 3 (none) -> 4 (one, and then the target's own, which is the text's last)
    found = walked([[1, 1], [0, 0], [0, 0], [0, 1], [1, 0], [0, 0]])
    assert (found.chains, found.emitted) == (3, 6)
    assert (found.tried, found.accepted) == ([3, 1], [2, 1])
    assert found.rates == [2 / 3, 1.0]
    assert found.tokens_per_step == 2.0


def test_the_last_row_tries_no_deeper_than_the_text():
    found = walked([[1, 1]])
    assert (found.tried, found.accepted, found.emitted) == ([0, 0], [0, 0], 1)
    found = walked([[1, 1], [1, 1]])
    assert (found.tried, found.accepted, found.emitted) == ([1, 0], [1, 0], 2)
    assert Foretold().tokens_per_step == 0.0
