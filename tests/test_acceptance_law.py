"""Sampled acceptance by enumeration: whatever tree is drafted, the first three tokens have the target's distribution.

A toy target over four tokens, its logits a function of the prefix. The emitted token is a step function of its uniform
number; the steps are found by bisection, without looking into the code, and their widths multiplied and compared with
the target's own probabilities, worked out here.
"""

from collections.abc import Callable
from functools import cache
from itertools import product

import numpy as np
import pytest

from llama_eagle.acceptance import accept
from llama_eagle.distribution import choose, distribution
from llama_eagle.sampling import SamplingParams
from llama_eagle.tree import DraftTree

SIZE = 4
Prefix = tuple[int, ...]
OFF = {"top_k": 0, "top_p": 1.0, "min_p": 0.0}
SETTINGS = {
    "plain": SamplingParams(temperature=1.0, **OFF),
    "hot": SamplingParams(temperature=3.0, **OFF),
    "top_k": SamplingParams(temperature=1.0, **{**OFF, "top_k": 3}),
    "top_p": SamplingParams(temperature=1.0, **{**OFF, "top_p": 0.8}),
    "min_p": SamplingParams(temperature=1.3, **{**OFF, "min_p": 0.2}),
    "all": SamplingParams(temperature=0.8, top_k=3, top_p=0.95, min_p=0.05, logit_bias={1: 0.7, 2: -0.4}),
    "greedy": SamplingParams(temperature=0.0),
}


@cache
def logits(prefix: Prefix) -> np.ndarray:
    return np.random.default_rng([9, *prefix]).normal(size=SIZE).astype(np.float32) * 2


def ranked(prefix: Prefix) -> list[int]:
    """A draft's guesses: those of a target that is a little wrong."""
    noise = np.random.default_rng([10, *prefix]).normal(size=SIZE)
    return [int(token) for token in np.argsort(-(logits(prefix) + noise))]


def static(widths: list[int]) -> Callable[[Prefix], DraftTree]:
    """Trees of one shape: `widths[d]` children below each node of depth d."""

    def tree(prefix: Prefix) -> DraftTree:
        tokens: list[int] = []
        parents: list[int] = []
        level: list[tuple[int, Prefix]] = [(-1, prefix)]
        for width in widths:
            below = []
            for parent, path in level:
                for token in ranked(path)[:width]:
                    below.append((len(tokens), (*path, token)))
                    tokens.append(token)
                    parents.append(parent)
            level = below
        return DraftTree.from_lists(prefix[-1], tokens, parents)

    return tree


def changing(prefix: Prefix) -> DraftTree:
    """Another shape for every prefix, as dynamic trees have."""
    return static([[2, 1], [1, 2, 1], [4], [3, 2], []][sum(prefix) % 5])(prefix)


TREES: dict[str, Callable[[Prefix], DraftTree]] = {
    "none": static([]),
    "chain": static([1, 1, 1]),
    "wide": static([3]),
    "whole": static([4, 4]),
    "static": static([2, 2, 1]),
    "changing": changing,
}


class Given:
    """Numbers that were chosen; counts how many were asked for. What lies behind them does not matter."""

    def __init__(self, numbers: tuple[float, ...]) -> None:
        self.numbers = numbers
        self.count = 0

    def random(self) -> float:
        self.count += 1
        return self.numbers[self.count - 1] if self.count <= len(self.numbers) else 0.5


def rows(prefix: Prefix, tree: DraftTree) -> np.ndarray:
    """What the target computes for root and nodes; the root is the last token of the prefix."""
    paths: list[Prefix] = []
    for token, parent in zip(tree.tokens.tolist(), tree.parents.tolist(), strict=True):
        paths.append((*(prefix if parent < 0 else paths[parent]), token))
    return np.stack([logits(path) for path in (prefix, *paths)])


def emit(draft: Callable[[Prefix], DraftTree], params: SamplingParams, numbers: tuple[float, ...]) -> Prefix:
    """The loop's first tokens, at least as many as numbers."""
    rng = Given(numbers)
    text: Prefix = (choose(distribution(logits(()), params), rng.random()),)
    while len(text) < len(numbers):
        tree = draft(text)
        path = accept(tree, rows(text, tree), params, rng)
        text = (*text, *path.tokens, path.next)
        assert rng.count == len(text) or params.temperature == 0, "one number for each emitted token"
    return text


def cells(token: Callable[[float], int]) -> dict[int, tuple[float, float]]:
    """The interval of numbers that gives each token, for a function whose tokens ascend."""
    found: dict[int, tuple[float, float]] = {}
    low, last = 0.0, 1 - 2**-53
    while True:
        first = token(low)
        inside, outside = low, last
        if token(last) == first:
            found[first] = (low, 1.0)
            return found
        while outside - inside > 5e-8:
            middle = (inside + outside) / 2
            inside, outside = (middle, outside) if token(middle) == first else (inside, middle)
        found[first] = (low, outside)
        low = outside


def measured(draft: Callable[[Prefix], DraftTree], params: SamplingParams) -> dict[Prefix, float]:
    """The probability of every text of three tokens, as the volume of the numbers that give it."""
    volumes: dict[Prefix, float] = {}

    def descend(numbers: tuple[float, ...], text: Prefix, volume: float) -> None:
        if len(text) == 3:
            volumes[text] = volume
            return
        parts = cells(lambda u: emit(draft, params, (*numbers, u))[len(numbers)])
        for token, (low, high) in parts.items():
            descend((*numbers, (low + high) / 2), (*text, token), volume * (high - low))

    descend((), (), 1.0)
    return volumes


def wanted(params: SamplingParams, text: Prefix) -> float:
    """The target's probability of a text: a plain softmax over what the filters leave, written anew."""
    res = 1.0
    for i, token in enumerate(text):
        row = logits(text[:i]).astype(np.float64)
        for biased, bias in params.biases:
            row[biased] += bias
        order = sorted(range(SIZE), key=lambda t: -row[t])
        order = order[:1] if params.temperature == 0 else order[: params.top_k or SIZE]
        weights = np.exp(row[order] - row[order[0]])
        before = np.cumsum(weights / weights.sum()) - weights / weights.sum()
        order = [t for t, sum_before, w in zip(order, before, weights, strict=True)
                 if sum_before < params.top_p and w >= params.min_p]  # fmt: skip
        scaled = np.exp((row[order] - row[order[0]]) / (params.temperature or 1.0))
        res *= float(scaled[order.index(token)] / scaled.sum()) if token in order else 0.0
    return res


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("kind", TREES)
def test_the_first_three_tokens_have_the_targets_distribution(kind: str, setting: str) -> None:
    params = SETTINGS[setting]
    volumes = measured(TREES[kind], params)
    assert sum(volumes.values()) == pytest.approx(1.0, abs=1e-6)
    for text in product(range(SIZE), repeat=3):
        assert volumes.get(text, 0.0) == pytest.approx(wanted(params, text), abs=1e-6), text


@pytest.mark.parametrize("setting", SETTINGS)
def test_the_same_numbers_give_the_same_text_with_every_tree(setting: str) -> None:
    rng = np.random.default_rng(4)
    for _ in range(30):
        numbers = tuple(rng.random(8).tolist())
        texts = {kind: emit(draft, SETTINGS[setting], numbers)[:8] for kind, draft in TREES.items()}
        assert set(texts.values()) == {texts["none"]}


def test_drafts_are_accepted() -> None:
    """Otherwise the tests above would test nothing."""
    counts = []
    for seed in range(50):
        rng = Given(tuple(np.random.default_rng(seed).random(9)))
        tree = static([2, 2, 1])((1,))
        counts.append(len(accept(tree, rows((1,), tree), SETTINGS["plain"], rng).nodes))
    assert {0, 1, 2, 3} == set(counts)
