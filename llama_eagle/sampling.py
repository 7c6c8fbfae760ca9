"""SamplingParams: how tokens are chosen and when a text ends. Plain data; defaults are stated here and nowhere else."""

from dataclasses import dataclass

from .errors import InputError


@dataclass(frozen=True)
class SamplingParams:
    """temperature 0 is greedy, the only choice so far. max_tokens -1: until the end token or a full context.

    stop: texts that end the answer and are not part of it. ignore_eos: go on behind end tokens.
    """

    temperature: float = 0.0
    seed: int = 0
    max_tokens: int = -1
    stop: tuple[str, ...] = ()
    ignore_eos: bool = False

    def __post_init__(self) -> None:
        if self.temperature != 0.0:
            raise InputError(f"temperature {self.temperature!r}: only greedy decoding works so far, use temperature 0")
        if not isinstance(self.max_tokens, int) or self.max_tokens < -1:
            raise InputError(f"max_tokens must be -1 or an int of 0 or more, got {self.max_tokens!r}")
        if isinstance(self.stop, str) or not all(isinstance(s, str) and s for s in self.stop):
            raise InputError(f"stop must be a tuple of non-empty texts, got {self.stop!r}")
