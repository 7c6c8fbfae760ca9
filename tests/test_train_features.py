"""features.py and lines.py: what is written is read, what a killed run left is cut, damage and limits are said."""

import numpy as np
import pytest

from llama_eagle.errors import TrainingError
from llama_eagle.train.example import Example, Text
from llama_eagle.train.features import FeatureStore
from llama_eagle.train.lines import read_lines

TEXTS = [Text((1, 2, 3), (4, 5, 6, 7)), Text((1,), (2, 3)), Text((9, 8), (7, 6, 5))]


def example(text, seed):
    rng = np.random.default_rng(seed)
    features = rng.standard_normal((text.rows, 8)).astype(np.float16)
    ids = rng.integers(0, 50, (text.count, 3)).astype(np.int32)
    return Example(text, features, ids, -rng.random((text.count, 3)).astype(np.float16))


def store(folder, limit=10**6):
    return FeatureStore(folder, TEXTS, 8, 3, limit)


def filled(folder):
    made = store(folder)
    for number in (0, 2):
        made.add(number, example(TEXTS[number], number))
    return made


def same(one, other):
    return all((getattr(one, name) == getattr(other, name)).all() for name in ("features", "ids", "logp"))


def test_what_was_stored_is_read_in_this_run_and_the_next(tmp_path):
    for made in (filled(tmp_path), store(tmp_path)):
        assert [number in made for number in range(3)] == [True, False, True]
        assert all(same(made[number], example(TEXTS[number], number)) for number in (0, 2))
        with pytest.raises(KeyError):
            made[1]


def test_bytes_without_a_line_are_overwritten(tmp_path):
    size = filled(tmp_path).used
    with (tmp_path / "features.bin").open("ab") as file:
        file.write(b"left by a killed run")
    with (tmp_path / "features.jsonl").open("a") as file:
        file.write('{"text": 1, "off')
    made = store(tmp_path)
    assert made.used == size
    made.add(1, example(TEXTS[1], 1))
    assert all(same(store(tmp_path)[number], example(TEXTS[number], number)) for number in range(3))


def test_a_changed_byte_is_found(tmp_path):
    filled(tmp_path)
    path = tmp_path / "features.bin"
    data = bytearray(path.read_bytes())
    data[3] ^= 1
    path.write_bytes(data)
    with pytest.raises(TrainingError, match="damaged at byte 0"):
        store(tmp_path)[0]
    assert same(store(tmp_path)[2], example(TEXTS[2], 2))
    path.write_bytes(data[:20])
    with pytest.raises(TrainingError, match="shorter than"):
        store(tmp_path)


def test_the_limit_counts_bytes(tmp_path):
    made = store(tmp_path, limit=TEXTS[0].rows * 16 + TEXTS[0].count * 18 + 10)
    assert made.has_room(0)
    made.add(0, example(TEXTS[0], 0))
    assert made.used == made.limit - 10
    assert not made.has_room(1)


def test_a_damaged_line_is_named(tmp_path):
    path = tmp_path / "a.jsonl"
    assert read_lines(path) == []
    path.write_text('{"a": 1}\nnonsense\n{"a": 2}\n')
    with pytest.raises(TrainingError, match=r"a\.jsonl line 2 is damaged"):
        read_lines(path)
