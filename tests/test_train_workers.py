"""workers.py: processes that write side by side, and what becomes of their errors."""

import multiprocessing
from dataclasses import replace

import pytest

import tiny_prompts
from llama_eagle.errors import InputError, TrainingError
from tiny import target_shape, write_target

pytestmark = pytest.mark.usefixtures("requires_native")


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    from llama_eagle.train.source import Wanted  # noqa: PLC0415 - there may be no library
    from llama_eagle.train.workers import Work  # noqa: PLC0415

    folder = tmp_path_factory.mktemp("work")
    target = write_target(folder / "target.gguf", target_shape("llama")).path
    wanted = Wanted(1000, 48, (str(tiny_prompts.write(folder / "prompts.jsonl", 6)),), 1)
    return Work(target, (1, 3, 6), 4, 1, 2, wanted)


def test_two_share_the_prompts_of_one(work):
    from llama_eagle.train.workers import written  # noqa: PLC0415

    found = {}
    for workers in (1, 2):
        with written(replace(work, workers=workers), []) as answers:
            found[workers] = sorted((answer.words, answer.text.answer) for answer in answers if answer.text.greedy)
    assert {words for words, _ in found[1]} <= set(tiny_prompts.words(6))
    assert found[1]
    assert found[2]
    known = dict(found[1])
    assert all(known.get(words, answer) == answer for words, answer in found[2])
    assert not multiprocessing.active_children()


def test_an_error_of_a_worker_is_raised_here(work):
    from llama_eagle.train.workers import written  # noqa: PLC0415

    nothing = replace(work, wanted=replace(work.wanted, files=()))
    with written(nothing, []) as answers, pytest.raises(InputError, match="length 48 is too short"):
        next(answers)


def test_a_worker_that_is_killed_is_missed(work):
    from llama_eagle.train.workers import written  # noqa: PLC0415

    with written(work, []) as answers:
        next(answers)
        for process in multiprocessing.active_children():
            process.kill()
        with pytest.raises(TrainingError, match="has ended"):
            for _ in answers:
                pass
