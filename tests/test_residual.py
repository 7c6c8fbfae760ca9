"""Rejection with the residual by enumeration: every decision is followed both ways, no number is drawn.

A step's law is exact: the sum over all drafts and decisions. Continued with the target's own choices it must be the
target's law of three tokens; then every sequence of steps has it, by induction.
"""

from collections.abc import Callable, Iterator
from functools import cache
from itertools import product

import numpy as np
import pytest

from llama_eagle.acceptance import Path
from llama_eagle.distribution import distribution
from llama_eagle.errors import InputError
from llama_eagle.residual import Choose, accept_residual, chooser, draw_children, proposal
from llama_eagle.sampling import SamplingParams
from llama_eagle.tree import DraftTree
from llama_eagle.uniforms import Uniforms

Prefix = tuple[int, ...]
OFF = {"top_k": 0, "top_p": 1.0, "min_p": 0.0}
SETTINGS = {
    "plain": SamplingParams(temperature=1.0, **OFF),
    "cold": SamplingParams(temperature=0.6, **OFF),
    "top_k": SamplingParams(temperature=1.0, **{**OFF, "top_k": 2}),
    "top_p": SamplingParams(temperature=1.5, **{**OFF, "top_p": 0.8}),
    "greedy": SamplingParams(temperature=0.0),
}
TREES = {
    "none": (4, []),
    "chain": (4, [1, 1, 1]),
    "wide": (4, [3]),
    "whole": (3, [3]),
    "tree": (3, [2, 2]),
    "thin": (3, [2, 1]),
}


@cache
def logits(prefix: Prefix, size: int, who: int) -> np.ndarray:
    """The target's (who = 0), or the draft's, which is a noisy copy."""
    row = np.random.default_rng([9, size, *prefix]).normal(size=size) * 2
    return (row + who * np.random.default_rng([10, size, *prefix]).normal(size=size)).astype(np.float32)


@cache
def law_of(prefix: Prefix, size: int, who: int, params: SamplingParams) -> np.ndarray:
    return distribution(logits(prefix, size, who), params)


def outcomes(run: Callable[[Choose], Path]) -> Iterator[tuple[float, Path]]:
    """Every way that a function's decisions can go, with its probability."""
    todo: list[list[int]] = [[]]
    while todo:
        given = todo.pop()
        taken: list[int] = []
        weight = 1.0

        def decide(weights: np.ndarray, given: list[int] = given, taken: list[int] = taken) -> int:
            nonlocal weight
            possible = np.flatnonzero(weights).tolist()
            if len(taken) == len(given):
                todo.extend([*given, other] for other in possible[1:])
                given.append(possible[0])
            taken.append(given[len(taken)])
            weight *= float(weights[taken[-1]] / weights.sum())
            return taken[-1]

        path = run(decide)
        yield weight, path


def drafted(
    prefix: Prefix, size: int, widths: list[int], params: SamplingParams, decide: Choose
) -> tuple[DraftTree, list[Prefix]]:
    """A tree of drawn tokens, and the text of each of its rows."""
    tokens: list[int] = []
    parents: list[int] = []
    rows = [prefix]
    level = [-1]
    for width in widths:
        below = []
        for parent in level:
            for token in draw_children(law_of(rows[parent + 1], size, 1, params), width, decide):
                below.append(len(tokens))
                rows.append((*rows[parent + 1], token))
                tokens.append(token)
                parents.append(parent)
        level = below
    return DraftTree.from_lists(0, tokens, parents), rows


def step(
    prefix: Prefix, size: int, widths: list[int], target: SamplingParams, draft: SamplingParams, decide: Choose
) -> Path:
    tree, rows = drafted(prefix, size, widths, draft, decide)
    p = np.stack([law_of(row, size, 0, target) for row in rows])
    q = np.stack([law_of(row, size, 1, draft) for row in rows])
    return accept_residual(tree, p, q, decide)


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("kind", TREES)
def test_a_step_keeps_the_targets_law(kind: str, setting: str) -> None:
    size, widths = TREES[kind]
    target, prefix = SETTINGS[setting], (1,)
    for draft in (SETTINGS["plain"], target):
        law = dict.fromkeys(product(range(size), repeat=3), 0.0)
        total = 0.0
        for weight, path in outcomes(lambda decide, draft=draft: step(prefix, size, widths, target, draft, decide)):
            total += weight
            add(law, weight, prefix, (*path.tokens, path.next), size, target)
        assert total == pytest.approx(1.0, abs=1e-12)
        expected = dict.fromkeys(law, 0.0)
        add(expected, 1.0, prefix, (), size, target)
        for text, probability in expected.items():
            assert law[text] == pytest.approx(probability, abs=1e-9), text


def add(
    law: dict[Prefix, float], weight: float, prefix: Prefix, text: Prefix, size: int, params: SamplingParams
) -> None:
    """Adds a text of that weight, continued to three tokens by the target."""
    if len(text) >= 3:
        law[text[:3]] += weight
        return
    for token, p in enumerate(law_of((*prefix, *text), size, 0, params)):
        if p > 0:
            add(law, weight * p, prefix, (*text, token), size, params)


def test_it_accepts_with_one_minus_the_distance_of_the_laws() -> None:
    """A chain's first token: the sum over min(p, q) exactly, more than any point guess has where the laws are alike."""
    params, size = SETTINGS["plain"], 4
    better = 0
    for seed in range(20):
        p, q = (distribution(logits((seed,), size, who), params) for who in (0, 1))
        found = outcomes(lambda decide, seed=seed: step((seed,), size, [1], params, params, decide))
        accepted = sum(weight for weight, path in found if path.nodes)
        assert accepted == pytest.approx(np.minimum(p, q).sum(), abs=1e-12)
        better += accepted > p[q.argmax()]
    assert better > 10


def test_a_perfect_draft_is_always_accepted() -> None:
    rows = np.stack([distribution(logits((i,), 4, 0), SETTINGS["plain"]) for i in range(3)])
    decide = chooser(Uniforms(3))
    for _ in range(100):
        first = draw_children(rows[0], 1, decide)
        second = draw_children(rows[1], 1, decide)
        tree = DraftTree.from_lists(0, first + second, [-1, 0])
        assert accept_residual(tree, rows, rows, decide).nodes == (0, 1)


def test_a_proposal_is_filtered_and_has_always_one_more_token() -> None:
    row = np.array([2.0, 1.0, 0.5, -60.0], np.float32)
    params = SamplingParams(**{**OFF, "temperature": 0.5, "top_k": 2})
    law = proposal(row, params)
    assert law.sum() == pytest.approx(1.0)
    assert law[1] / law[0] == pytest.approx(np.exp(-2.0))
    assert law[2] / law[0] == pytest.approx(np.exp(-3.0) * 1e-6)
    assert law[3] > 0
    assert np.abs(law - distribution(row, params)).max() < 1e-6
    assert sorted(draw_children(law, 4, chooser(Uniforms(1)))) == [0, 1, 2, 3]


def test_wrong_arguments() -> None:
    tree = DraftTree.from_lists(0, [1], [-1])
    rows = np.full((2, 3), 1 / 3)
    with pytest.raises(InputError, match=r"draft must have shape \[2, n_vocab\]"):
        accept_residual(tree, rows, rows[:1], chooser(Uniforms(1)))
    with pytest.raises(InputError, match="could not have drawn"):
        accept_residual(tree, rows, np.array([[1.0, 0, 0], [1, 0, 0]]), chooser(Uniforms(1)))
