"""Contexts of tiny targets with recurrent layers, and what must be true of a sequence that was taken back."""

from typing import Any

import numpy as np

from llama_eagle import Batch, Context, Model
from loops import EXACT

LENGTH = 4  # of a chain, without its root
TOLERANCE = 1e-4  # relative to the largest logit
ROLLBACK = ("lfm2", "qwen35", "nemotron_h", "lfm2 with windows")


def open_context(model: Model, **params: Any) -> Context:
    return Context(model, **{"n_ctx": 256, "n_rollback": LENGTH, "n_seq_max": 4, **EXACT, **params})


def words(rng: np.random.Generator, count: int) -> list[int]:
    return [int(t) for t in rng.integers(3, 250, count)]


def expected(model: Model, tokens: list[int], **params: Any) -> np.ndarray:
    """Logits behind each token in a context that decodes nothing else."""
    with open_context(model, **params) as context:
        context.decode(Batch(tokens, outputs=[1] * len(tokens)))
        return context.logits()


def error(got: np.ndarray, want: np.ndarray) -> float:
    return float(np.abs(got - want).max() / np.abs(want).max())


def check_goes_on(context: Context, seq_id: int, tokens: list[int], **params: Any) -> None:
    """A sequence holds `tokens`, in its state and in its attention cells; one more token is decoded for that."""
    assert context.n_past(seq_id) == len(tokens)
    context.decode(Batch([7], seq_id=seq_id))
    assert error(context.logits()[-1], expected(context.model, [*tokens, 7], **params)[-1]) < TOLERANCE
