"""What drafts of a text are expected to give, as they come in."""

import pytest

from llama_eagle.planner.record import CONFIDENCE, Record
from llama_eagle.turn import Drafted


def seen(record: Record, promised: float, accepted: int, times: int) -> None:
    for _ in range(times):
        record.saw(Drafted(2, 1, promised, accepted), 0.3)


def test_a_usual_head_before_anything_was_seen() -> None:
    free, dear = Record.usual(0.0, 0.1), Record.usual(0.7, 0.1)
    assert free.gain == pytest.approx(sum(CONFIDENCE) / len(CONFIDENCE))
    assert (free.nodes, free.extra) == (1.0, 0.1)
    assert 0.0 < dear.gain < free.gain
    assert dear.nodes == pytest.approx(2 / 5)
    assert dear.extra == pytest.approx(0.1 + 2 / 5 * 0.7)
    assert dear.surplus == pytest.approx(dear.gain - dear.extra)
    assert Record.usual(1.0, 0.1).gain == 0.0


def test_promises_that_are_not_kept_are_trusted_less() -> None:
    record = Record(1.0, 1.0, 1.0)
    seen(record, 1.0, 0, 50)
    assert 0.0 < record.trust < 0.1
    seen(record, 1.0, 1, 200)
    assert 0.8 < record.trust <= 1.0


def test_more_than_was_promised() -> None:
    record = Record(0.5, 1.0, 1.0)
    seen(record, 0.5, 1, 100)
    assert record.trust > 1.5
    assert record.gain == pytest.approx(1.0, rel=0.2)


def test_sizes_follow_the_drafts() -> None:
    record = Record(0.5, 4.0, 4.0)
    seen(record, 0.5, 1, 200)
    assert record.nodes == pytest.approx(1.0, abs=0.1)
    assert record.extra == pytest.approx(0.3, abs=0.1)


def test_a_text_starts_from_all_texts_and_leaves_them_alone() -> None:
    everything = Record(0.5, 1.0, 1.0)
    seen(everything, 0.8, 0, 100)
    text = everything.of_text()
    assert (text.gain, text.nodes, text.extra) == (everything.gain, everything.nodes, everything.extra)
    before = everything.gain
    seen(text, 0.0, 0, 20)
    assert text.gain < before / 2
    assert everything.gain == before


def test_a_text_learns_faster_than_all_texts() -> None:
    everything = Record(0.5, 1.0, 1.0)
    text = everything.of_text()
    for record in (everything, text):
        seen(record, 2.0, 2, 1)
    assert 0.5 < everything.promised < text.promised
