"""What trees are expected to gain, before and after trees were seen."""

import numpy as np
import pytest

from llama_eagle.planner.acceptance import Acceptance
from llama_eagle.planner.gains import NODES, Gains, usual


def test_usual_heads() -> None:
    """Figures of the embedded head: chain of 5 1.4, trees of 8 and 16 1.8 and 2.2 accepted tokens a step."""
    made = Gains()
    assert made.chains()[4] == pytest.approx(1.4, abs=0.15)
    assert made.trees()[5, [7, 15]] == pytest.approx([1.8, 2.2], abs=0.15)


def test_trees_are_at_least_chains() -> None:
    made = Gains()
    for depth in range(1, 9):
        assert made.trees()[depth - 1, depth - 1] >= made.chains()[depth - 1] - 1e-12


def test_a_tree_has_so_many_nodes_of_one_level() -> None:
    assert (usual(1) > 0).sum() == 8
    assert (np.diff(usual(3)) <= 0).all()
    assert (usual(2) > 0).sum() == NODES


def teach(made: Gains, scores: list[float], depths: list[int], times: int = 100) -> None:
    acceptance = Acceptance()
    for _ in range(times):
        made.saw(np.array(depths, np.int32), np.array(scores, np.float32), acceptance)


def test_a_sure_draft_gains_by_depth() -> None:
    made = Gains()
    teach(made, [-0.01, -0.02, -0.03], [1, 2, 3])
    assert made.chains()[2] == pytest.approx(3 * np.exp(-0.25), rel=0.05)  # what a bin of half a unit says
    assert made.trees()[2, 2] == pytest.approx(made.chains()[2], rel=0.01)
    assert made.trees()[0, 0] < 1


def test_a_bad_draft_lowers_what_larger_trees_would_give() -> None:
    made = Gains()
    before = made.trees()[1, 20]
    teach(made, [-3.0, -4.0], [1, 2])
    assert made.trees()[1, 20] < 0.5 * before
