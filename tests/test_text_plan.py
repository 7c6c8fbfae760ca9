"""When a text drafts, where it pays and where it does not."""

import numpy as np

from llama_eagle.planner.record import Record
from llama_eagle.planner.text_plan import FIRST_WAIT, LAST_WAIT, REFRESH, REPLAN, TRIAL, TextPlan


def plan() -> TextPlan:
    return TextPlan(Record(0.5, 1.0, 1.0))


def test_where_drafting_pays_a_plain_step_comes_now_and_then() -> None:
    text = plan()
    drafts = [text.drafts(True) for _ in range(3 * REFRESH)]
    assert drafts.count(False) == 3
    assert drafts[0]


def test_where_it_does_not_tries_come_at_growing_intervals() -> None:
    text = plan()
    drafts = [text.drafts(False) for _ in range(4000)]
    starts = [i for i, draft in enumerate(drafts) if draft and not drafts[i - 1]]
    assert starts[0] == FIRST_WAIT - 1
    waits = [gap - TRIAL for gap in np.diff(starts).tolist()]
    assert waits[:3] == [2 * FIRST_WAIT - 1, 4 * FIRST_WAIT - 1, 8 * FIRST_WAIT - 1]
    assert max(waits) == LAST_WAIT - 1
    assert drafts.count(True) == TRIAL * len(starts)


def test_after_it_paid_the_first_wait_is_short_again() -> None:
    text = plan()
    for _ in range(1000):
        text.drafts(False)
    text.drafts(True)
    drafts = [text.drafts(False) for _ in range(FIRST_WAIT)]
    assert drafts == [False] * (FIRST_WAIT - 1) + [True]


def test_shapes_are_found_anew_now_and_then() -> None:
    text = plan()
    stale = [text.is_stale for _ in range(3 * REPLAN)]
    assert [i for i, one in enumerate(stale) if one] == [0, REPLAN, 2 * REPLAN]
