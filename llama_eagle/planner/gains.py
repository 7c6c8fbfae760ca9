"""Gains: how many drafted tokens a tree of some shape is expected to have accepted, learned from trees of other shapes.

The best m nodes of a tree that are no deeper than d are the tree that a draft of m nodes and depth d would have had
(EAGLE-2's choice is by score), so every tree teaches about all smaller ones. About larger ones it says how much better
or worse than usual its last node was.
"""

from heapq import heapify, heappop, heappush

import numpy as np

from .acceptance import DEPTHS, Acceptance, Depths, Floats, Scores

NODES = 64
RATE = 0.1  # how far one tree moves what is expected
GUESSES = (0.62, 0.13, 0.07, 0.04, 0.03, 0.02, 0.01, 0.01)  # how often usual heads' best, second ... guess is right


class Gains:
    """worth[d, r]: expected acceptance of the r-th best node among those no deeper than d + 1."""

    def __init__(self) -> None:
        self._worth = np.array([usual(depth) for depth in range(1, DEPTHS + 1)])
        self._chain: Floats = np.power(GUESSES[0], np.arange(1.0, DEPTHS + 1))

    def trees(self) -> Floats:
        """Tokens accepted of trees, the root's token not counted: [d, n - 1] of n nodes and d + 1 levels."""
        return np.cumsum(self._worth, axis=1)

    def chains(self) -> Floats:
        """Tokens accepted of chains of 1, 2, ... nodes."""
        return np.cumsum(self._chain)

    def saw(self, depths: Depths, scores: Scores, acceptance: Acceptance) -> None:
        """Takes in a tree that was drafted, depths and scores [n]."""
        worth = acceptance.of(depths, scores)
        order = np.argsort(-scores, kind="stable")[:NODES]
        deepest = min(int(depths[-1]), DEPTHS)
        best = np.array([worth[depths == d + 1].max() for d in range(deepest)])
        self._move(self._chain, best)
        for d in range(DEPTHS):  # a deeper draft would have had these nodes, too
            self._move(self._worth[d], worth[order[depths[order] <= d + 1]])

    def _move(self, expected: Floats, seen: Floats) -> None:
        """Moves the first values towards what was seen, and the others as far as the last of these moved."""
        n = len(seen)
        last = expected[n - 1]
        expected[:n] += RATE * (seen - expected[:n])
        if last > 0.0:
            expected[n:] = np.minimum(expected[n:] * (expected[n - 1] / last), expected[n - 1])


def usual(depth: int) -> Floats:
    """Acceptance of the 64 best nodes of a usual head's tree of so many levels, best first; 0 where it has fewer."""
    ready = [(-share, 1) for share in GUESSES]
    heapify(ready)
    found: list[float] = []
    while ready and len(found) < NODES:
        share, level = heappop(ready)
        found.append(-share)
        for guess in GUESSES if level < depth else ():
            heappush(ready, (share * guess, level + 1))
    return np.array(found + [0.0] * (NODES - len(found)))
