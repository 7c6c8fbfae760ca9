"""Slot: one sequence of a target and its draft. Which tokens were decoded, which wait, and how long that took."""

from dataclasses import dataclass, field
from typing import Any

from .distribution import GREEDY
from .errors import EagleError
from .sampler import Sampler
from .turn import Turn


@dataclass
class Seconds:
    """Time spent in each part of the loop, in seconds; steps of several sequences count for each of them."""

    calibrate: float = 0.0
    prefill: float = 0.0
    draft: float = 0.0
    verify: float = 0.0
    decode: float = 0.0


@dataclass
class Slot:
    """A sequence and what it is in the middle of.

    tokens: those the target has decoded. waiting: those it is to decode, the last of which is the root. left: how many
    may still be emitted. started: the prompt is over. follows: the draft has seen `tokens`, or has them waiting.
    failure: why no token could be chosen. shifted: its context was, so that its cells are no prefix of any prompt.
    plan: what the policy remembers of its text.
    """

    seq_id: int = 0
    tokens: list[int] = field(default_factory=list)
    waiting: list[int] = field(default_factory=list)
    left: int = 0
    started: bool = False
    sampler: Sampler | None = None
    follows: bool = False
    failure: EagleError | None = None
    busy: bool = False
    shifted: bool = False
    seconds: Seconds = field(default_factory=Seconds)
    plan: Any = None

    def __post_init__(self) -> None:
        self.turn = Turn(self.seq_id)

    @property
    def samples(self) -> bool:
        """Whether its tokens are drawn, at a temperature above 0."""
        return self.sampler is not None and self.sampler.params.temperature >= GREEDY

    @property
    def has_prompt(self) -> bool:
        """Whether a piece of a prompt waits, and no root alone."""
        return len(self.waiting) > 1 or not self.started

    def common(self, tokens: list[int]) -> int:
        """How many tokens it has decoded that `tokens` begins with."""
        count = 0
        for cached, wanted in zip(self.tokens, tokens, strict=False):
            if cached != wanted:
                break
            count += 1
        return count
