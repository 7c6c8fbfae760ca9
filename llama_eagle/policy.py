"""Policy: what the next step of a text drafts. Fixed is the simplest one, planner/planner.py the best one known."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from .static_tree import Shape
from .turn import Turn


class Policy(Protocol):
    """Chooses the next draft tree; any may follow any other in the middle of a text."""

    def prepare(self) -> float:
        """Called before each step, for what must be found out once. Returns the seconds that this took."""

    def plain_rate(self) -> float | None:
        """Tokens a second of plain decoding, where it knows that."""

    def begin(self) -> Any:
        """What it wants to remember of a new text."""

    def shape(self, text: Any, count: int = 1) -> Shape | None:
        """The limits or nodes of a text's next tree, or None for a plain step. `count` texts are verified together."""

    def saw(self, texts: Sequence[Any], turns: Sequence[Turn], drafting: float, verifying: float) -> None:
        """Told of a step of these texts, and the seconds of its parts."""


@dataclass(frozen=True)
class Fixed:
    """Always the same shape; None never drafts."""

    value: Shape | None

    def prepare(self) -> float:
        """There is nothing to find out."""
        return 0.0

    def plain_rate(self) -> float | None:
        """It measures nothing."""
        return None

    def begin(self) -> None:
        """It remembers nothing."""

    def shape(self, text: Any, count: int = 1) -> Shape | None:
        """The given shape."""
        return self.value

    def saw(self, texts: Sequence[Any], turns: Sequence[Turn], drafting: float, verifying: float) -> None:
        """Nothing changes it."""
