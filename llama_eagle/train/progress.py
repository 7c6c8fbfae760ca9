"""Progress: how far a stage is, its rate and the time left, one line now and then. Prints through what it is given."""

import time
from collections.abc import Callable

Say = Callable[[str], None]


class Progress:
    """Of a stage that does `total` of `unit`, of which `done` were there when it began. total 0: unknown."""

    def __init__(self, say: Say, stage: str, unit: str, total: float, done: float = 0, every: float = 10.0) -> None:
        self._say, self._stage, self._unit, self.total, self._every = say, stage, unit, total, every
        self._first = self.done = done
        self._began = self._said = time.monotonic()

    @property
    def rate(self) -> float:
        """A second, since it began."""
        return (self.done - self._first) / max(time.monotonic() - self._began, 1e-9)

    def at(self, done: float, note: str = "") -> None:
        """Says how far it is, at most once in `every` seconds. note: what else there is to say."""
        self.done = done
        now = time.monotonic()
        if now - self._said < self._every:
            return
        self._said = now
        left = duration((self.total - done) / self.rate) if self.total and self.rate else "unknown time"
        of = f" of {self.total:,.0f}" if self.total else ""
        self._say(f"{self._stage}: {done:,.0f}{of} {self._unit}, {self.rate:,.0f}/s, {left} left{note}")

    def end(self, note: str = "") -> None:
        """Says that the stage is over."""
        took = duration(time.monotonic() - self._began)
        self._say(f"{self._stage}: {self.done:,.0f} {self._unit} in {took}, {self.rate:,.0f}/s{note}")


def duration(seconds: float) -> str:
    """Seconds in words that fit: 45 s, 12 min, 3.5 h."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
