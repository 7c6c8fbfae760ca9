"""pair.py: what steps cost is measured when it is first needed, and nothing else depends on that."""

from pathlib import Path
from typing import Any

import pytest

from llama_eagle import Batch, Model
from llama_eagle import pair as pair_module
from llama_eagle.errors import NativeError
from llama_eagle.options import EngineOptions
from llama_eagle.pair import Pair
from llama_eagle.planner.step_costs import StepCosts
from tiny import TinyPair

pytestmark = pytest.mark.native


def make(pair: TinyPair, **changes: Any) -> Pair:
    options = EngineOptions.of(**{"n_ctx": 256, "n_threads": 1, "spec": "auto", **changes})
    return Pair(pair.target.path, pair.path, options)


def test_auto_measures_when_a_step_is_about_to_be_taken(
    tiny_pair: TinyPair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And once for a pair, build and machine."""
    monkeypatch.setenv("LLAMA_EAGLE_CACHE", str(tmp_path))
    asked: list[dict[str, Any]] = []

    def measure(target: Model, draft: Model, **params: Any) -> StepCosts:
        asked.append(params)
        return StepCosts({1: 1.0, 9: 1.1}, 0.1, {1: 0.1})

    monkeypatch.setattr(pair_module, "measure", measure)
    for times, threads in ((1, 1), (1, 1), (2, 2)):
        pair = make(tiny_pair, n_threads=threads)
        assert pair.planner is not None
        assert pair.planner.plain_rate() is None
        assert pair.planner.shapes([pair.planner.begin()]) != [None]
        assert pair.planner.plain_rate() == pytest.approx(1.0)
        assert len(asked) == times
        pair.close()


def test_without_calibration_nothing_is_measured(tiny_pair: TinyPair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pair_module, "measure", None)
    pair = make(tiny_pair, calibrate=False)
    assert pair.planner is not None
    assert pair.planner.costs.verify(1) > pair.planner.costs.level(1) > 0.0
    pair.close()


def test_where_nothing_can_be_measured_a_guess_does(
    tiny_pair: TinyPair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """No answer fails for it, and the next engine measures again."""
    monkeypatch.setenv("LLAMA_EAGLE_CACHE", str(tmp_path))

    def no_memory(target: Model, draft: Model, **params: Any) -> StepCosts:
        raise NativeError("no memory for a context")

    monkeypatch.setattr(pair_module, "measure", no_memory)
    pair = make(tiny_pair)
    assert pair.planner is not None
    guess = StepCosts.usual(tiny_pair.target.path.stat().st_size, tiny_pair.path.stat().st_size)
    assert pair.planner.costs.verify(4) == pytest.approx(guess.verify(4), rel=0.5)
    assert [line for line in caplog.messages if "no memory for a context" in line] == caplog.messages[-1:]
    assert not list(tmp_path.rglob("*.json"))
    pair.close()


def test_measuring_disturbs_nothing(tiny_pair: TinyPair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLAMA_EAGLE_CACHE", str(tmp_path))
    pair = make(tiny_pair)
    assert pair.planner is not None
    assert pair.drafter is not None
    pair.target.decode(Batch([5, 6, 7]))
    rate = pair.planner.prepare()
    assert rate > 0
    assert pair.planner.prepare() == 0.0
    assert (pair.target.n_past(), pair.drafter.context.n_past()) == (3, 0)
    assert pair.planner.costs.verify(9) > 0
    pair.close()
