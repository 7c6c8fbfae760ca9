"""What is said about an answer on stderr: the closing line and notes. Reads results, generates nothing."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..result import Result


def say(text: str) -> None:
    """One line on stderr."""
    print(text, file=sys.stderr, flush=True)


def note(text: str) -> None:
    """One line on stderr that tells of something unexpected but harmless."""
    say(f"note: {text}")


def closing_line(result: Result, loss: float | None) -> str:
    """Tokens, speed and what drafting gained. `loss`: what a draft that was left out would have cost, as a share."""
    timings, count = result.timings, result.completion_tokens
    parts = [f"{count} token{'' if count == 1 else 's'}"]
    if timings.tokens_per_s:
        parts.append(f"{_number(timings.tokens_per_s)} tok/s")
    if loss is not None:
        return ", ".join([*parts, f"plain: drafting would have cost {loss:.0%}, -v explains"])
    if not result.spec.drafted:
        return ", ".join([*parts, "plain"])
    plain = timings.plain_tokens_per_s
    if plain and timings.tokens_per_s:
        parts.append(f"{timings.tokens_per_s / plain:.2f}x plain ({_number(plain)})")
    parts.append(f"{result.spec.emitted / result.spec.steps:.1f} tokens a step")
    return ", ".join([*parts, _shape(result)])


def positions(result: Result) -> str:
    """How well the draft guessed along the context."""
    rates = [f"{rate:.1f} from {first}" for first, rate in result.spec.by_position()]
    return f"tokens a step by position: {', '.join(rates)}"


def graphs(result: Result) -> str:
    """How many graphs its steps built and used again."""
    return f"graphs: {result.spec.graphs_built} built, {result.spec.graphs_reused} used again"


def full_context(result: Result) -> str | None:
    """What to do about an answer that ended because the context is full, or None."""
    if not result.context_full:
        return None
    used = result.prompt_tokens + result.completion_tokens - 1  # the last token was not decoded
    return f"the context of {used} tokens is full, the answer is cut: raise -c or shorten the prompt"


def _shape(result: Result) -> str:
    sizes = {name: steps for name, steps in result.spec.shapes.items() if name != "plain"}
    usual = max(sizes, key=lambda name: sizes[name])
    kind = "chains" if result.spec.mode == "chain" else "trees"
    return f"{kind} of {usual}"


def _number(rate: float) -> str:
    return f"{rate:.0f}" if rate >= 10 else f"{rate:.1f}"
