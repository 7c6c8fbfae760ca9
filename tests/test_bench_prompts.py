"""bench/prompts.py: files read, bad lines refused by file and line."""

import pytest

from llama_eagle.bench.prompts import BUILT_IN, prompt_sets
from llama_eagle.errors import InputError


@pytest.fixture
def file(tmp_path):
    def write(*lines, name="p.jsonl"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"".join(line + b"\n" for line in lines))
        return str(path)

    return write


def test_built_in():
    (found,) = prompt_sets([])
    texts = [prompt.text for prompt in found.prompts]
    assert found.name == BUILT_IN
    assert len(texts) == len(set(texts)) > 3
    assert len(prompt_sets([], 2)[0].prompts) == 2


def test_both_forms(file):
    path = file(b'{"turns": ["one", "two"], "category": ""}', b"", b'{"prompt": "gr\xc3\xbcn"}')
    (found,) = prompt_sets([path])
    assert found.name == "p"
    assert [(p.text, p.where) for p in found.prompts] == [("one", f"{path} line 1"), ("grün", f"{path} line 3")]


def test_limit_reads_no_further(file):
    path = file(b'{"prompt": "a"}', b'{"prompt": "b"}', b"broken")
    assert [p.text for p in prompt_sets([path], 2)[0].prompts] == ["a", "b"]


@pytest.mark.parametrize(
    "line",
    [
        b"broken", b"[" * 100_000, b"\xff\xfe", b"[]", b"null", b"{}", b'{"turns": []}', b'{"prompt": ""}',
        b'{"turns": [1]}', b'{"turns": "text"}', b'{"prompt": ["a"]}', b'{"turns": [""]}', b'{"prompt": "\\ud800"}',
    ],
)  # fmt: skip
def test_bad_lines(file, line):
    path = file(b'{"prompt": "fine"}', line)
    with pytest.raises(InputError) as caught:
        prompt_sets([path])
    message = str(caught.value)
    assert message.startswith(f"{path} line 2 ")
    assert len(message) < len(path) + 200


def test_empty_and_missing_files(file):
    with pytest.raises(InputError, match="has no prompts"):
        prompt_sets([file(b"", b"  ")])
    with pytest.raises(FileNotFoundError):
        prompt_sets(["no/such.jsonl"])


def test_names(file):
    one, other = file(b'{"prompt": "a"}'), file(b'{"prompt": "b"}', name="q/p.jsonl")
    assert [found.name for found in prompt_sets([one, other])] == [one, other]
    with pytest.raises(InputError, match="twice"):
        prompt_sets([one, one])
