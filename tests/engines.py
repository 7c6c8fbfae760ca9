"""Engines over tiny pairs with exact arithmetic, settings to ask them with, and what they have in use."""

from typing import Any

from llama_eagle import Engine, SamplingParams
from loops import EXACT
from tiny import TinyPair

SETTINGS: list[dict[str, Any]] = [
    {"temperature": 0},
    {"seed": 3},
    {"seed": 4, "temperature": 1.3, "repeat_penalty": 1.2},
    {"seed": 5, "top_k": 0, "min_p": 0.0},
]


def engine(pair: TinyPair, **options: Any) -> Engine:
    given = {"spec": "tree", "n_ctx": 2048, "n_parallel": 8, **EXACT}
    return Engine(pair.target.path, pair.path, **{**given, **options})


def params(number: int, count: int = 30, **changes: Any) -> SamplingParams:
    values = {**SETTINGS[number % len(SETTINGS)], "max_tokens": count, "ignore_eos": True, **changes}
    return SamplingParams(**values)


def cells(engine: Engine) -> int:
    draft = engine.pair.drafter
    return engine.pair.target.cells_used() + (draft.context.cells_used() if draft else 0)
