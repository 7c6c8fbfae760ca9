"""DraftTree and Growth; Growth against EAGLE-2's definition computed the long way."""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llama_eagle.errors import InputError
from llama_eagle.tree import DraftTree, Growth, Prices, TreeShape

#        root
#       /    \
#      0      1
#     / \      \
#    2   3      4
#        |
#        5
PARENTS = [-1, -1, 0, 0, 1, 3]


@pytest.fixture
def tree() -> DraftTree:
    return DraftTree.from_lists(9, [10, 11, 12, 13, 12, 15], PARENTS)


def test_shape_of_a_tree(tree: DraftTree) -> None:
    assert len(tree) == 6
    assert tree.root == 9
    assert tree.depths.tolist() == [1, 1, 2, 2, 2, 3]
    assert tree.scores.tolist() == [0.0] * 6
    assert [a.dtype for a in (tree.tokens, tree.parents, tree.depths, tree.scores)] == [np.int32] * 3 + [np.float32]
    assert tree.paths() == [[0, 2], [1, 4], [0, 3, 5]]
    assert [tree.children(i) for i in range(-1, 6)] == [[0, 1], [2, 3], [4], [], [5], [], []]


def test_ancestor_mask(tree: DraftTree) -> None:
    mask = tree.ancestor_mask()
    assert mask.dtype == np.bool_
    assert [np.flatnonzero(row).tolist() for row in mask] == [[0], [1], [0, 2], [0, 3], [1, 4], [0, 3, 5]]


def test_empty_tree_and_chain() -> None:
    empty = DraftTree.from_lists(3, [], [], [])
    assert len(empty) == 0
    assert empty.paths() == []
    assert empty.ancestor_mask().shape == (0, 0)
    chain = DraftTree.chain(3, [4, 4, 5], [-1.0, -2.0, -2.5])
    assert chain.parents.tolist() == [-1, 0, 1]
    assert chain.depths.tolist() == [1, 2, 3]
    assert chain.scores.tolist() == [-1.0, -2.0, -2.5]
    assert chain.paths() == [[0, 1, 2]]


@pytest.mark.parametrize(
    ("tokens", "parents", "scores"),
    [
        ([1, 2], [-1], None),
        ([1], [-1], [0.0, 0.0]),
        ([-1], [-1], None),
        ([1 << 31], [-1], None),
        (["a"], [-1], None),
        ([True], [-1], None),
        ([1], [0], None),
        ([1], [-2], None),
        ([1, 2], [-1, 2], None),
        ([1, 1], [-1, -1], None),
        ([1, 2, 3], [-1, 0, -1], None),
        ([1], [-1], [float("nan")]),
    ],
)
def test_wrong_trees(tokens: list[int], parents: list[int], scores: list[float] | None) -> None:
    with pytest.raises(InputError):
        DraftTree.from_lists(0, tokens, parents, scores)


def test_wrong_root_and_node(tree: DraftTree) -> None:
    with pytest.raises(InputError, match="-1"):
        DraftTree.from_lists(-1, [], [])
    with pytest.raises(InputError, match="node 6"):
        tree.children(6)


# ---- growth ----

Expand = Callable[[tuple[int, ...]], tuple[Sequence[int], Sequence[float]]]


@dataclass(frozen=True)
class Candidate:
    """A path of tokens from the root and its score."""

    path: tuple[int, ...]
    score: np.float32


def definition(expand: Expand, top_k: int, depth: int, nodes: int, least: float = -math.inf) -> list[Candidate]:
    """EAGLE-2 as the paper has it: expand each level's best, keep the best of all; `sorted` is stable."""

    def children(node: Candidate) -> list[Candidate]:
        ids, logp = expand(node.path)
        return [
            Candidate((*node.path, i), np.float32(node.score + np.float32(p))) for i, p in zip(ids, logp, strict=True)
        ]

    def best(candidates: list[Candidate], count: int) -> list[Candidate]:
        return sorted(candidates, key=lambda c: c.score, reverse=True)[:count]

    everything = level = children(Candidate((), np.float32(0.0)))
    for _ in range(depth - 1):
        level = [child for node in best(level, top_k) if node.score >= np.float32(least) for child in children(node)]
        everything = everything + level
    chosen = {c.path for c in best(everything, nodes)}
    return [c for c in everything if c.path in chosen]


def grow(expand: Expand, top_k: int, depth: int, nodes: int, prices: Prices | None = None) -> DraftTree:
    growth = Growth(7, top_k, depth, nodes, prices)
    level = growth.first(*expand(()))
    beam = [(token,) for token in level.tokens.tolist()]
    assert level.beam_parents.tolist() == [-1] * len(beam)
    for d in range(2, depth + 1):
        if not beam:
            break
        rows = [expand(path) for path in beam]
        level = growth.expand(np.array([r[0] for r in rows]), np.array([r[1] for r in rows], dtype=np.float32))
        assert level.depth == d
        assert len(level.tokens) == len(level.beam_parents) <= top_k
        pairs = zip(level.beam_parents.tolist(), level.tokens.tolist(), strict=True)
        beam = [(*beam[parent], token) for parent, token in pairs]
    return growth.tree()


def paths_of(tree: DraftTree) -> list[tuple[int, ...]]:
    paths: list[tuple[int, ...]] = []
    for token, parent in zip(tree.tokens.tolist(), tree.parents.tolist(), strict=True):
        paths.append((*paths[parent], token) if parent >= 0 else (token,))
    return paths


def scores_of(seed: int, width: int, levels: int | None) -> Expand:
    """A random score table: every path's children, best first. `levels` distinct values, zero among them, make ties."""

    def expand(path: tuple[int, ...]) -> tuple[list[int], list[float]]:
        rng = np.random.default_rng([seed, *path])
        logp = rng.integers(0, levels, width) * -0.25 if levels else -rng.exponential(size=width)
        order = np.argsort(-logp, kind="stable")
        return rng.permutation(50)[:width].tolist(), np.float32(logp[order]).tolist()

    return expand


@settings(max_examples=300, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    top_k=st.integers(1, 6),
    depth=st.integers(1, 6),
    nodes=st.integers(1, 70),
    levels=st.sampled_from([None, 1, 2, 4]),
    wider=st.integers(0, 2),
)
def test_growth_equals_the_definition(
    seed: int, top_k: int, depth: int, nodes: int, levels: int | None, wider: int
) -> None:
    wide = scores_of(seed, top_k + wider, levels)

    def narrow(path: tuple[int, ...]) -> tuple[Sequence[int], Sequence[float]]:
        ids, logp = wide(path)
        return ids[:top_k], logp[:top_k]

    tree = grow(wide, top_k, depth, nodes)
    expected = definition(narrow, top_k, depth, nodes)
    assert paths_of(tree) == [c.path for c in expected]
    assert tree.scores.tolist() == [float(c.score) for c in expected]
    assert len(tree) == min(nodes, top_k + (depth - 1) * top_k * top_k)
    checked = DraftTree.from_lists(tree.root, tree.tokens.tolist(), tree.parents.tolist(), tree.scores.tolist())
    assert checked.depths.tolist() == tree.depths.tolist()
    assert [a.dtype for a in (tree.tokens, tree.parents, tree.depths, tree.scores)] == [np.int32] * 3 + [np.float32]


@settings(max_examples=200, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    top_k=st.integers(1, 5),
    nodes=st.integers(1, 30),
    level=st.floats(0.01, 1.0),
    steps=st.lists(st.floats(0.0, 0.6), min_size=30, max_size=30),
)
def test_prices_take_the_nodes_that_gain_most(
    seed: int, top_k: int, nodes: int, level: float, steps: list[float]
) -> None:
    expand = scores_of(seed, top_k, None)
    prices = Prices(tuple(itertools.accumulate(steps)), math.log(level))
    tree = grow(expand, top_k, 5, nodes, prices)
    everything = definition(expand, top_k, 5, 10**6, math.log(level))
    best = sorted(everything, key=lambda c: c.score, reverse=True)[:nodes]
    gains = [0.0]
    for count, price in zip(range(1, len(best) + 1), prices.nodes, strict=False):
        gains.append(sum(math.exp(c.score) for c in best[:count]) - price)
    assert gains[len(tree)] == pytest.approx(max(gains), abs=1e-6)
    chosen = {c.path for c in best[: len(tree)]}
    assert paths_of(tree) == [c.path for c in everything if c.path in chosen]


def test_nodes_that_cost_too_much_leave_an_empty_tree() -> None:
    dear = Prices((2.0, 4.0, 6.0, 8.0), math.log(0.5))
    assert len(grow(scores_of(3, 2, None), 2, 3, 4, dear)) == 0


def test_too_few_prices() -> None:
    with pytest.raises(InputError, match="a price for each"):
        TreeShape(3, 2, 1, Prices((0.1, 0.2), -1.0))


def test_one_candidate_a_level_is_the_chain() -> None:
    expand = scores_of(5, 1, None)
    tree = grow(expand, 1, 4, 16)
    assert tree.parents.tolist() == [-1, 0, 1, 2]
    assert tree.paths() == [[0, 1, 2, 3]]


def test_a_vocabulary_smaller_than_top_k() -> None:
    expand = scores_of(6, 2, None)
    assert paths_of(grow(expand, 4, 3, 99)) == [c.path for c in definition(expand, 4, 3, 99)]


def test_ties_never_lose_a_parent() -> None:
    tree = grow(lambda _: ([1, 2], [0.0, 0.0]), 2, 6, 5)
    assert tree.parents.tolist() == [-1, -1, 0, 0, 1]


def test_impossible_tokens_come_last() -> None:
    tree = grow(lambda _: ([1, 2], [-1.0, float("-inf")]), 2, 3, 3)
    assert paths_of(tree) == [(1,), (1, 1), (1, 1, 1)]


def test_rounding_above_zero_counts_as_zero() -> None:
    tree = grow(lambda _: ([1, 2], [1e-6, -9.0]), 2, 3, 3)
    assert paths_of(tree) == [(1,), (1, 1), (1, 1, 1)]
    assert tree.scores.tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("logp", [[0.0, float("nan")], [float("nan"), -1.0], [0.5, -1.0], [float("inf"), 0.0]])
def test_senseless_scores(logp: list[float]) -> None:
    with pytest.raises(InputError, match="log probabilities"):
        Growth(0, 2, 2, 4).first([1, 2], logp)


def test_rows_that_are_not_best_first() -> None:
    growth = Growth(0, 2, 2, 1)
    growth.first([1, 2], [-2.0, -3.0])
    growth.expand([[1, 2], [1, 2]], [[-1.0, 5.0], [-1.0, -1.0]])
    with pytest.raises(InputError, match="best first"):
        growth.tree()


def test_wrong_order_and_shapes() -> None:
    for sizes in ((0, 1, 1), (1, 0, 1), (1, 1, 0)):
        with pytest.raises(InputError, match="at least 1"):
            Growth(0, *sizes)
    growth = Growth(0, 2, 2, 4)
    with pytest.raises(InputError, match="first"):
        growth.tree()
    with pytest.raises(InputError, match="first"):
        growth.expand([[1]], [[0.0]])
    with pytest.raises(InputError, match="shapes"):
        growth.first([], [])
    growth.first([1, 2], [-1.0, -1.0])
    with pytest.raises(InputError, match="before"):
        growth.first([1, 2], [-1.0, -1.0])
    with pytest.raises(InputError, match="2 nodes need"):
        growth.expand([[1, 2]], [[-1.0, -1.0]])
    with pytest.raises(InputError, match="shapes"):
        growth.expand([[1, 2], [3, 4]], [[-1.0], [-1.0]])
    growth.expand([[1, 2], [3, 4]], [[-1.0, -1.0], [-1.0, -1.0]])
    with pytest.raises(InputError, match="depth 2 of 2"):
        growth.expand([[1, 2], [3, 4]], [[-1.0, -1.0], [-1.0, -1.0]])
