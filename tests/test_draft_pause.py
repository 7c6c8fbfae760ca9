"""Pauses begin when nothing is right any more, grow while that lasts, and end with the first right token."""

from llama_eagle import TreeShape
from llama_eagle.draft_pause import FIRST_PAUSE, LONGEST_PAUSE, TRIAL, WINDOW, DraftPause
from llama_eagle.policy import Fixed
from loops import Single, load, prompt, run, text
from tiny import TinyPair


def feed(pause: DraftPause, right: list[bool]) -> int:
    """Drafts as long as it may; how many of the steps that were."""
    for count, one in enumerate(right):
        if pause.active:
            return count
        pause.count(5, int(one))
    return len(right)


def plain_steps(pause: DraftPause) -> int:
    count = 0
    while pause.active:
        pause.count(0, 0)
        count += 1
    return count


def test_a_useful_draft_is_never_paused() -> None:
    pause = DraftPause()
    assert feed(pause, [i % 12 == 0 for i in range(600)]) == 600
    assert pause.pauses == 0


def test_a_useless_one_is_paused_for_longer_and_longer() -> None:
    pause = DraftPause()
    assert feed(pause, [False] * 100) == WINDOW
    lengths = []
    for _ in range(7):
        lengths.append(plain_steps(pause))
        assert feed(pause, [False] * 100) == TRIAL
    assert lengths == [min(FIRST_PAUSE << i, LONGEST_PAUSE) for i in range(7)]


def test_a_right_token_ends_a_trial() -> None:
    pause = DraftPause()
    feed(pause, [False] * 100)
    plain_steps(pause)
    assert feed(pause, [False, True, *[False] * 100]) == WINDOW
    assert plain_steps(pause) == FIRST_PAUSE


def test_it_is_the_end_of_a_text_that_counts() -> None:
    pause = DraftPause()
    assert feed(pause, [True] * 500 + [False] * 100) == 500 + WINDOW - 1


def test_texts_stay_plain(tiny_pair: TinyPair) -> None:
    """A head of random weights: it is paused, tried again, and the text is plain decoding's."""
    loaded = load(tiny_pair)
    loop: Single = loaded.loop(TreeShape(8, 3, 3))
    assert isinstance(loop.policy, Fixed)
    steps = run(loop, prompt(20), 200)
    assert text(steps) == text(run(loaded.plain(), prompt(20), 200))
    assert loop.slot.plan.pauses > 0
    assert sum(not step.drafted for step in steps) >= FIRST_PAUSE
