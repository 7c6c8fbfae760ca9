"""Policy: what the next step of a text drafts. Fixed is the simplest one, planner/planner.py the best one known."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from .draft_pause import DraftPause
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

    def shapes(self, texts: Sequence[Any]) -> Sequence[Shape | None]:
        """The limits or nodes of the next trees of texts that are verified together, or None for a plain step."""

    def saw(self, texts: Sequence[Any], turns: Sequence[Turn], drafting: float, verifying: float) -> None:
        """Told of a step of these texts, and the seconds of its parts."""


@dataclass(frozen=True)
class Fixed:
    """Always the same shape, but for pauses where it is hardly ever right; None never drafts."""

    value: Shape | None

    def prepare(self) -> float:
        """There is nothing to find out."""
        return 0.0

    def plain_rate(self) -> float | None:
        """It measures nothing."""
        return None

    def begin(self) -> DraftPause:
        """Whether this text pauses."""
        return DraftPause()

    def shapes(self, texts: Sequence[DraftPause]) -> list[Shape | None]:
        """The given shape."""
        return [None if text.active else self.value for text in texts]

    def saw(self, texts: Sequence[DraftPause], turns: Sequence[Turn], drafting: float, verifying: float) -> None:
        """Pauses begin and end."""
        for text, turn in zip(texts, turns, strict=True):
            one = turn.drafted()
            text.count(one.nodes, one.accepted)
