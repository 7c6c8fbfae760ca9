"""Timings of a pair on this machine, and the choice that follows: draft, or decode plainly.

The whole planner for now: it times one, four and nine tokens and one draft at load. No model of context length.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import inf, isinf
from statistics import median

import numpy as np

from .batch import Batch
from .context import Context
from .draft import Drafter
from .tree import TreeShape

# tokens a step that a decent head gives before anything was observed (chain of 3, tree of 8)
_CHAIN_GAIN = 1.9
_TREE_GAIN = 2.3
_OVERHEAD = 1.15  # of a drafted step, over both decodes: graphs made anew, features, what was rejected
_REPEATS = 5
CHAIN = TreeShape.chain(3)
_TREE = TreeShape(nodes=8, depth=4, top_k=3)


@dataclass(frozen=True)
class Costs:
    """Seconds to decode n tokens in one batch, and to draft a chain of 3 and a tree of 8 (inf: no trees there)."""

    plain: float
    four: float
    nine: float
    draft_chain: float
    draft_tree: float

    def choose(self) -> TreeShape | None:
        """The shape with the most expected tokens a second, or None when that is plain decoding."""
        rate, shape = self._best_draft()
        return shape if rate > 1.0 / self.plain else None

    def draft_rate(self) -> float:
        """The expected tokens a second of the better draft."""
        return self._best_draft()[0]

    def loss(self) -> float:
        """What the better of both drafts would have cost: 0.12 means 12% slower than plain."""
        return 1.0 - self.draft_rate() * self.plain

    def explain(self) -> str:
        """The measurements behind choose(), as one line."""
        plain, four, nine, chain, tree = (
            f"{1000 * seconds:.1f}" for seconds in (self.plain, self.four, self.nine, self.draft_chain, self.draft_tree)
        )
        if isinf(self.nine):
            return (
                f"measured in ms: a token {plain}, 4 at once {four}, drafting a chain of 3 {chain}; "
                f"expected tokens a step: chain {_CHAIN_GAIN}, and this target takes no trees"
            )
        return (
            f"measured in ms: a token {plain}, 4 at once {four}, 9 at once {nine}, drafting a chain of 3 {chain}, "
            f"a tree of 8 {tree}; expected tokens a step: chain {_CHAIN_GAIN}, tree {_TREE_GAIN}"
        )

    def _best_draft(self) -> tuple[float, TreeShape]:
        """The expected tokens a second of the better shape, and that shape."""
        chain = _CHAIN_GAIN / (self.four + self.draft_chain) / _OVERHEAD
        tree = _TREE_GAIN / (self.nine + self.draft_tree) / _OVERHEAD
        return (chain, CHAIN) if chain >= tree else (tree, _TREE)


def _seconds(action: Callable[[], None]) -> float:
    times = []
    for _ in range(_REPEATS):
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return median(times)


def _decodes(target: Context, tokens: list[int], sizes: tuple[int, ...]) -> dict[int, float]:
    """Seconds to decode so many tokens; sizes take turns, since the machine's pace may change meanwhile."""
    times: dict[int, list[float]] = {size: [] for size in sizes}
    for _ in range(_REPEATS + 1):
        for size in sizes:
            start = time.perf_counter()
            _decode(target, tokens[:size])
            times[size].append(time.perf_counter() - start)
    return {size: median(seconds[1:]) for size, seconds in times.items()}  # the first run finds cold caches


def _decode(target: Context, tokens: list[int]) -> None:
    past = target.n_past()
    target.decode(Batch(tokens, outputs=np.ones(len(tokens), dtype=np.int8)))
    if target.has_tree:  # a recurrent state forgets no whole decode: there the tokens pile up
        target.seq_rm(0, past)


def measure_plain(target: Context, tokens: list[int]) -> float:
    """Seconds to decode one token; the context must be empty and is emptied again."""
    target.decode(Batch(tokens))
    _decode(target, tokens[:1])
    seconds = _seconds(partial(_decode, target, tokens[:1]))
    target.clear()
    return seconds


def measure(target: Context, drafter: Drafter, tokens: list[int]) -> Costs:
    """Times the pair on at least nine varied tokens; both contexts must be empty and are emptied again."""
    target.decode(Batch(tokens))
    features = target.features()
    sizes = _decodes(target, tokens, (1, 4, 9) if target.has_tree else (1, 4))

    def draft(shape: TreeShape) -> None:
        drafter.rewind(0)
        drafter.observe(tokens, features)
        drafter.grow(tokens[0], shape)

    def catch_up() -> None:
        drafter.rewind(0)
        drafter.observe(tokens, features)
        drafter.catch_up()

    draft(CHAIN)
    prompt = _seconds(catch_up) * (len(tokens) - 3) / len(tokens)  # a step catches up on about three pairs
    chain = max(_seconds(partial(draft, CHAIN)) - prompt, 0.0)
    tree = max(_seconds(partial(draft, _TREE)) - prompt, 0.0) if target.has_tree else inf
    target.clear()
    drafter.rewind(0)
    return Costs(sizes[1], sizes[4], sizes.get(9, inf), chain, tree)
