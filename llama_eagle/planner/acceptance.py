"""Acceptance: how often a drafted node is accepted, by its depth and the draft's own probability of its path.

A draft that is too sure of itself, or of another text than it was trained for, is corrected by what was accepted. Pure
arithmetic on counts; knows no costs.
"""

import numpy as np
import numpy.typing as npt

DEPTHS = 8  # deeper nodes count with the deepest
BINS = 12  # of half a unit of log probability
PER_UNIT = 2
BELIEF = 4.0  # nodes that the draft's own probability counts for, in each bin
MEMORY = 0.998  # of older nodes, a step later

Floats = npt.NDArray[np.float64]
Depths = npt.NDArray[np.int32]
Scores = npt.NDArray[np.float32]


class Acceptance:
    """Counts of nodes and of those accepted, by depth and log probability of their path."""

    def __init__(self) -> None:
        middle = np.exp(-(np.arange(BINS) + 0.5) / PER_UNIT)
        self._tried = np.full((DEPTHS, BINS), BELIEF)
        self._right = np.tile(BELIEF * middle, (DEPTHS, 1))

    def of(self, depths: Depths, scores: Scores) -> Floats:
        """Expected share of such nodes that is accepted; depths int32[n], from 1 on, scores float32[n]."""
        at = _bins(depths, scores)
        share: Floats = self._right[at] / self._tried[at]
        return share

    def saw(self, depths: Depths, scores: Scores, accepted: npt.NDArray[np.bool_]) -> None:
        """Takes in the nodes of a verified tree."""
        at = _bins(depths, scores)
        self._tried *= MEMORY
        self._right *= MEMORY
        np.add.at(self._tried, at, 1.0)
        np.add.at(self._right, at, accepted)


def _bins(depths: Depths, scores: Scores) -> tuple[npt.NDArray[np.intp], ...]:
    rows = np.minimum(depths, DEPTHS) - 1
    columns = np.clip(-scores * PER_UNIT, 0, BINS - 1)
    return rows.astype(np.intp), columns.astype(np.intp)
