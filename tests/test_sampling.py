"""Sampling parameters: llama.cpp's defaults, wrong values refused with what was given."""

import json
import math
from typing import Any

import pytest

from llama_eagle.errors import InputError
from llama_eagle.sampling import SamplingParams


def test_defaults_are_llama_cpps() -> None:
    params = SamplingParams()
    assert (params.temperature, params.top_k, params.top_p, params.min_p, params.typical_p) == (0.8, 40, 0.95, 0.05, 1)
    assert (params.repeat_penalty, params.repeat_last_n) == (1, 64)
    assert (params.presence_penalty, params.frequency_penalty) == (0, 0)
    assert (params.max_tokens, params.stop, params.ignore_eos, params.seed) == (-1, (), False, -1)


@pytest.mark.parametrize("value", [-1, 0, 1, 10**6])
def test_max_tokens(value: int) -> None:
    assert SamplingParams(max_tokens=value).max_tokens == value


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", -1.0),
        ("temperature", float("nan")),
        ("temperature", float("inf")),
        ("temperature", "0"),
        ("temperature", None),
        ("temperature", True),
        ("top_k", 1.5),
        ("top_k", -2),
        ("top_k", 2**31),
        ("top_p", 1.1),
        ("top_p", -0.1),
        ("min_p", float("nan")),
        ("typical_p", "a"),
        ("repeat_penalty", 0.0),
        ("repeat_penalty", float("inf")),
        ("repeat_last_n", -1),
        ("repeat_last_n", 2**31),
        ("presence_penalty", float("nan")),
        ("frequency_penalty", float("inf")),
        ("seed", -2),
        ("seed", 2**32),
        ("seed", 1.0),
        ("seed", True),
        ("logit_bias", 5),
        ("logit_bias", {"a": 1.0}),
        ("logit_bias", {-1: 1.0}),
        ("logit_bias", {True: 1.0}),
        ("logit_bias", {5: float("inf")}),
        ("logit_bias", {5: float("nan")}),
        ("logit_bias", [5, 6]),
        ("max_tokens", -2),
        ("max_tokens", 1.5),
        ("max_tokens", "10"),
        ("max_tokens", None),
        ("logprobs", -1),
        ("logprobs", 21),
        ("logprobs", True),
        ("logprobs", 2.0),
        ("stop", "end"),
        ("stop", ("",)),
        ("stop", ("a", 5)),
        ("stop", (b"a",)),
        ("grammar", 5),
        ("grammar", b"root"),
        ("json_schema", 5),
    ],
)
def test_wrong_values_are_named(name: str, value: Any) -> None:
    with pytest.raises(InputError, match=f"^{name} must") as caught:
        SamplingParams(**{name: value})
    assert "\n" not in str(caught.value)


def test_a_grammar_leaves_no_room_for_others() -> None:
    with pytest.raises(InputError, match="grammar and json_schema"):
        SamplingParams(grammar='root ::= "a"', json_schema="{}")
    with pytest.raises(InputError, match="ignore_eos"):
        SamplingParams(grammar='root ::= "a"', ignore_eos=True)


def test_temperature_0_may_be_an_int() -> None:
    assert SamplingParams(temperature=0).temperature == 0


def test_several_stops() -> None:
    assert SamplingParams(stop=("\n\n", "###")).stop == ("\n\n", "###")


def test_seeds() -> None:
    assert SamplingParams(seed=7).seeded().seed == 7
    for wanted in (-1, None, 2**32 - 1):
        params = SamplingParams(seed=wanted, top_k=3)
        seeds = {params.seeded().seed for _ in range(5)}
        assert len(seeds) > 1
        assert all(seed is not None and 0 <= seed < 2**32 - 1 for seed in seeds)
        assert params.seeded().top_k == 3


def test_settings_are_json() -> None:
    params = SamplingParams(logit_bias={5: -math.inf, 7: 1.5}, json_schema={"type": "object"}, stop=("a",))
    assert params.biases == ((5, -math.inf), (7, 1.5))
    settings = json.loads(json.dumps(params.as_settings(), allow_nan=False))
    assert settings["logit_bias"] == {"5": "-inf", "7": 1.5}
    assert settings["stop"] == ["a"]
