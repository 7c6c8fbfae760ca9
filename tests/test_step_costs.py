"""Costs between measured sizes, beyond them, and after the machine changed its pace."""

import pytest

from llama_eagle.planner.step_costs import StepCosts


def costs() -> StepCosts:
    return StepCosts({1: 10.0, 2: 11.0, 4: 15.0, 8: 31.0}, 1.0, {1: 2.0, 4: 3.0})


@pytest.mark.parametrize(("size", "seconds"), [(1, 10), (2, 11), (3, 13), (4, 15), (6, 23), (8, 31), (16, 63)])
def test_between_and_beyond_measured_sizes(size: int, seconds: float) -> None:
    assert costs().verify(size) == pytest.approx(seconds)


def test_levels_add_up() -> None:
    assert [costs().draft(depth, 1) for depth in (1, 2, 3)] == [1.0, 3.0, 5.0]
    assert costs().draft(3, 2) == pytest.approx(1.0 + 2 * (2.0 + 1 / 3))
    assert costs().draft(2, 9) == pytest.approx(1.0 + 3.0 + 5 / 3)


def test_a_slower_machine_is_believed_after_some_steps() -> None:
    made = costs()
    for _ in range(200):
        made.saw_verify(4, 30.0)
    assert made.verify(4) == pytest.approx(30.0, rel=0.02)
    assert made.verify(1) == pytest.approx(10.0 * 2**0.5)  # half of it may be the machine's pace
    for _ in range(300):
        made.saw_draft(3, 1, 10.0)
    assert made.draft(3, 1) == pytest.approx(10.0, rel=0.02)


def test_a_draft_that_became_slow_is_believed_within_a_text() -> None:
    made = costs()
    for _ in range(30):
        made.saw_draft(1, 1, 3.0)
    assert made.draft(1, 1) == pytest.approx(3.0, rel=0.1)
    for _ in range(30):
        made.saw_draft(1, 1, 1.0)
    assert made.draft(1, 1) == pytest.approx(1.0, rel=0.1)


def test_every_second_draft_that_is_disturbed_moves_little() -> None:
    made = costs()
    for _ in range(100):
        made.saw_draft(1, 1, 10.0)
        made.saw_draft(1, 1, 1.0)
    assert made.draft(1, 1) < 1.2


def test_sizes_in_turn_tell_what_each_takes() -> None:
    """Whatever the pace: it changes for all of them."""
    made = costs()
    for turn in range(600):
        pace = 1.0 if turn % 200 < 100 else 1.2
        made.saw_verify(1, 10.0 * pace)
        made.saw_verify(2, 14.0 * pace)
    assert made.verify(2) / made.verify(1) == pytest.approx(1.4, rel=0.02)
    assert made.verify(1) == pytest.approx(12.0, rel=0.05)


def test_what_more_tokens_add() -> None:
    made = costs()
    for before in (1, 2.5, 7, 9):
        expected = [made.verify(before + n) - made.verify(before) for n in range(1, 12)]
        assert made.added(before, 11) == pytest.approx(expected)


def test_one_disturbed_step_moves_little() -> None:
    made = costs()
    made.saw_verify(1, 1000.0)
    assert made.verify(1) < 10.4


def test_a_size_between_two_moves_both() -> None:
    made = costs()
    made.saw_verify(3, 26.0)
    assert made.verify(2) / 11 == pytest.approx(made.verify(4) / 15)
    assert made.verify(4) / 15 > made.verify(8) / 31 > 1.0


def test_what_is_stored_comes_back() -> None:
    stored = costs().as_dict()
    assert stored == {"verify": {1: 10.0, 2: 11.0, 4: 15.0, 8: 31.0}, "level": {1: 2.0, 4: 3.0}, "first_level": 1.0}


def test_a_guess_from_sizes() -> None:
    made = StepCosts.usual(10**9, 10**8)
    assert made.verify(1) == pytest.approx(10 * made.level(1))
    assert made.verify(1) < made.verify(2) < 2 * made.verify(1)
    assert made.verify(16) < 16 * made.verify(1)
