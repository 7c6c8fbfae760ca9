"""answers.py and source.py: which prompts are asked and what is kept, with a writer that answers at once."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from llama_eagle.chat import ChatTemplate
from llama_eagle.errors import TrainingError

pytestmark = pytest.mark.usefixtures("requires_native")
TEMPLATE = "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}<assistant>"
END = 0


class Model:
    """A letter is a token."""

    info = SimpleNamespace(add_bos=False, token_bos=-1, token_eos=-1)

    def tokenize(self, text, **how):
        return [ord(letter) for letter in text]

    def detokenize(self, tokens):
        return "".join(map(chr, tokens))

    def is_eog(self, token):
        return token == END


class Writer:
    """Writes a question behind a user's turn, a new one each third time, and "fine." behind anything else."""

    def __init__(self, question=" is this number {}?", stops=True):
        self.tokens, self.known = np.zeros((2, 200), np.int32), np.zeros(2, np.int64)
        self.temperature = np.zeros(2)
        self.question, self.stops = question, stops
        self.asked, self.given, self.begun = [], [], 0

    def give(self, row, tokens, temperature, limit):
        text = "".join(map(chr, tokens))
        if text.endswith("<assistant>"):
            self.asked.append((text, temperature))
            said = "fine."
        else:
            said = self.question.format(self.begun // 3)
            self.begun += 1
        letters = [*tokens, *map(ord, said), END if self.stops else ord("x")][:limit]
        self.tokens[row, : len(letters)], self.known[row], self.temperature[row] = letters, len(letters), temperature
        self.given.append(row)

    def step(self):
        rows, self.given = sorted(set(self.given)), []
        return rows

    def computed(self, row, prompt):
        return prompt


def generated(path, tokens, files=(), writer=None, part=(0, 1)):
    from llama_eagle.train.answers import Answers  # noqa: PLC0415 - there may be no library
    from llama_eagle.train.source import Chat, Source, Wanted  # noqa: PLC0415

    writer, wanted = writer or Writer(), Wanted(tokens, 200, tuple(files), 7)
    answers, kept = Answers(path), []
    source = Source(Chat(Model(), ChatTemplate(TEMPLATE)), writer, wanted, list(answers.words), part)
    answers.generate(source.written(), wanted, kept.append, lambda text: None)
    assert [answer.text for answer in kept] == answers.texts[-len(kept) :]
    return answers, writer


def test_a_target_thinks_of_prompts_and_none_comes_twice(tmp_path):
    answers, writer = generated(tmp_path / "a.jsonl", 120)
    assert answers.tokens == 120
    assert len(set(answers.words)) == len(answers.words) == 20
    assert all("is this number" in words for words in answers.words)
    assert {temperature for _, temperature in writer.asked} == {0.0, 0.8, 1.0}
    assert writer.asked[0][0] == f"<user>{answers.words[0]}</><assistant>"
    assert {text.answer for text in answers.texts} == {(*map(ord, "fine."), END)}


def test_answers_are_read_again_and_more_are_added(tmp_path):
    first, _ = generated(tmp_path / "a.jsonl", 60)
    with (tmp_path / "a.jsonl").open("a") as file:
        file.write('{"prompt": "cut off')
    second, _ = generated(tmp_path / "a.jsonl", 96)
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
    halves = [generated(tmp_path / f"{n}.jsonl", 10_000, [str(path)], part=(n, 2))[0].words for n in (0, 1)]
    assert halves == [["One?"] * 4, ["Two?"] * 4]


def test_a_target_without_ideas_is_told_from_one_that_is_slow(tmp_path):
    with pytest.raises(TrainingError, match="give some with --prompts"):
        generated(tmp_path / "a.jsonl", 100, writer=Writer(stops=False))


def test_a_line_that_is_no_answer_is_named(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"prompt": "x", "tokens": [1], "answer": "?", "temperature": 0}\n')
    with pytest.raises(TrainingError, match=r"a\.jsonl line 1 is no answer"):
        generated(tmp_path / "a.jsonl", 100)
