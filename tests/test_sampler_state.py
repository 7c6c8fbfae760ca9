"""SamplerState: a sampler made again draws what the first would have drawn."""

import math
from typing import Any

import numpy as np
import pytest

from llama_eagle import Batch, Context, InputError, Model, Sampler, SamplingParams, SessionError
from llama_eagle.sampler_state import SamplerState, tokens_from_bytes, tokens_to_bytes
from loops import EXACT
from loops import prompt as text
from tiny import TinyPair

pytestmark = pytest.mark.native

PARAMS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "penalties": {"repeat_penalty": 1.4, "presence_penalty": 0.5, "frequency_penalty": 0.2, "repeat_last_n": 20},
    "bias": {"logit_bias": {5: 2.0, 7: -math.inf}, "stop": ("x", "y"), "ignore_eos": True},
    "grammar": {"grammar": "root ::= [a-z ]+"},
    "schema": {"json_schema": {"type": "array", "items": {"type": "integer"}}},
    "greedy": {"temperature": 0.0},
}


def test_tokens_as_bytes() -> None:
    for tokens in ([], [0], [1, 2**31 - 1, 258]):
        data = tokens_to_bytes(tokens)
        assert len(data) == 4 * len(tokens)
        assert tokens_from_bytes(data) == tokens
    assert tokens_to_bytes((258,)) == b"\2\1\0\0"
    for bad in (b"\0", b"\0" * 7, b"\xff\xff\xff\xff"):
        with pytest.raises(SessionError, match="list of tokens"):
            tokens_from_bytes(bad)
    with pytest.raises(InputError):
        tokens_to_bytes([2**31])


@pytest.mark.parametrize("name", PARAMS)
def test_sections_read_back(name: str) -> None:
    state = SamplerState(SamplingParams(seed=9, **PARAMS[name]), (1, 2), (3,))
    read = SamplerState.from_sections(state.to_sections())
    assert read.params.as_settings() == state.params.as_settings()
    assert (read.prompt, read.accepted) == ((1, 2), (3,))


def test_sections_that_are_none() -> None:
    good = SamplerState(SamplingParams(seed=9), (1,), (2,)).to_sections()
    for name in good:
        with pytest.raises(SessionError, match=f"no section '{name}'"):
            SamplerState.from_sections({key: value for key, value in good.items() if key != name})
    for text_ in (b"", b"[]", b"{}", b'{"logit_bias": {}, "stop": [], "temperature": -1}', b"\xff", b"[" * 100_000):
        with pytest.raises(SessionError, match="sampling parameters"):
            SamplerState.from_sections({**good, "sampling": text_})
    with pytest.raises(SessionError, match="list of tokens"):
        SamplerState.from_sections({**good, "prompt": b"\0"})
    with pytest.raises(InputError, match="would be drawn anew"):
        SamplerState(SamplingParams(), (), ()).to_sections()


@pytest.mark.parametrize("name", PARAMS)
def test_the_same_draws(name: str, tiny_good_pair: TinyPair) -> None:
    model = Model(tiny_good_pair.target.path)
    params = SamplingParams(seed=5, **{"temperature": 1.5, "top_k": 0, "top_p": 1.0, "min_p": 0.0, **PARAMS[name]})
    rows = np.random.default_rng(1).integers(3, 250, 40).tolist()
    with Sampler(model, params) as sampler, Context(model, n_ctx=256, **EXACT) as context:
        sampler.prompt(text(6))
        drawn: list[int] = []
        states: list[SamplerState] = []
        for token in rows[:12]:
            states.append(SamplerState(sampler.params, tuple(text(6)), tuple(drawn)))
            context.decode(Batch([token]))
            drawn.append(sampler.sample(context))
            if model.is_eog(drawn[-1]):
                break
        for state in states[::3]:
            read = SamplerState.from_sections(state.to_sections())
            context.clear()
            with Sampler(model, read.params) as again:
                read.feed(again)
                for i, token in enumerate(rows[: len(drawn)]):
                    context.decode(Batch([token]))
                    if i >= len(state.accepted):
                        assert again.sample(context) == drawn[i]
