"""From single answers to the table: medians of speeds, and of ratios to plain decoding. Pure arithmetic."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from ..errors import InputError

PLAIN = "plain"


@dataclass(frozen=True)
class Sample:
    """One answer: the set and the number of its prompt, which repetition it was, the mode, and how it went.

    steps and emitted: decodes behind the prefill, and tokens that they gave. tokens_per_s: 0 where there was no step.
    """

    prompts: str
    index: int
    repeat: int
    mode: str
    tokens_per_s: float
    steps: int
    emitted: int


@dataclass(frozen=True)
class Row:
    """One line of the table. tokens_per_s: median over prompts. speedup: median of each prompt's ratio to plain."""

    prompts: str
    mode: str
    tokens_per_s: float
    tokens_per_step: float
    speedup: float


def rows(samples: Sequence[Sample]) -> list[Row]:
    """A row for each set of prompts and mode, in the order in which they first came.

    Raises InputError where no answer of a set was long enough to be timed.
    """
    sets = dict.fromkeys(sample.prompts for sample in samples)
    modes = dict.fromkeys(sample.mode for sample in samples)
    return [_row(prompts, mode, samples) for prompts in sets for mode in modes]


def overall(samples: Sequence[Sample]) -> dict[str, float]:
    """For each mode the median ratio to plain over the prompts of all sets."""
    modes = dict.fromkeys(sample.mode for sample in samples)
    return {mode: median(ratios(samples, mode).values()) for mode in modes}


def speeds(samples: Iterable[Sample], mode: str) -> dict[tuple[str, int], float]:
    """Tokens a second of each prompt in a mode, the median of its repetitions; without prompts that were not timed."""
    found: dict[tuple[str, int], list[float]] = {}
    for sample in samples:
        if sample.mode == mode and sample.tokens_per_s > 0:
            found.setdefault((sample.prompts, sample.index), []).append(sample.tokens_per_s)
    return {prompt: median(values) for prompt, values in found.items()}


def ratios(samples: Sequence[Sample], mode: str, to: str = PLAIN) -> dict[tuple[str, int], float]:
    """The ratio to another mode of each prompt: of answers of the same repetition, the median of these."""
    others = {(s.prompts, s.index, s.repeat): s.tokens_per_s for s in samples if s.mode == to}
    found: dict[tuple[str, int], list[float]] = {}
    for sample in samples:
        base = others[sample.prompts, sample.index, sample.repeat]
        if sample.mode == mode and base > 0 and sample.tokens_per_s > 0:
            found.setdefault((sample.prompts, sample.index), []).append(sample.tokens_per_s / base)
    return {prompt: median(values) for prompt, values in found.items()}


def _row(prompts: str, mode: str, samples: Sequence[Sample]) -> Row:
    of_set = [sample for sample in samples if sample.prompts == prompts]
    gains = ratios(of_set, mode)
    if not gains:
        raise InputError(f"{prompts}: each answer ended with its first token, so there is nothing to time")
    own = [sample for sample in of_set if sample.mode == mode]
    emitted, steps = sum(s.emitted for s in own), sum(s.steps for s in own)
    return Row(prompts, mode, median(speeds(own, mode).values()), emitted / steps, median(gains.values()))
