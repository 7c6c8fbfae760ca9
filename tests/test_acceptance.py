"""Greedy acceptance against following every path by hand."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llama_eagle.acceptance import Path, accept, accept_tokens
from llama_eagle.errors import InputError
from llama_eagle.sampling import SamplingParams
from llama_eagle.tree import DraftTree
from llama_eagle.uniforms import Uniforms

#   root -> 5 -> 7 -> 5
#        -> 6 -> 7
TREE = DraftTree.from_lists(1, [5, 6, 7, 7, 5], [-1, -1, 0, 1, 2])


@pytest.mark.parametrize(
    ("choices", "nodes", "tokens", "following"),
    [
        ([9, 7, 7, 5, 0, 0], (), (), 9),
        ([5, 9, 7, 5, 0, 0], (0,), (5,), 9),
        ([5, 7, 9, 5, 0, 3], (0, 2, 4), (5, 7, 5), 3),
        ([6, 7, 7, 5, 4, 3], (1, 3), (6, 7), 4),
        ([7, 7, 7, 5, 4, 3], (), (), 7),  # 7 is in the tree, but no child of the root
    ],
)
def test_paths(choices: list[int], nodes: tuple[int, ...], tokens: tuple[int, ...], following: int) -> None:
    path = accept_tokens(TREE, np.array(choices, dtype=np.int32))
    assert path == Path(nodes, tokens, following) == accept_tokens(TREE, choices)
    assert path.rows == (0, *(n + 1 for n in nodes))
    assert all(type(value) is int for value in (*path.nodes, *path.tokens, path.next, *path.rows))


def test_without_a_tree_the_choice_is_the_next_root() -> None:
    assert accept_tokens(DraftTree.from_lists(1, [], []), [4]) == Path((), (), 4)


@st.composite
def trees(draw: st.DrawFn) -> DraftTree:
    """A random tree over five tokens in level order."""
    paths: list[tuple[int, ...]] = [()]
    for _ in range(draw(st.integers(0, 20))):
        paths.append((*draw(st.sampled_from(paths)), draw(st.integers(0, 4))))
    paths = sorted(set(paths) - {()}, key=lambda p: (len(p), p))
    parents = [paths.index(p[:-1]) if len(p) > 1 else -1 for p in paths]
    return DraftTree.from_lists(0, [p[-1] for p in paths], parents)


@settings(max_examples=300, deadline=None)
@given(tree=trees(), seed=st.integers(0, 2**32 - 1))
def test_greedy_is_the_longest_matching_path(tree: DraftTree, seed: int) -> None:
    logits = np.random.default_rng(seed).integers(0, 3, (len(tree) + 1, 5)).astype(np.float32)  # many ties
    choices = [int(np.flatnonzero(row == row.max())[0]) for row in logits]

    def matching(path: list[int]) -> list[int]:
        rows = [0, *(node + 1 for node in path)]
        good = [int(tree.tokens[node]) == choices[row] for node, row in zip(path, rows[:-1], strict=True)]
        return path[: good.index(False)] if False in good else path

    nodes = max((matching(path) for path in tree.paths()), key=len, default=[])
    path = accept(tree, logits)
    assert path.nodes == tuple(nodes)
    assert path.tokens == tuple(int(tree.tokens[node]) for node in nodes)
    assert path.next == choices[nodes[-1] + 1 if nodes else 0]


def test_greedy_params_need_no_numbers_and_temperatures_do() -> None:
    logits = np.zeros((6, 8), dtype=np.float32)
    logits[0, 5] = 1.0
    assert accept(TREE, logits, SimpleNamespace(temperature=0.0)) == Path((0,), (5,), 0)
    with pytest.raises(InputError, match=r"temperature 0\.8 needs random numbers"):
        accept(TREE, logits, SimpleNamespace(temperature=0.8))
    logits[:, 6] = 100.0
    assert accept(TREE, logits, SimpleNamespace(temperature=0.8), np.random.default_rng(0)) == Path((1,), (6,), 6)
    with pytest.raises(InputError, match="repeat_penalty"):
        accept(TREE, logits, SamplingParams(repeat_penalty=1.1), Uniforms(1))


@pytest.mark.parametrize("shape", [(5, 8), (7, 8), (6,), (6, 0), (6, 8, 1)])
def test_wrong_logits(shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match=r"\[6, n_vocab\]"):
        accept(TREE, np.zeros(shape, dtype=np.float32))


def test_nan_is_no_maximum() -> None:
    logits = np.zeros((6, 8), dtype=np.float32)
    logits[3, 2] = np.nan
    with pytest.raises(InputError, match="NaN"):
        accept(TREE, logits)


@pytest.mark.parametrize("choices", [[], [1] * 5, [1] * 7, np.zeros(5, dtype=np.int32), np.int32(3)])
def test_wrong_choices(choices: object) -> None:
    with pytest.raises(InputError, match="needs 6 choices"):
        accept_tokens(TREE, choices)  # type: ignore[arg-type]
