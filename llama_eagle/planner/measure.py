"""Measures what steps cost: a short calibration in small contexts of its own, so that no text is disturbed.

The tokens are varied: experts differ by token. Sizes come in the order of their use, and what there is no time for is
interpolated and corrected by the steps themselves.
"""

import time
from collections.abc import Callable

import numpy as np

from ..batch import Batch
from ..context import Context
from ..draft import Drafter
from ..model import Model
from ..tree import TreeShape
from .step_costs import StepCosts

SECONDS = 2.0  # at most, but for what one decode of each kind takes
SIZES = (1, 2, 4, 9, 3, 5, 17, 8, 6, 12, 33, 16, 24, 32, 64)
WIDTHS = (1, 4, 8)
DEPTH = 3  # of the trees that a level's cost is taken from
REPEATS = 3
PAST = 64  # tokens of context


def measure(target: Model, draft: Model, tokens: list[int], n_threads: int) -> StepCosts:
    """Times decodes of 1, 2, ... tokens, and drafts; tokens: at least 65, of ordinary text."""
    end = time.perf_counter() + SECONDS
    with Context(target, draft.info.features, n_ctx=256, n_threads=n_threads) as context:
        context.decode(Batch(tokens[:PAST]))
        features = context.features()
        with Context(draft, n_ctx=512, n_threads=n_threads) as small:
            first, level = _draft(Drafter(small), tokens, features)
        return StepCosts(_verify(context, tokens, end), first, level)


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
        levels[width] = max(_least(lambda shape=shape: grow(shape)) - first, 0.0) / (DEPTH - 1)
    return first, levels


def _verify(context: Context, tokens: list[int], end: float) -> dict[int, float]:
    """Seconds to decode so many tokens at once."""

    def decode(size: int) -> None:
        context.decode(Batch(tokens[:size], outputs=np.ones(size, np.int8)))
        context.seq_rm(0, PAST)

    seconds: dict[int, float] = {}
    for size in SIZES:
        if size > 2 and time.perf_counter() > end:
            break
        seconds[size] = _least(lambda size=size: decode(size))
    return seconds


def _least(action: Callable[[], None]) -> float:
    """Of a few runs; the first of all finds cold caches."""
    times = []
    for _ in range(REPEATS + 1):
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return min(times[1:])
