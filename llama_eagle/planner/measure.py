"""Measures what steps cost: a short calibration in small contexts of its own, so that no text is disturbed.

The tokens are varied: experts differ by token. Sizes come in the order of their use, and what there is no time for is
interpolated and corrected by the steps themselves.
"""

import time
from collections.abc import Callable, Iterator
from functools import partial
from statistics import median
from typing import Any

import numpy as np

from ..batch import Batch
from ..context import Context
from ..draft import Drafter
from ..model import Model
from ..tree import TreeShape
from .step_costs import StepCosts

SECONDS = 2.0  # at most, but for what one decode of each kind takes
SIZES = (1, 2, 4, 9, 3, 5, 17, 8, 6, 12, 33, 16, 24, 32, 64)
CHAIN_SIZES = (1, 2, 4, 3, 5)
WIDTHS = (1, 4, 8)
DEPTH = 3  # of the trees that a level's cost is taken from
REPEATS = 3
TURNS = 12
SMALL = 9  # sizes up to this one have more than one turn: they matter most, and are measured least well
PAST = 64  # tokens of context
TEXT = (
    "The quick brown fox jumps over the lazy dog while 42 birds sing: def f(x): return x + 1. In 1905 she wrote a "
    "letter to her brother about the weather, prices of bread, and a small boat that nobody wanted. If a train leaves "
    "at 9:15 and takes 75 minutes, when does it arrive? Bonjour! import numpy as np; print(np.zeros((3, 4)).shape)"
)


def measure(target: Model, draft: Model, **params: Any) -> StepCosts:
    """Times decodes of 1, 2, ... tokens of the target, and drafts. params: ContextParams but for sizes."""
    end = time.perf_counter() + SECONDS
    words = target.tokenize(TEXT)
    tokens = (words * (PAST // len(words) + 1))[: PAST + 1]
    with Context(target, draft.info.features, n_ctx=512, **params) as context:
        context.decode(Batch(tokens[:PAST]))
        features = context.features()
        with Context(draft, n_ctx=512, **params) as small:
            first, level = _draft(Drafter(small), tokens, features)
        return StepCosts(_verify(context, tokens, end), first, level)


def measure_plain(target: Context) -> float:
    """Seconds to decode one token; the context must be empty and is emptied again."""
    tokens = target.model.tokenize(TEXT)[: min(12, target.n_batch, target.n_ctx - 1)]
    target.decode(Batch(tokens))
    past = target.n_past()

    def decode() -> None:
        target.decode(Batch(tokens[:1]))
        if target.has_tree:
            target.seq_rm(0, past)

    seconds = _least(decode)
    target.clear()
    return seconds


def _draft(drafter: Drafter, tokens: list[int], features: np.ndarray) -> tuple[float, dict[int, float]]:
    """Seconds of the first level, two pairs to catch up included, and of a further one by its width."""
    drafter.observe(tokens[: PAST - 1], features[:-1])
    drafter.catch_up()

    def grow(shape: TreeShape) -> None:
        drafter.rewind(PAST - 3)
        drafter.observe(tokens[PAST - 3 : PAST], features[-3:])
        drafter.grow(tokens[PAST], shape)

    first = _least(lambda: grow(TreeShape.chain(1)))
    levels = {}
    for width in WIDTHS:
        shape = TreeShape(width * DEPTH, DEPTH, width)
        levels[width] = max(_least(partial(grow, shape)) - first, 0.0) / (DEPTH - 1)
    return first, levels


def _verify(context: Context, tokens: list[int], end: float) -> dict[int, float]:
    """Seconds to decode so many tokens at once: the median ratio to one token, decoded just before.

    Sizes take turns, for the machine's pace drifts: the least of each would be that of another moment.
    """
    ones: list[float] = []
    ratios: dict[int, list[float]] = {}
    _decode(context, tokens[:1])  # finds cold caches
    for size in _sizes(context, end):
        seconds = _decode(context, tokens[:size])
        if size == 1:
            ones.append(seconds)
        elif seconds > size * ones[-1]:  # something came between: it takes no longer than one token after the other
            seconds = min(_decode(context, tokens[:size]), size * ones[-1])
        ratios.setdefault(size, []).append(seconds / ones[-1])
    return {size: median(ones) * median(found) for size, found in ratios.items()}


def _sizes(context: Context, end: float) -> Iterator[int]:
    """Sizes in turn, as long as time lasts."""
    sizes = SIZES if context.has_tree else CHAIN_SIZES
    for turn in range(TURNS):
        for size in sizes if turn == 0 else [small for small in sizes if small <= SMALL]:
            if (size > 2 or turn > 0) and time.perf_counter() > end:
                return
            yield size


def _decode(context: Context, tokens: list[int]) -> float:
    """Seconds of one decode behind the text."""
    start = time.perf_counter()
    context.decode(Batch(tokens, outputs=np.ones(len(tokens), np.int8)))
    took = time.perf_counter() - start
    if context.has_tree:  # a recurrent state forgets no whole decode: there the tokens pile up
        context.seq_rm(0, PAST)
    return took


def _least(action: Callable[[], None]) -> float:
    """Of a few runs; the first of all finds cold caches."""
    times = []
    for _ in range(REPEATS + 1):
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return min(times[1:])
