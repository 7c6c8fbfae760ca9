"""Prompts to measure with: of JSON lines files, and a few that are built in. Knows no model."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from ..errors import InputError

BUILT_IN = "built-in"
_TEXTS = (
    "My neighbour waters the garden at noon and wonders why the leaves turn brown. What would you tell her?",
    "Write a Python function that takes a list of words and returns the longest one that reads the same backwards.",
    "A train leaves at 9:40 and needs 2 hours and 35 minutes. It waits 12 minutes at a signal. When does it arrive? "
    "Show each step.",
    "Rewrite this more politely: Your report is late again, half of the numbers are missing, and nobody told me why.",
    "Explain to a ten-year-old how a lock on a canal lifts a boat.",
    "List five things to check before lending somebody a bicycle, with a reason for each.",
)


@dataclass(frozen=True)
class Prompt:
    """What a person says first in a conversation, and where it was read: for error messages."""

    text: str
    where: str


@dataclass(frozen=True)
class PromptSet:
    """The prompts of one file, under the name that rows carry."""

    name: str
    prompts: tuple[Prompt, ...]


def prompt_sets(files: Sequence[str], limit: int | None = None) -> list[PromptSet]:
    """The first `limit` prompts of each file, of the built-in ones without any.

    Raises InputError with file and line for what is no prompt, OSError for a file that cannot be read.
    """
    if not files:
        texts = _TEXTS[:limit]
        return [PromptSet(BUILT_IN, tuple(Prompt(text, f"{BUILT_IN} {i}") for i, text in enumerate(texts, 1)))]
    stems = [Path(file).stem for file in files]
    names = stems if len(set(stems)) == len(stems) else list(files)
    if len(set(names)) < len(names):
        raise InputError("--prompts names a file twice: give each once, --repeat measures more often")
    return [PromptSet(name, _read(file, limit)) for name, file in zip(names, files, strict=True)]


def _read(file: str, limit: int | None) -> tuple[Prompt, ...]:
    prompts = tuple(islice(_prompts(file), limit))
    if not prompts:
        raise InputError(f"{file} has no prompts: give one JSON object a line")
    return prompts


def _prompts(file: str) -> Iterator[Prompt]:
    with open(file, "rb") as lines:
        for number, line in enumerate(lines, 1):
            if line.strip():
                where = f"{file} line {number}"
                yield Prompt(_text(line, where), where)


def _text(line: bytes, where: str) -> str:
    try:
        value: Any = json.loads(line.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        reason = "not UTF-8 text" if isinstance(error, UnicodeDecodeError) else "not JSON"
        raise InputError(f"{where} is {reason}: {_shown(line)}") from None
    text = _first(value)
    if not isinstance(text, str) or not text:
        raise InputError(f'{where} is no prompt, expected {{"turns": ["..."]}} or {{"prompt": "..."}}: {_shown(line)}')
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise InputError(f"{where} holds half of a surrogate pair: {_shown(line)}") from None
    return text


def _first(value: Any) -> Any:
    if not isinstance(value, dict):
        return None
    turns = value.get("turns")
    return turns[0] if isinstance(turns, list) and turns else value.get("prompt")


def _shown(line: bytes) -> str:
    text = line.decode("utf-8", "replace").strip()
    return text if len(text) <= 60 else f"{text[:57]}..."
