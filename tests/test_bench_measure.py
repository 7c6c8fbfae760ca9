"""bench/measure.py and bench/verdicts.py with engines that only keep notes."""

from types import SimpleNamespace

import pytest

from llama_eagle.bench.measure import Answer, Request, Text, measure, mode_options, parse_modes
from llama_eagle.bench.prompts import Prompt, PromptSet
from llama_eagle.bench.rows import Sample
from llama_eagle.bench.verdicts import Tally, audit_line, tally
from llama_eagle.errors import ContextFullError, InputError
from llama_eagle.sampling import SamplingParams


def test_modes():
    assert parse_modes("plain,chain,tree,auto") == ("plain", "chain", "tree", "auto")
    assert parse_modes(" tree, static,tree") == ("plain", "tree", "static")
    for text in ("", "plain,", "off", "tree;auto"):
        with pytest.raises(InputError, match="known: plain, chain, tree, static, auto"):
            parse_modes(text)


def test_options_of_a_mode():
    options = {"n_ctx": 512, "draft_tree": "4,2"}
    assert mode_options("plain", options) == {"n_ctx": 512, "spec": "off"}
    assert mode_options("tree", options) == {"n_ctx": 512, "spec": "tree"}
    assert mode_options("static", options) == {**options, "spec": "static"}
    assert "spec" not in options


class Notes:
    """An engine that writes down what it answers."""

    def __init__(self, name, diary, shapes):
        self.name, self.diary, self.shapes = name, diary, shapes

    def chat(self, messages, params):
        if messages[0]["content"] == "too long":
            raise ContextFullError("the prompt has 99 tokens")
        return self._answer(messages[0]["content"], params)

    def stream(self, prompt, params):
        return self._answer(f"raw {prompt}", params)

    def _answer(self, text, params):
        yield None
        self.diary.append((text, self.name, params.max_tokens))
        spec = SimpleNamespace(steps=2, emitted=3, shapes=self.shapes)
        timings = SimpleNamespace(tokens_per_s=4.0)
        self.result = SimpleNamespace(prompt=[7, 8], tokens=[1, 2, 3], spec=spec, timings=timings)


@pytest.fixture
def diary():
    return []


@pytest.fixture
def engines(diary):
    shapes = {"plain": {}, "tree": {"4": 9, "16": 5, "plain": 20}, "auto": {"plain": 3}}
    return {name: Notes(name, diary, shapes[name]) for name in shapes}


def sets(*texts):
    return [PromptSet("set", tuple(Prompt(text, f"f line {i}") for i, text in enumerate(texts, 1)))]


def test_modes_take_turns(engines, diary):
    ticks = []
    answers = measure(engines, sets("a", "b"), Request(SamplingParams(max_tokens=30)), 2, lambda: ticks.append(1))
    warm_up, measured = diary[:3], diary[3:]
    assert [(text, name) for text, name, _ in warm_up] == [("a", name) for name in engines]
    assert all(most < 30 for _, _, most in warm_up)
    turns = ["plain tree auto", "tree auto plain", "auto plain tree", "plain tree auto"]
    assert [name for _, name, _ in measured] == " ".join(turns).split()
    assert [text for text, _, _ in measured] == ["a"] * 6 + ["b"] * 6
    assert {most for _, _, most in measured} == {30}
    assert len(ticks) == len(answers) == 12
    assert answers[1] == Answer(Sample("set", 0, 0, "tree", 4.0, 2, 3), Text([7, 8], [1, 2, 3], 5))
    assert {(a.sample.mode, a.text.step) for a in answers} == {("plain", 1), ("tree", 5), ("auto", 1)}


def test_raw(engines, diary):
    measure(engines, sets("a"), Request(SamplingParams(), True), 1, lambda: None)
    assert {text for text, _, _ in diary} == {"raw a"}


def test_a_prompt_that_does_not_fit_is_told_before_anything_is_measured(engines, diary):
    with pytest.raises(InputError, match="f line 2: the prompt has 99 tokens"):
        measure(engines, sets("a", "too long"), Request(SamplingParams()), 1, lambda: None)
    assert diary == []


def answer(mode, tokens, index=0, repeat=0):
    return Answer(Sample("set", index, repeat, mode, 1.0, 1, 1), Text([9], tokens, 5))


def test_tally_takes_the_worst_of_a_prompt():
    kinds = {3: "tie", 4: "error"}
    answers = [answer("plain", [1, 2], i, r) for i in range(4) for r in range(2)]
    drafted = {(0, 0): 2, (0, 1): 2, (1, 0): 3, (1, 1): 2, (2, 0): 4, (2, 1): 3, (3, 0): 2, (3, 1): 2}
    answers += [answer("tree", [1, last], i, r) for (i, r), last in drafted.items()]
    answers += [answer("chain", [1, 2], i, r) for i, r in drafted]
    asked = []

    def judge(plain, other):
        asked.append((plain.tokens, other.tokens))
        return kinds[other.tokens[-1]]

    assert tally(answers, judge) == Tally(prompts=4, identical=2, ties=1, errors=1)
    assert asked == [([1, 2], [1, 3]), ([1, 2], [1, 4]), ([1, 2], [1, 3])]
    assert tally(answers[:8], judge) == Tally()


def test_audit_line():
    assert audit_line(Tally(4, 2, 1, 1)) == "audit: 2 of 4 prompts gave identical texts, 1 tie (25%), 1 error"
    assert "--temp 0" in audit_line(Tally())
