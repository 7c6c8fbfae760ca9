"""The distribution that a token is drawn from, in numpy: what the native sampler computes, written as a definition.

Knows no history: penalties and grammars are the native sampler's alone.
"""

import math
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from .errors import InputError

Row = npt.NDArray[np.float32]
GREEDY = 1e-5  # temperatures below mean the argmax


class Filters(Protocol):
    """The part of the sampling parameters that needs no history. All but the temperature may be absent."""

    @property
    def temperature(self) -> float:
        """0 is greedy."""


def distribution(row: Row, params: Filters) -> npt.NDArray[np.float64]:
    """float64[n_vocab]: the probabilities of a row of logits, float32[n_vocab], after llama.cpp's filters in its order.

    Biases, top-k, top-p, min-p, then the temperature. Ties keep the smaller id. Raises InputError for penalties,
    grammars and typical-p.
    """
    _refuse_history(params)
    logits = np.array(row, dtype=np.float32)
    for token, bias in getattr(params, "biases", ()):
        logits[token] += np.float32(bias)
    order = np.argsort(-logits, kind="stable")
    order = order[logits[order] > -np.inf]
    out = np.zeros(len(logits))
    if params.temperature < GREEDY:
        out[order[0]] = 1.0
        return out
    kept = _filtered(logits, order, params)
    scaled = (logits[kept] / np.float32(params.temperature)).astype(np.float64)
    weights = np.exp(scaled - scaled.max())
    out[kept] = weights
    return out / weights.sum()


def _filtered(logits: Row, order: npt.NDArray[Any], params: Filters) -> npt.NDArray[Any]:
    """The tokens that the filters leave of `order`, the best first."""
    top_k, top_p, min_p = (getattr(params, name, off) for name, off in (("top_k", 0), ("top_p", 1.0), ("min_p", 0.0)))
    if top_k > 0:
        order = order[:top_k]
    if top_p < 1.0:
        weights = np.exp(logits[order] - logits[order[0]])
        reached = np.cumsum(weights / weights.sum(dtype=np.float32)) >= np.float32(top_p)
        order = order[: int(reached.argmax()) + 1 if reached.any() else len(order)]
    if min_p > 0.0:
        order = order[logits[order] >= logits[order[0]] + np.float32(math.log(min_p))]
    return order


def choose(probabilities: npt.NDArray[np.float64], uniform: float) -> int:
    """The token whose interval holds a uniform number: probabilities are cumulated by token id."""
    cumulated = np.cumsum(probabilities)
    at = int(np.searchsorted(cumulated, uniform * cumulated[-1], side="right"))
    return min(at, int(np.flatnonzero(probabilities)[-1]))


def _refuse_history(params: Filters) -> None:
    neutral = {"repeat_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0, "typical_p": 1.0}
    for name, value in {**neutral, "grammar": None, "json_schema": None}.items():
        given = getattr(params, name, value)
        if given != value:
            raise InputError(f"{name} {given!r} is not computed here: use a Sampler")
