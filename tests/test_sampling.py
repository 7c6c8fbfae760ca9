"""Sampling parameters: greedy by default, wrong values refused with what was given."""

from typing import Any

import pytest

from llama_eagle.errors import InputError
from llama_eagle.sampling import SamplingParams


def test_defaults_are_greedy_and_unlimited() -> None:
    params = SamplingParams()
    assert (params.temperature, params.max_tokens, params.stop, params.ignore_eos) == (0.0, -1, (), False)


@pytest.mark.parametrize("value", [-1, 0, 1, 10**9])
def test_any_number_of_tokens(value: int) -> None:
    assert SamplingParams(max_tokens=value).max_tokens == value


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", 0.7),
        ("temperature", -1.0),
        ("temperature", float("nan")),
        ("temperature", "0"),
        ("temperature", None),
        ("max_tokens", -2),
        ("max_tokens", 1.5),
        ("max_tokens", "10"),
        ("max_tokens", None),
        ("stop", "end"),
        ("stop", ("",)),
        ("stop", ("a", 5)),
        ("stop", (b"a",)),
    ],
)
def test_wrong_values_are_named(name: str, value: Any) -> None:
    with pytest.raises(InputError, match=name) as caught:
        SamplingParams(**{name: value})
    assert repr(value) in str(caught.value)


def test_temperature_0_may_be_an_int() -> None:
    assert SamplingParams(temperature=0).temperature == 0


def test_several_stops() -> None:
    assert SamplingParams(stop=("\n\n", "###")).stop == ("\n\n", "###")
