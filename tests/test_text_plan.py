"""The account of a text: what drafts gain keeps them going, and what they lose is bounded."""

import pytest

from llama_eagle.planner.record import Record
from llama_eagle.planner.text_plan import LEAST, MOST, REFRESH, REPLAN, SAVED, TextPlan


def plan(promised: float = 0.5, extra: float = 0.4) -> TextPlan:
    return TextPlan(Record(promised, 1.0, extra))


def run(text: TextPlan, steps: int, gain: float) -> list[bool]:
    """Whether each step drafted; gain: of every draft over a plain step, in tokens."""
    drafts = []
    for _ in range(steps):
        drafts.append(text.drafts())
        if drafts[-1]:
            text.gained(gain)
    return drafts


def test_where_drafting_pays_a_plain_step_comes_now_and_then() -> None:
    drafts = run(plan(), 3 * REFRESH, 0.3)
    assert drafts.count(False) == 3
    assert drafts[0]


@pytest.mark.parametrize("loss", [0.1, 0.5, 2.0])
def test_what_drafts_lose_is_bounded(loss: float) -> None:
    """What a text was lent, a hundredth or less of its steps, and the last draft."""
    text = plan()
    lent = text.account
    drafts = run(text, 5000, -loss)
    assert drafts.count(True) * loss <= lent + SAVED * 5000 + loss
    assert any(drafts[-1000:])  # a text may become easy


def test_a_good_past_is_spent_soon() -> None:
    text = plan()
    run(text, 1000, 1.0)
    drafts = run(text, 200, -0.5)
    assert drafts.count(True) <= (MOST + 200 * SAVED) / 0.5 + 1


def test_a_try_that_gains_goes_on() -> None:
    text = plan()
    run(text, 500, -0.5)
    assert run(text, 500, 0.3)[-100:].count(False) <= 100 // REFRESH + 1


def test_earlier_texts_lend_what_they_promise() -> None:
    hopeless, unsure, good = plan(0.1, 0.9), plan(0.7, 0.4), plan(3.0, 0.5)
    assert hopeless.account == LEAST
    assert LEAST < unsure.account < MOST
    assert good.account == MOST


def test_shapes_are_found_anew_now_and_then() -> None:
    text = plan()
    stale = []
    while len(stale) < 2 * REPLAN:
        if text.drafts():
            stale.append(text.is_stale)
    assert [i for i, one in enumerate(stale) if one] == [0, REPLAN]
