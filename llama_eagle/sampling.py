"""SamplingParams: how tokens are chosen and when a text ends. Plain data; defaults are stated here and nowhere else.

They are llama.cpp's, and so is their meaning. Opens no native library.
"""

import json
import math
import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from .errors import InputError

RANDOM_SEEDS = (None, -1, 2**32 - 1)  # the last is llama.cpp's own
MOST_LAST_N = 2**20
MOST_LOGPROBS = 20

# name: least, most, what to say
_RANGES: dict[str, tuple[float, float, str]] = {
    "temperature": (0.0, 1e6, "0 (greedy) or more"),
    "top_p": (0.0, 1.0, "in [0, 1]"),
    "min_p": (0.0, 1.0, "in [0, 1]"),
    "typical_p": (0.0, 1.0, "in [0, 1]"),
    "repeat_penalty": (1e-6, 1e6, "greater than 0 (1: none)"),
    "presence_penalty": (-1e6, 1e6, "a finite number (0: none)"),
    "frequency_penalty": (-1e6, 1e6, "a finite number (0: none)"),
}
_LEAST = {"top_k": (-1, 2**31 - 1), "repeat_last_n": (0, MOST_LAST_N), "max_tokens": (-1, 2**63 - 1)}


@dataclass(frozen=True)
class SamplingParams:
    """temperature 0 is greedy. seed: None and -1 draw one, which the result reports.

    logit_bias: token id -> what is added to its logit, -inf to forbid it. repeat_last_n: how many tokens, those of the
    prompt among them, the three penalties look at. grammar: GBNF with a rule `root`; json_schema: a schema as text or
    as Python objects; both end the text where they end. max_tokens -1: until the end token or a full context. stop:
    texts that end the answer and are not part of it. ignore_eos: go on behind end tokens.
    logprobs: of the emitted tokens and of so many of the target's likeliest ones, 20 at most; None: not wanted.
    """

    temperature: float = 0.8
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    typical_p: float = 1.0
    repeat_penalty: float = 1.0
    repeat_last_n: int = 64
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: tuple[tuple[int, float], ...] | Mapping[int, float] = ()
    seed: int | None = -1
    grammar: str | None = None
    json_schema: str | dict[str, Any] | None = None
    max_tokens: int = -1
    stop: tuple[str, ...] = ()
    ignore_eos: bool = False
    logprobs: int | None = None

    def __post_init__(self) -> None:
        for name, (least, most, wanted) in _RANGES.items():
            value = getattr(self, name)
            if not _is_number(value) or not least <= value <= most:
                raise InputError(f"{name} must be {wanted}, got {value!r}")
        for name, (first, last) in _LEAST.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not first <= value <= last:
                raise InputError(f"{name} must be an int in [{first}, {last}], got {value!r}")
        seed = self.seed
        if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int) or not -1 <= seed < 2**32):
            raise InputError(f"seed must be -1 (random) or an int in [0, {2**32 - 1}], got {seed!r}")
        k = self.logprobs
        if k is not None and (isinstance(k, bool) or not isinstance(k, int) or not 0 <= k <= MOST_LOGPROBS):
            raise InputError(f"logprobs must be None or an int in [0, {MOST_LOGPROBS}], got {k!r}")
        if isinstance(self.stop, str) or not all(isinstance(s, str) and s for s in self.stop):
            raise InputError(f"stop must be a tuple of non-empty texts, got {self.stop!r}")
        object.__setattr__(self, "logit_bias", _biases(self.logit_bias))
        self._check_grammar()

    def _check_grammar(self) -> None:
        if self.grammar is not None and not isinstance(self.grammar, str):
            raise InputError(f"grammar must be a text in GBNF, got {type(self.grammar).__name__}")
        if not isinstance(self.json_schema, str | dict | None):
            raise InputError(f"json_schema must be a text or a dict, got {type(self.json_schema).__name__}")
        if isinstance(self.json_schema, str):  # now, and not when a model has been loaded for it
            try:
                json.loads(self.json_schema)
            except (ValueError, RecursionError) as error:
                raise InputError(f"json_schema is not JSON: {error}") from None
        if self.grammar is None and self.json_schema is None:
            return
        if self.grammar is not None and self.json_schema is not None:
            raise InputError("grammar and json_schema both say what the text may be: leave one of them out")
        if self.ignore_eos:
            raise InputError("ignore_eos has no meaning with a grammar, which ends with the end token: leave it out")

    @property
    def biases(self) -> tuple[tuple[int, float], ...]:
        """logit_bias as pairs."""
        return tuple(self.logit_bias.items()) if isinstance(self.logit_bias, Mapping) else self.logit_bias

    def seeded(self) -> "SamplingParams":
        """These parameters with a seed that is a number: a random one where none was given."""
        if self.seed not in RANDOM_SEEDS:
            return self
        return replace(self, seed=random.SystemRandom().randrange(2**32 - 1))

    def as_settings(self) -> dict[str, Any]:
        """What a result reports: plain JSON, minus infinity as the text "-inf"."""
        bias = {str(token): "-inf" if value == -math.inf else value for token, value in self.biases}
        return {**vars(self), "logit_bias": bias, "stop": list(self.stop)}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _biases(given: Any) -> tuple[tuple[int, float], ...]:
    """Pairs of token and bias. Raises InputError for anything else."""
    try:
        pairs = tuple((token, bias) for token, bias in (given.items() if isinstance(given, Mapping) else given))
    except (TypeError, ValueError):
        raise InputError(f"logit_bias must be a dict of token ids to numbers, got {given!r}") from None
    for token, bias in pairs:
        if isinstance(token, bool) or not isinstance(token, int) or not 0 <= token < 2**31:
            raise InputError(f"logit_bias must be for token ids, got {token!r}")
        if not _is_number(bias) or not (bias == -math.inf or abs(bias) <= 1e6):
            raise InputError(f"logit_bias must be a number of at most 1e6 or -inf, got {bias!r} for token {token}")
    return pairs
