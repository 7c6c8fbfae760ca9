"""draft_watch.py: one warning for a draft that is hardly ever right, counted over first tokens, and its causes."""

import logging

import pytest

from llama_eagle.draft_watch import DraftWatch, likely_causes
from llama_eagle.generate import Step
from sides import HEAD, head

pytestmark = pytest.mark.native


@pytest.fixture
def warnings(caplog):
    """warnings(steps, head) counts (accepted, drafted) steps and returns what was warned."""

    def count(steps, of=HEAD):
        watch = DraftWatch(of)
        with caplog.at_level(logging.WARNING, "llama_eagle"):
            for accepted, drafted in steps:
                watch.count(Step(tuple(range(accepted + 1)), accepted, drafted, 4))
        return [record.getMessage() for record in caplog.records]

    return count


def test_a_useless_draft_is_told_once(warnings):
    (text,) = warnings([(0, 8)] * 200)
    assert "the draft head is hardly ever accepted (0% of its first tokens in 40 steps)" in text
    assert "another fine-tune of the target" in text
    assert "\n" not in text


@pytest.mark.parametrize(
    "steps",
    [
        [(0, 8)] * 39,  # too few steps
        [(0, 3)] * 60,  # 180 tokens
        [(0, 0)] * 500,  # plain steps
        ([(1, 8)] + [(0, 8)] * 19) * 10,  # one in twenty: 5%
        [(4, 16)] * 100,
    ],
)
def test_no_warning(warnings, steps):
    assert warnings(steps) == []


def test_what_was_right_before_counts(warnings):
    assert warnings([(1, 8)] * 10 + [(0, 8)] * 150) == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"rule": "the config names none, so the default 2, n/2, n-3"}, "layer ids [2, 6, 9] are a guess (the config"),
        ({"rule": "do not start at 1, so they are taken as inputs (ambiguous)"}, "are a guess"),
        ({"rule": None}, "may be off by one"),
        ({"choices": ("norm_output = True is open",)}, "had to choose: norm_output = True is open"),
    ],
)
def test_the_cause_that_the_file_knows_comes_first(changes, words):
    causes = likely_causes(head(**changes))
    assert words in causes[0]
    assert len(causes) == 2


def test_a_file_that_had_nothing_open_blames_the_target():
    assert len(likely_causes(HEAD)) == 1
    assert len(likely_causes(head(arch="eagle", rule=None, features=(-1,)))) == 1
