"""fit.py: a pair fits, or the first problem says by what it differs; special tokens and contexts are notes."""

import re
from pathlib import Path

import pytest

from llama_eagle import fit as fit_module
from llama_eagle.fit import MEMORY, fit, target_limits
from sides import HEAD, TARGET, head, target, vocabulary

TABLE = Path(__file__).resolve().parents[1] / "docs" / "targets.md"
BIG = {"n_vocab": 9, "vocabulary": None}


def test_a_pair_fits_without_a_word():
    found = fit(HEAD, TARGET)
    assert found.fits
    assert found.problems == found.notes == ()


@pytest.mark.parametrize(
    ("ours", "theirs", "words"),
    [
        ({}, BIG, "for a vocabulary of 8 tokens, the target has 9"),
        ({"n_vocab": None, "vocabulary": None, "map_end": 9}, {}, "d2t maps to token 8, the target has 8"),
        ({}, {"vocabulary": vocabulary({3: b"x"})}, "token 3 is 'c' for the draft and 'x' for the target (1 tokens"),
        ({}, {"vocabulary": vocabulary({0: b"y", 5: b"\xff"})}, r"token 5 is 'e' for the draft and '\\xff'"),
        ({}, {"vocabulary": vocabulary({}, kind="llama")}, "tokenizer is 'gpt2', the target's 'llama'"),
        ({"target_hidden": 32}, {}, "features of 32 numbers, the target's have 16"),
        ({"target_hidden": None, "hidden": 8}, {}, "shares the target's embeddings, and is 8 wide instead of 16"),
        ({"features": (2, 6, 13)}, {}, "reads layer 13, the target has 12"),
        ({}, {"arch": "eagle3"}, "target.gguf is itself a draft (eagle3)"),
        ({}, {"arch": "llada"}, "architecture llada cannot be a target"),
        ({"features": (-1,), "arch": "eagle"}, {"arch": "dream"}, "dream cannot be a target"),
        ({}, {"arch": "plamo2"}, "plamo2 does not give the inputs of its layers"),
        ({"features": (2, 6, 12)}, {"arch": "deepseek2"}, "does not give the output of its last layer"),
        ({}, {"arch": "mamba"}, "cannot verify drafts yet: use --spec off"),
        ({}, {"arch": "jamba"}, "target.gguf (jamba) keeps a memory that cannot verify drafts yet: use --spec off"),
        ({}, {"arch": "qwen3next"}, "target.gguf (qwen3next) keeps a memory that cannot verify drafts yet"),
        ({"problems": ("tensor fc.weight is missing",)}, {}, "tensor fc.weight is missing"),
    ],
)
def test_what_differs_is_the_first_problem(ours, theirs, words):
    found = fit(head(**ours), target(**theirs))
    assert not found.fits
    assert words in found.problems[0]


@pytest.mark.parametrize(
    ("ours", "theirs", "words"),
    [
        ({}, {"vocabulary": vocabulary({0: b"<|im_start|>"})}, "token 0 is '<s>'.*1 special tokens differ"),
        ({}, {"vocabulary": vocabulary({}, pre="llama-bpe")}, "'smollm' and 'llama-bpe'"),
        ({}, {"vocabulary": None}, "the target has no token list: compared by size only"),
        ({"context": 64}, {}, "contexts of 64 tokens, the target of 512"),
        ({"vocabulary": None, "notes": ("by size only",)}, {}, "by size only"),
    ],
)
def test_what_does_not_matter_is_a_note(ours, theirs, words):
    found = fit(head(**ours), target(**theirs))
    assert found.fits
    assert len(found.notes) == 1
    assert re.search(words, found.notes[0])


def test_heads_that_fit_in_unusual_ways():
    assert fit(head(features=(2, 6, 12)), TARGET).fits  # the last layer's output
    assert fit(head(features=(2, 6, 9)), target(arch="deepseek2")).fits
    found = fit(head(features=(-1,), arch="eagle"), target(arch="plamo2"))
    assert [MEMORY in problem for problem in found.problems] == [True]  # it needs no input of a layer, which is lacking
    assert fit(head(hidden=8, shares=()), TARGET).fits  # its own embeddings and head


@pytest.mark.parametrize("arch", sorted(fit_module.CHAINS))
def test_states_that_go_back_take_chains(arch):
    assert fit(head(), target(arch=arch)).fits
    assert "chains only" in target_limits(arch)["trees"]


def test_what_architectures_give_is_what_the_table_says():
    """docs/targets.md is made by a sweep; a row is a model, named by its architecture and a kind."""
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in TABLE.read_text("utf-8").splitlines()]
    table = [row for row in rows if len(row) >= 4]
    column = {name: i for i, name in enumerate(table[0])}
    for row in table[2:]:
        arch = row[0].rpartition("-")[0]
        said = {name: row[column[name]] for name in ("features", "last output", "trees")}
        limits = target_limits(arch)
        if "text" in limits:
            assert said["features"] == "no"
            continue
        features = "no" if "features" in limits else "yes"
        last = "yes" if not {"features", "last output"} & set(limits) else ("no", "unproven")
        assert said["features"] == features, arch
        assert said["last output"] in last, arch
        assert said["trees"] == ("no" if "trees" in limits else "yes") or "features" in limits, arch


def test_no_architecture_is_listed_without_a_row():
    text = TABLE.read_text("utf-8")
    for names in (fit_module.NO_TEXT, fit_module.NO_FEATURES, fit_module.NO_LAST_OUTPUT, fit_module.NO_TREES):
        for arch in names:
            assert f"| {arch}-" in text
