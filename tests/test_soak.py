"""What scripts/soak.py takes for another text and what for a floating-point tie, and that a round sees faults."""

import random
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from llama_eagle import SamplingParams
from soak_requests import N_CTX, Plain, Wanted
from soak_round import Driver, Round
from tiny import TinyPair

pytestmark = pytest.mark.native

GREEDY = Wanted((5, 9, 77), SamplingParams(temperature=0, max_tokens=12, ignore_eos=True))
WARM = Wanted((5, 9, 77), SamplingParams(temperature=1, repeat_penalty=1.1, seed=1, max_tokens=12, ignore_eos=True))


@pytest.fixture(scope="module")
def plain(tiny_good_pair: TinyPair) -> Iterator[Plain]:
    made = Plain(tiny_good_pair.target.path)
    yield made
    made.close()


@pytest.mark.parametrize("wanted", [GREEDY, WARM], ids=["greedy", "warm"])
def test_another_text_is_no_tie(plain: Plain, wanted: Wanted) -> None:
    text = plain.text(wanted)
    assert len(text) == 12
    assert not plain.is_tie(wanted, text)
    assert not plain.is_tie(wanted, text[:5])
    for at in (0, 5):
        best = np.argsort(-plain._logits([*wanted.prompt, *text[:at]], 1))
        other = int(next(token for token in best if token != text[at]))
        assert not plain.is_tie(wanted, [*text[:at], other, *text[at + 1 :]])


@pytest.mark.parametrize(("gap", "tie"), [(1e-7, True), (0.1, False)])
def test_two_equal_logits_are_a_tie(plain: Plain, monkeypatch: pytest.MonkeyPatch, gap: float, tie: bool) -> None:
    text = plain.text(GREEDY)
    row = np.zeros(plain.engine.pair.model.info.n_vocab, np.float32)
    row[text[3]], row[7] = 9.0, 9.0 - gap
    monkeypatch.setattr(plain, "_logits", lambda tokens, step: row)
    assert text[3] != 7
    assert plain.is_tie(GREEDY, [*text[:3], 7]) == tie


@pytest.mark.parametrize("wanted", [GREEDY, WARM], ids=["greedy", "warm"])
def test_a_fork_with_its_original_s_parameters_has_its_text(plain: Plain, wanted: Wanted) -> None:
    text = plain.text(wanted)
    assert plain.text(replace(wanted, given=tuple(text[:5]))) == text
    other = plain.text(replace(wanted, given=(*text[:5], 7, 8)))
    assert len(other) == 12
    assert other[:7] == [*text[:5], 7, 8]


def test_a_text_ends_with_the_context(plain: Plain) -> None:
    assert plain.text(GREEDY, len(GREEDY.prompt) + 6) == plain.text(GREEDY)[:7]


@pytest.fixture
def tiny_round(tiny_good_pair: TinyPair, plain: Plain, tmp_path: Path) -> Iterator[Round]:
    options = {"spec": "tree", "n_parallel": 3, "n_ctx": N_CTX, "verify": "tree", "accept": "match"}
    driver = Driver(tiny_good_pair, options, tmp_path / "saved")
    yield Round(driver, plain, random.Random(0), Counter())
    driver.close()


def test_a_round_without_faults(tiny_round: Round, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("soak_round.REQUESTS", 12)
    monkeypatch.setattr("soak_round.DISTURBED", 1.0)
    tiny_round.run(float("inf"))
    assert tiny_round.findings == []
    assert tiny_round.counts["requests"] == 12
    assert tiny_round.counts["completed"] > 0
    assert tiny_round.counts["forks"] > 0
    assert tiny_round.counts["saved"] > 0


def test_a_round_tells_another_text(tiny_round: Round, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("soak_round.REQUESTS", 2)
    monkeypatch.setattr("soak_round.DISTURBED", 0.0)
    monkeypatch.setattr(tiny_round.plain, "text", lambda wanted, n_ctx=0: [-1])
    monkeypatch.setattr(tiny_round.plain, "is_tie", lambda wanted, tokens: False)
    tiny_round.run(float("inf"))
    assert len(tiny_round.findings) == 2


def test_a_round_tells_cells_that_stay(tiny_round: Round, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("soak_round.REQUESTS", 1)
    monkeypatch.setattr(tiny_round.driver.engine, "forget", lambda: None)
    tiny_round.run(float("inf"))
    assert "in use when all is forgotten" in "".join(tiny_round.findings)


def test_a_round_ends_when_the_time_is_over(tiny_round: Round) -> None:
    tiny_round.run(time.monotonic() - 1)
    assert tiny_round.counts["completed"] == 0
    tiny_round._start(GREEDY)
    tiny_round.driver.engine.step()
    tiny_round.run(time.monotonic() - 1)
    assert tiny_round.live[0].request.done
    assert tiny_round.findings == []
