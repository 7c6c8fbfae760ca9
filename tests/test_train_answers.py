"""answers.py: which prompts are asked and what is kept, with an engine that answers at once."""

import json
from types import SimpleNamespace

import pytest

from llama_eagle.chat import ChatTemplate
from llama_eagle.errors import TrainingError

pytestmark = pytest.mark.usefixtures("requires_native")
TEMPLATE = "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}<assistant>"


class Request:
    done = True

    def __init__(self, text, stops=True):
        tokens = [ord(letter) for letter in text]
        self.result = SimpleNamespace(text=text, tokens=tokens, finish_reason="stop" if stops else "length")

    def wait(self):
        return self.result

    def cancel(self):
        pass


class Engine:
    """Writes a question behind a user's turn, a new one each third time, and "fine." behind anything else."""

    def __init__(self):
        self.loop = SimpleNamespace(slots=[0, 1])
        self.template = ChatTemplate(TEMPLATE)
        model = SimpleNamespace(
            tokenize=lambda text, **how: [ord(c) for c in text], info=SimpleNamespace(add_bos=False)
        )
        model.info.token_bos, model.piece = -1, lambda token, special: b""
        self.pair = SimpleNamespace(model=model)
        self.asked, self.steps, self.seeds = [], 0, []

    def step(self):
        self.steps += 1

    def chat_prompt(self, messages):
        return [ord(c) for c in self.template.render(messages)]

    def submit(self, tokens, params):
        text = "".join(map(chr, tokens))
        self.seeds.append(params.seed)
        if text.endswith("<assistant>"):
            self.asked.append((text, params.temperature))
            return Request("fine.")
        return Request(f" is this number {len(self.seeds) // 3}?", stops=len(self.seeds) % 5 != 0)


def generated(path, tokens, files=(), engine=None):
    from llama_eagle.train.answers import Answers, Wanted  # noqa: PLC0415 - there may be no library

    engine = engine or Engine()
    answers = Answers(path)
    answers.generate(engine, Wanted(tokens, 200, tuple(files), 7), lambda text: None)
    return answers, engine


def test_a_target_thinks_of_prompts_and_none_comes_twice(tmp_path):
    answers, engine = generated(tmp_path / "a.jsonl", 100)
    assert answers.tokens == 100
    assert len(set(answers.words)) == len(answers.words) == 20
    assert all("is this number" in words for words in answers.words)
    assert len(set(engine.seeds)) == len(engine.seeds)
    assert {temperature for _, temperature in engine.asked} == {0.0, 0.8, 1.0}
    assert engine.asked[0][0] == f"<user>{answers.words[0]}</><assistant>"


def test_answers_are_read_again_and_more_are_added(tmp_path):
    first, _ = generated(tmp_path / "a.jsonl", 50)
    with (tmp_path / "a.jsonl").open("a") as file:
        file.write('{"prompt": "cut off')
    second, _ = generated(tmp_path / "a.jsonl", 80)
    assert second.texts[:10] == first.texts
    assert len(set(second.words)) == len(second.words) == 16
    lines = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert [tuple(line["answer"]) for line in lines] == [text.answer for text in second.texts]
    assert [line["temperature"] == 0 for line in lines] == [text.greedy for text in second.texts]


def test_prompts_of_files_are_asked_four_times_at_most(tmp_path):
    path = tmp_path / "p.jsonl"
    path.write_text('{"prompt": "One?"}\n{"prompt": "Two?"}\n{"prompt": "one?"}\n')
    answers, _ = generated(tmp_path / "a.jsonl", 10_000, [str(path)])
    assert answers.words == ["One?", "Two?"] * 4


def test_a_target_without_ideas_is_told_from_one_that_is_slow(tmp_path):
    engine = Engine()
    engine.submit = lambda tokens, params: Request("never ends", stops=False)
    with pytest.raises(TrainingError, match="give some with --prompts"):
        generated(tmp_path / "a.jsonl", 100, engine=engine)


def test_a_line_that_is_no_answer_is_named(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"prompt": "x", "tokens": [1], "answer": "?", "temperature": 0}\n')
    with pytest.raises(TrainingError, match=r"a\.jsonl line 1 is no answer"):
        generated(tmp_path / "a.jsonl", 100)
