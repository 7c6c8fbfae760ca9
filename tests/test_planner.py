"""The planner's choices with given costs, and how they follow what is seen."""

import numpy as np
import pytest

from llama_eagle import TreeShape
from llama_eagle.planner.planner import FIRST_PROBE, REPLAN, Limits, Planner, candidates
from llama_eagle.planner.step_costs import StepCosts


class Seen:
    """A turn as the planner reads it."""

    def __init__(self, shape: TreeShape | None, accepted: int, score: float) -> None:
        self.n_nodes = 0 if shape is None else shape.depth
        self.depth = self.n_nodes
        self.top_k = 0 if shape is None else shape.top_k
        self._accepted, self._score = accepted, score

    def verified(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        depths = np.arange(1, self.n_nodes + 1, dtype=np.int32)
        return depths, (self._score * depths).astype(np.float32), depths <= self._accepted


def planner(per_token: float, per_level: float = 0.1, limits: Limits | None = None) -> Planner:
    """A token alone takes 10 ms, each further one `per_token`, each level of a draft `per_level`."""
    verify = {n: 10.0 + per_token * (n - 1) for n in (1, 2, 4, 8, 16, 32, 64)}
    costs = StepCosts(verify, per_level, {1: per_level, 8: per_level})
    return Planner(lambda: costs, limits or Limits())


def shapes(one: Planner, count: int) -> list[TreeShape | None]:
    return [one.shape() for _ in range(count)]


def test_where_a_batch_costs_what_its_tokens_cost_nothing_is_drafted() -> None:
    assert planner(10.0).choose() is None


def test_where_a_batch_is_free_trees_are_large() -> None:
    shape = planner(0.0, 0.01).choose()
    assert shape is not None
    assert (shape.nodes, shape.depth) == (63, 8)


def test_dearer_tokens_make_smaller_trees_and_dearer_levels_flatter_ones() -> None:
    sizes = [planner(cost).choose() for cost in (0.1, 0.5, 2.0)]
    nodes = [0 if shape is None else shape.nodes for shape in sizes]
    assert nodes[0] > nodes[1] > nodes[2] > 0
    depths = [planner(0.1, cost).choose() for cost in (0.1, 1.0, 4.0)]
    assert depths[0].depth > depths[1].depth > depths[2].depth  # type: ignore[union-attr]


def test_a_boundary_of_a_kernel_is_kept() -> None:
    verify = {1: 10.0, 8: 10.5, 9: 20.0, 16: 20.5, 17: 40.0, 64: 80.0}
    shape = Planner(lambda: StepCosts(verify, 0.1, {1: 0.1, 8: 0.1}), Limits()).choose()
    assert shape is not None
    assert shape.nodes == 7


def test_limits_hold() -> None:
    for shape in candidates(Limits(nodes=5, depth=3, top_k=2)):
        assert shape.nodes <= 5
        assert shape.depth <= 3
        assert shape.top_k <= 2
    assert all(shape.top_k == 1 for shape in candidates(Limits(top_k=1)))


def test_many_sequences_share_the_budget() -> None:
    alone, many = planner(0.5).choose(1), planner(0.5).choose(8)
    assert alone is not None
    assert many is None or many.nodes < alone.nodes


def test_plain_decoding_probes_at_growing_intervals() -> None:
    wanted = shapes(planner(10.0), 200)
    probes = [i for i, shape in enumerate(wanted) if shape is not None]
    assert probes[0] == FIRST_PROBE - 1
    assert np.diff(probes).tolist() == [2 * FIRST_PROBE, 4 * FIRST_PROBE]


def test_a_slow_draft_is_noticed() -> None:
    made = planner(0.5)
    first = made.shape()
    assert first is not None
    for _ in range(100):
        shape = made.shape()
        made.saw([Seen(shape, 1, -0.5)], 50.0, 10.5)  # type: ignore[list-item]
    assert made.choose() is None or made.choose().nodes < first.nodes  # type: ignore[union-attr]


@pytest.mark.parametrize(("accepted", "score"), [(0, -3.0), (8, -0.01)])
def test_what_is_accepted_moves_the_choice(accepted: int, score: float) -> None:
    made = planner(1.0, 0.5)
    first = made.choose()
    assert first is not None
    for _ in range(30 * REPLAN):
        shape = made.shape()
        size = 0 if shape is None else shape.depth
        seconds = 10.0 + size
        made.saw([Seen(shape, accepted, score)], 0.5 * size, seconds)  # type: ignore[list-item]
    later = made.choose()
    if accepted:
        assert later is not None
        assert later.depth > first.depth
    else:
        assert later is None
