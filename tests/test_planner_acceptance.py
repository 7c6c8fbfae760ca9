"""Shares of accepted nodes, by depth and the draft's own probability."""

import numpy as np

from llama_eagle.planner.acceptance import Acceptance


def of(made: Acceptance, depth: int, score: float) -> float:
    return float(made.of(np.array([depth], np.int32), np.array([score], np.float32))[0])


def teach(made: Acceptance, depth: int, score: float, share: float, count: int = 400) -> None:
    right = np.arange(count) < share * count
    made.saw(np.full(count, depth, np.int32), np.full(count, score, np.float32), right)


def test_at_first_the_draft_is_believed() -> None:
    made = Acceptance()
    for score in (-0.1, -1.0, -3.0):
        assert abs(of(made, 1, score) - np.exp(score)) < 0.25 * np.exp(score) + 0.02


def test_a_draft_too_sure_of_itself_is_corrected_at_that_depth() -> None:
    made = Acceptance()
    teach(made, 3, -0.2, 0.3)
    assert abs(of(made, 3, -0.2) - 0.3) < 0.02
    assert of(made, 2, -0.2) > 0.7
    assert of(made, 3, -2.0) < 0.2


def test_deep_and_unlikely_nodes_have_a_place() -> None:
    made = Acceptance()
    teach(made, 40, -60.0, 0.5)
    assert abs(of(made, 8, -6.0) - 0.5) < 0.02


def test_the_last_text_counts_for_more() -> None:
    made = Acceptance()
    for share in (1.0, 0.0):
        for _ in range(400):
            teach(made, 1, -0.2, share, 4)
    assert of(made, 1, -0.2) < 0.35
