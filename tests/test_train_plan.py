"""plan.py, recipe.py, draft_vocab.py and prompts.py: what is asked for, when it is due, and what it is about."""

import json

import numpy as np
import pytest

from llama_eagle.chat import ChatTemplate
from llama_eagle.errors import InputError, TrainingError
from llama_eagle.train import draft_vocab, plan, recipe
from llama_eagle.train.example import Text
from llama_eagle.train.plan import Plan
from llama_eagle.train.prompts import Unseen, UserTurn, of_files, usable


def test_a_plan_survives_its_file(tmp_path):
    made = Plan(target="t.gguf", layers=(1, 2), prompts=("a", "b"), tokens=5000)
    made.save(tmp_path / "plan.json")
    assert plan.load(tmp_path / "plan.json") == made
    (tmp_path / "plan.json").write_text('{"colour": 1}')
    with pytest.raises(TrainingError, match="is no plan"):
        plan.load(tmp_path / "plan.json")


def test_some_things_may_change_in_the_middle():
    saved = Plan(identity="x", tokens=5000, seed=1)
    assert plan.resumed(saved, {"tokens": 9000, "identity": "x"}).tokens == 9000
    for name, value in (("identity", "y"), ("seed", 2), ("length", 100)):
        with pytest.raises(InputError, match=f"{name} .* is not what this training began with"):
            plan.resumed(saved, {name: value})


@pytest.mark.parametrize(("name", "value"), [("tokens", 0), ("hours", -1.0), ("unroll", 0), ("seed", -1)])
def test_values_out_of_range_are_named(name, value):
    with pytest.raises(InputError, match=f"{name} {value}"):
        Plan(**{name: value})


def test_rates_and_steps_over_a_training():
    at = np.linspace(0, 1, 101)
    rates = [recipe.rate(fraction) for fraction in at]
    assert max(rates) == rates[2] == 1.0
    assert 0 < rates[0] < 0.1
    assert rates[-1] == pytest.approx(recipe.LEAST)
    assert sorted(rates[2:], reverse=True) == rates[2:]
    assert [recipe.steps(fraction, 2, 5) for fraction in (0, 0.24, 0.26, 0.51, 0.76, 1)] == [2, 2, 3, 4, 5, 5]
    assert [recipe.steps(fraction, 2, 1) for fraction in (0, 1)] == [1, 1]
    assert (Plan(unroll=4).recipe.first, Plan(unroll=4, init_from="x").recipe.first) == (2, 4)


def test_a_training_ends_by_texts_or_by_time():
    assert recipe.Recipe(epochs=2).fraction(50, 100, 1e9) == 0.25
    assert recipe.Recipe(epochs=2, hours=1).fraction(50, 100, 1800) == 0.5


def test_the_most_frequent_tokens_are_drafted():
    texts = [Text((1,), (5, 5, 5, 7)), Text((9,), (7, 7, 2, 3))]
    assert draft_vocab.choose(texts, 10, 3).tolist() == [2, 5, 7]
    assert draft_vocab.choose(texts, 10).tolist() == list(range(10))
    assert draft_vocab.choose(texts, 10, 3, known=[3]).tolist() == [3, 5, 7]
    assert draft_vocab.inverse(np.array([2, 5]), 7).tolist() == [-1, -1, 0, -1, -1, 1, -1]
    assert draft_vocab.covered(texts, np.array([5, 7]), 10) == 0.75
    assert draft_vocab.covering(np.array([98, 1, 1])) == 256


def test_prompts_of_files_come_once(tmp_path):
    path = tmp_path / "p.jsonl"
    lines = [{"prompt": "What is a lock?"}, {"turns": ["what  is a LOCK?", "x"]}, {"prompt": "Why?"}]
    path.write_text("\n".join(map(json.dumps, lines)))
    assert of_files([str(path)]) == ["What is a lock?", "Why?"]


def test_what_a_target_writes_as_a_prompt_is_looked_at():
    assert usable("What is a canal lock?")
    for text in ("Hi", "word " * 50, "What is " + "long " * 1000, "onewordonly"):
        assert not usable(text)
    unseen = Unseen(["What is it?"])
    assert not unseen.take("what is  IT?")
    assert unseen.take("another one")
    assert not unseen.take("another one")


def test_the_users_turn_begins_behind_the_template():
    template = ChatTemplate("{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}<assistant>")
    assert UserTurn.of(template).before == "<user>"
    with pytest.raises(InputError, match="--prompts"):
        UserTurn.of(ChatTemplate("{% for m in messages %}{{ m.content | upper }}{% endfor %}"))
