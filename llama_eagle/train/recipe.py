"""Recipe: how a head is trained, and what is due at each point of the training. Pure."""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class Recipe:
    """epochs: over all texts. hours: of fitting at most, 0 for no limit. batch: rows of a step. unroll: most steps.

    first: steps of the unroll in the beginning. negatives: tokens that are drawn beside those of the targets.
    muon, adam: rates of the optimizers at their highest.
    """

    epochs: int = 3
    hours: float = 0.0
    batch: int = 2048
    unroll: int = 5
    first: int = 2
    negatives: int = 1024
    muon: float = 0.02
    adam: float = 1e-3
    seed: int = 0

    def fraction(self, texts: int, total: int, seconds: float) -> float:
        """How much of the training is done, by texts or by time, whichever is further."""
        by_time = seconds / (3600 * self.hours) if self.hours else 0.0
        return max(texts / max(total * self.epochs, 1), by_time)


WARM_UP = 0.02  # share of the training in which the rates rise
LEAST = 0.02  # of the rates, in the end


def rate(fraction: float) -> float:
    """The share of the highest rate: up in a straight line, down as a cosine."""
    if fraction < WARM_UP:
        return (fraction + 1e-3) / (WARM_UP + 1e-3)
    done = min((fraction - WARM_UP) / (1 - WARM_UP), 1.0)
    return LEAST + (1 - LEAST) * 0.5 * (1 + math.cos(math.pi * done))


def steps(fraction: float, first: int, most: int) -> int:
    """Steps of the unroll: from `first` up to `most`, each for the same time."""
    first = min(first, most)
    return min(first + int(fraction * (most - first + 1)), most)


def order(count: int, seed: int, epoch: int) -> npt.NDArray[np.int64]:
    """The order of the texts in an epoch."""
    return np.random.default_rng([seed, epoch]).permutation(count)
