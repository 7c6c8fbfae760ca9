"""StepCosts: seconds that the parts of a step take, by size. Measured once, then corrected by the steps themselves.

Pure arithmetic on short lists, for it runs between two decodes; measure.py does the measuring. All sizes follow the
machine's pace, which every step tells, and what one size takes to the others is moved by little, by its own steps.
"""

from bisect import bisect_left
from collections.abc import Mapping
from math import inf
from typing import Any

import numpy as np

PACE = 0.1  # how far a step moves all sizes, for the machine's pace drifts
OWN = 0.1  # how far a step moves its own size besides
READ = 15e9  # bytes a second, of a usual machine
USUAL = {1: 1.0, 2: 1.2, 4: 1.6, 9: 2.8, 17: 5.0, 64: 18.0}  # how long so many tokens take there, to one
MOST = 1.1  # no step alone counts as slower or faster: estimates follow the usual step, not a mean of disturbed ones


class StepCosts:
    """Interpolates between measured sizes and goes on with the last slope.

    verify: seconds by tokens of one decode of the target, of one token at least. first_level: seconds to catch up and
    to draft the root's children; level: of each further level, by the width of its beam.
    """

    def __init__(self, verify: Mapping[int, float], first_level: float, level: Mapping[int, float]) -> None:
        self._verify = _Curve(verify)
        self._level = _Curve(level)
        self._first = first_level
        self._streak = 0  # drafts on end that took more than was believed; below 0: that took less

    @staticmethod
    def usual(target_bytes: int, draft_bytes: int) -> "StepCosts":
        """A guess from the sizes of both models, for the steps to correct: memory read once, arithmetic on top."""
        one, level = target_bytes / READ, draft_bytes / READ
        verify = {n: one * factor for n, factor in USUAL.items()}
        return StepCosts(verify, 2.0 * level, {1: level, 8: 2.0 * level})

    def verify(self, tokens: float) -> float:
        """Seconds to decode so many tokens at once; a mean number between two lies between their costs."""
        return self._verify.at(tokens)

    def added(self, tokens: float, most: int) -> list[float]:
        """Seconds that 1, 2, ... `most` tokens add to a decode of so many."""
        return self._verify.added(tokens, most)

    def draft(self, depth: int, width: int) -> float:
        """Seconds to draft so many levels, each but the first a decode of `width` nodes."""
        return self._first + (depth - 1) * self._level.at(width)

    def level(self, width: int) -> float:
        """Seconds to draft a further level."""
        return self._level.at(width)

    def saw_verify(self, tokens: int, seconds: float) -> None:
        """Takes in one decode of the target."""
        self._verify.saw(tokens, _within(seconds / self._verify.at(tokens), MOST))

    def saw_draft(self, depth: int, width: int, seconds: float) -> None:
        """Takes in one tree. The more of them on end are slower, or faster, the more of that is believed."""
        ratio = seconds / self.draft(depth, width)
        side = (ratio > MOST) - (ratio < 1 / MOST)
        self._streak = side if side * self._streak <= 0 else self._streak + side
        ratio = _within(ratio, MOST ** max(abs(self._streak), 1))
        self._first *= ratio**PACE
        if depth > 1:
            self._level.saw(width, ratio)

    def as_dict(self) -> dict[str, object]:
        """What from_dict() takes; JSON."""
        return {"verify": self._verify.points(), "level": self._level.points(), "first_level": self._first}

    @staticmethod
    def from_dict(stored: Mapping[str, Any]) -> "StepCosts":
        """What as_dict() made; raises ValueError, TypeError or KeyError for something else."""
        curves = [{int(n): _positive(seconds) for n, seconds in stored[name].items()} for name in ("verify", "level")]
        if not all(curves) or 1 not in curves[0]:
            raise ValueError(f"no costs: {stored}")
        return StepCosts(curves[0], _positive(stored["first_level"]), curves[1])


class _Curve:
    """Seconds by size, linear between its points and beyond the last one."""

    def __init__(self, points: Mapping[int, float]) -> None:
        self._sizes = sorted(points)
        self._seconds = [points[size] for size in self._sizes]

    def points(self) -> dict[int, float]:
        return dict(zip(self._sizes, self._seconds, strict=True))

    def at(self, size: float) -> float:
        after = bisect_left(self._sizes, size)
        if after == 0 or len(self._sizes) == 1:
            return self._seconds[0]
        after = min(after, len(self._sizes) - 1)
        n, seconds = self._sizes[after - 1], self._seconds[after - 1]
        slope = (self._seconds[after] - seconds) / (self._sizes[after] - n)
        if size > self._sizes[after]:
            slope = max(slope, 0.0)
            n, seconds = self._sizes[after], self._seconds[after]
        return seconds + slope * (size - n)

    def added(self, size: float, most: int) -> list[float]:
        sizes = np.arange(1, most + 1) + size
        seconds = np.interp(sizes, self._sizes, self._seconds)
        last = self._sizes[-1]
        if sizes[-1] > last:
            slope = self.at(last + 1) - self.at(last)
            seconds += slope * np.maximum(sizes - last, 0.0)
        added: list[float] = (seconds - self.at(size)).tolist()
        return added

    def saw(self, size: float, ratio: float) -> None:
        """Takes in what a size took, as a ratio to what at() says."""
        after = min(bisect_left(self._sizes, size), len(self._sizes) - 1)
        beside = {after} if self._sizes[after] == size else {max(after - 1, 0), after}
        for at in range(len(self._seconds)):
            self._seconds[at] *= ratio ** (PACE + OWN if at in beside else PACE)


def _positive(seconds: float) -> float:
    if not 0.0 < float(seconds) < inf:
        raise ValueError(f"no time: {seconds}")
    return float(seconds)


def _within(ratio: float, most: float) -> float:
    return min(max(ratio, 1 / most), most)
