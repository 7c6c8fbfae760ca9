"""Audit of a run: how many prompts gave plain decoding's text in every mode. Judges no pair of texts itself."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .measure import Answer, Text
from .rows import PLAIN

KINDS = ("identical", "tie", "error")  # the worse, the later


@dataclass(frozen=True)
class Tally:
    """Prompts by their worst verdict over modes and repetitions; the fields are the JSON document's."""

    prompts: int = 0
    identical: int = 0
    ties: int = 0
    errors: int = 0


def tally(answers: Sequence[Answer], judge: Callable[[Text, Text], str]) -> Tally:
    """Compares every answer with plain decoding's of the same repetition.

    judge: the kind of two texts that differ, plain decoding's first.
    """
    plain = {_turn(answer): answer.text for answer in answers if answer.sample.mode == PLAIN}
    worst: dict[tuple[str, int], int] = {}
    for answer in answers:
        if answer.sample.mode == PLAIN:
            continue
        base = plain[_turn(answer)]
        kind = "identical" if base.tokens == answer.text.tokens else judge(base, answer.text)
        prompt = answer.sample.prompts, answer.sample.index
        worst[prompt] = max(worst.get(prompt, 0), KINDS.index(kind))
    counts = [list(worst.values()).count(level) for level in range(len(KINDS))]
    return Tally(len(worst), *counts)


def audit_line(found: Tally) -> str:
    """The counts for a person."""
    if not found.prompts:
        return "audit: none, it takes greedy decoding (--temp 0) and a mode beside plain"
    ties, errors = (f"{n} {word}{'' if n == 1 else 's'}" for n, word in ((found.ties, "tie"), (found.errors, "error")))
    share = found.ties / found.prompts
    return f"audit: {found.identical} of {found.prompts} prompts gave identical texts, {ties} ({share:.0%}), {errors}"


def _turn(answer: Answer) -> tuple[str, int, int]:
    return answer.sample.prompts, answer.sample.index, answer.sample.repeat
