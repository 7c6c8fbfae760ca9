"""What decodes cost, from times of which some are not the machine's own."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from llama_eagle.planner import measure


class Machine:
    """Stands in for a context whose decode of n tokens takes 0.9 + n / 10 seconds, but for some that are disturbed."""

    has_tree = True

    def __init__(self, *disturbed: int) -> None:
        self.disturbed = set(disturbed)
        self.decodes = 0

    def decode(self, _: Any, tokens: list[int]) -> float:
        self.decodes += 1
        return 1000.0 if self.decodes in self.disturbed else 0.9 + len(tokens) / 10


@pytest.fixture
def verify(monkeypatch: pytest.MonkeyPatch) -> Callable[[Machine, float], dict[int, float]]:
    def run(machine: Machine, seconds: float) -> dict[int, float]:
        monkeypatch.setattr(measure, "_decode", machine.decode)
        context: Any = machine
        return measure._verify(context, list(range(64)), time.perf_counter() + seconds)

    return run


def test_each_size_has_its_cost(verify: Callable[[Machine, float], dict[int, float]]) -> None:
    found = verify(Machine(), 60.0)
    assert found == pytest.approx({n: 0.9 + n / 10 for n in measure.SIZES})


def test_a_size_that_was_disturbed_is_decoded_again(verify: Callable[[Machine, float], dict[int, float]]) -> None:
    """One decode of each kind is all that a slow machine has time for, and the third is that of two tokens."""
    assert verify(Machine(3), 0.0) == pytest.approx({1: 1.0, 2: 1.1})


def test_no_size_costs_more_than_its_tokens_one_by_one(verify: Callable[[Machine, float], dict[int, float]]) -> None:
    assert verify(Machine(3, 4), 0.0) == pytest.approx({1: 1.0, 2: 2.0})
