"""The processed distribution, against numbers worked out by hand."""

import math

import numpy as np
import pytest

from llama_eagle.distribution import choose, distribution
from llama_eagle.errors import InputError
from llama_eagle.sampling import SamplingParams

ROW = np.log(np.array([0.1, 0.4, 0.2, 0.3], dtype=np.float32))
OFF = {"top_k": 0, "top_p": 1.0, "min_p": 0.0}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"temperature": 1.0}, [0.1, 0.4, 0.2, 0.3]),
        ({"temperature": 0.0}, [0, 1, 0, 0]),
        ({"temperature": 0.5}, [1 / 30, 16 / 30, 4 / 30, 9 / 30]),
        ({"temperature": 1.0, "top_k": 2}, [0, 4 / 7, 0, 3 / 7]),
        ({"temperature": 1.0, "top_p": 0.69}, [0, 4 / 7, 0, 3 / 7]),
        ({"temperature": 1.0, "top_p": 0.71}, [0, 4 / 9, 2 / 9, 3 / 9]),
        ({"temperature": 1.0, "top_p": 0.0}, [0, 1, 0, 0]),
        ({"temperature": 1.0, "min_p": 0.6}, [0, 4 / 7, 0, 3 / 7]),
        ({"temperature": 1.0, "top_k": 3, "top_p": 0.6}, [0, 4 / 7, 0, 3 / 7]),  # top-p sees the three renormalised
        ({"temperature": 0.5, "min_p": 0.6}, [0, 16 / 25, 0, 9 / 25]),  # the temperature comes last
        ({"temperature": 1.0, "logit_bias": {1: -math.inf, 0: math.log(2)}}, [0.2 / 0.7, 0, 0.2 / 0.7, 0.3 / 0.7]),
    ],
)
def test_filters_in_their_order(changes: dict, expected: list[float]) -> None:
    found = distribution(ROW, SamplingParams(**{**OFF, **changes}))
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_ties_keep_the_smaller_id() -> None:
    row = np.zeros(5, dtype=np.float32)
    assert distribution(row, SamplingParams(temperature=0)).tolist() == [1, 0, 0, 0, 0]
    found = distribution(row, SamplingParams(**{**OFF, "top_k": 2}))
    np.testing.assert_allclose(found, [0.5, 0.5, 0, 0, 0])


def test_choose_cumulates_by_token_id() -> None:
    probabilities = np.array([0.25, 0.0, 0.5, 0.25, 0.0])
    assert [choose(probabilities, u) for u in (0.0, 0.2499, 0.25, 0.7499, 0.75, 1 - 2**-53)] == [0, 0, 2, 2, 3, 3]


@pytest.mark.parametrize(
    "changes", [{"repeat_penalty": 1.1}, {"typical_p": 0.9}, {"grammar": "x"}, {"frequency_penalty": 1.0}]
)
def test_what_needs_a_history_is_refused(changes: dict) -> None:
    with pytest.raises(InputError, match=f"{next(iter(changes))}.*Sampler"):
        distribution(ROW, SamplingParams(**changes))
