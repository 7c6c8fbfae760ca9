"""SamplerState: what brings a Sampler back: its parameters, the prompt and the tokens behind it.

Draw i of a text is number i of the seed's stream, and penalties and grammars follow from the tokens: nothing of the
native sampler need be kept. Opens no native library.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from .checks import vector
from .errors import InputError, SessionError
from .sampling import SamplingParams

PARAMS, PROMPT, ACCEPTED = "sampling", "prompt", "tokens"  # names of the sections


class Feedable(Protocol):
    """What a Sampler is to this module."""

    def prompt(self, tokens: list[int]) -> None: ...

    def accept(self, token: int) -> None: ...


def tokens_to_bytes(tokens: Sequence[int]) -> bytes:
    """Token ids as little-endian int32. Raises InputError for what is none."""
    return vector("tokens", tokens if len(tokens) else np.empty(0, np.int32), np.int32).astype("<i4").tobytes()


def tokens_from_bytes(data: bytes) -> list[int]:
    """The reverse. Raises SessionError for a length that is no multiple of 4, or a negative id."""
    if len(data) % 4:
        raise SessionError(f"a list of tokens has {len(data)} bytes, expected a multiple of 4")
    ids = np.frombuffer(data, dtype="<i4")
    if len(ids) and ids.min() < 0:
        raise SessionError(f"a list of tokens holds the id {ids.min()}")
    return [int(token) for token in ids]


@dataclass(frozen=True)
class SamplerState:
    """params: with a seed that is a number (Sampler.params). prompt: as given to Sampler.prompt. accepted: all tokens
    behind it, whoever chose them."""

    params: SamplingParams
    prompt: tuple[int, ...]
    accepted: tuple[int, ...]

    def to_sections(self) -> dict[str, bytes]:
        """Sections of a Session. Raises InputError where the seed is not a number yet."""
        if self.params.seed is None or self.params.seed < 0:
            raise InputError(f"the seed {self.params.seed} would be drawn anew: take the sampler's params, not yours")
        text = json.dumps(self.params.as_settings(), allow_nan=False)
        return {
            PARAMS: text.encode(),
            PROMPT: tokens_to_bytes(self.prompt),
            ACCEPTED: tokens_to_bytes(self.accepted),
        }

    @staticmethod
    def from_sections(sections: Mapping[str, bytes]) -> "SamplerState":
        """The reverse. Raises SessionError where a section is missing or is no such thing."""
        for name in (PARAMS, PROMPT, ACCEPTED):
            if name not in sections:
                raise SessionError(f"the session has no section {name!r}")
        lists = (tuple(tokens_from_bytes(sections[name])) for name in (PROMPT, ACCEPTED))
        return SamplerState(_params(sections[PARAMS]), *lists)

    def feed(self, sampler: Feedable) -> None:
        """Brings a new Sampler of the same model and of `params` to this state: its next draw is what it would have
        been."""
        sampler.prompt(list(self.prompt))
        for token in self.accepted:
            sampler.accept(token)


def _params(text: bytes) -> SamplingParams:
    try:
        settings: dict[str, Any] = json.loads(text)
        bias = {int(k): -math.inf if v == "-inf" else v for k, v in settings["logit_bias"].items()}
        return SamplingParams(**{**settings, "logit_bias": bias, "stop": tuple(settings["stop"])})
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise SessionError(f"the sampling parameters cannot be read: {type(error).__name__}: {error}") from None
