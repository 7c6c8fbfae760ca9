"""Grammars: what they allow, how they end, and texts that would make llama.cpp abort, hang or print."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from llama_eagle import InputError, Model, SamplingParams
from llama_eagle.distribution import distribution
from llama_eagle.sampler import Sampler
from tiny import EOS, IM_START, TinyTarget

pytestmark = pytest.mark.native

OFF: dict[str, Any] = {"top_k": 0, "top_p": 1.0, "min_p": 0.0}


@pytest.fixture(scope="module")
def model(tiny_target: Callable[..., TinyTarget]) -> Model:
    """As many tokens as a tiny vocabulary can have: more than are looked at before all are."""
    return Model(tiny_target("llama", n_vocab=480).path)


def row(model: Model, seed: int) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(model.info.n_vocab) * 3).astype(np.float32)


def allowed(model: Model, grammar: str, text: bytes = b"") -> set[bytes]:
    """The pieces that can follow a text; END stands for end tokens."""
    with Sampler(model, SamplingParams(grammar=grammar, seed=1, **OFF)) as sampler:
        for byte in text:
            sampler.accept(byte)
        ids = np.flatnonzero(sampler.distribution(np.zeros(model.info.n_vocab, np.float32)))
    return {b"END" if model.is_eog(int(i)) else model.piece(int(i)) for i in ids}


@pytest.mark.parametrize(
    ("grammar", "text", "pieces"),
    [
        ('root ::= "ab"', b"", {b"a"}),
        ('root ::= "ab"', b"a", {b"b"}),
        ('root ::= "ab"', b"ab", {b"END"}),
        ("root ::= [x-z]*", b"xy", {b"x", b"y", b"z", b"END"}),
        ('root ::= "a" | b\nb ::= "q" # a comment (((', b"", {b"a", b"q"}),
        ('root ::= ""', b"", {b"END"}),
        ('root ::= "x"{2,3}', b"xx", {b"x", b"END"}),
        ('root ::= "x"{2,}', b"x", {b"x"}),
        ('root ::= "\\"" [^"]', b"", {b'"'}),
        ("root ::= <[65]>", b"", {b"A"}),
    ],
)
def test_what_can_follow(model: Model, grammar: str, text: bytes, pieces: set[bytes]) -> None:
    assert {piece for piece in allowed(model, grammar, text) if len(piece) == 1 or piece == b"END"} == pieces


def test_control_tokens_are_no_text(model: Model) -> None:
    """Their names could match, but nothing of them would be in the answer."""
    assert allowed(model, 'root ::= "<" [a-z|_]+ ">"') == {b"<"}
    with Sampler(model, SamplingParams(grammar="root ::= <|im_start|>", seed=1)) as sampler:
        assert sampler.distribution(row(model, 0))[IM_START] == 1


@pytest.mark.parametrize(
    "filters",
    [
        OFF,
        {},
        {"top_k": 2},
        {**OFF, "top_k": 40, "temperature": 3.0},
        {"temperature": 0.0},
        {"top_k": 0},
        {"typical_p": 0.7},
    ],
)
@pytest.mark.parametrize("text", [b"", b"[", b'["', b'["a\xc3', b"[1", b"[1,2]"])
def test_the_grammar_comes_before_the_filters(model: Model, filters: dict[str, Any], text: bytes) -> None:
    """Asking it about the best tokens only, and skipping by first bytes, changes nothing."""
    grammar = 'root ::= "[" item ("," item)* "]"\nitem ::= [0-9]+ | "\\"" [^"\\x00-\\x1f]* "\\""'
    free = SamplingParams(seed=1, **filters)
    with Sampler(model, SamplingParams(grammar=grammar, seed=1, **filters)) as sampler, Sampler(model, free) as other:
        for byte in text:
            sampler.accept(byte)
        probe = SamplingParams(grammar=grammar, seed=1, **OFF)
        with Sampler(model, probe) as everything:
            for byte in text:
                everything.accept(byte)
            open_ids = everything.distribution(np.zeros(model.info.n_vocab, np.float32)) > 0
        for seed in range(8):
            logits = row(model, seed)
            expected = other.distribution(np.where(open_ids, logits, np.float32(-np.inf)))
            np.testing.assert_allclose(sampler.distribution(logits), expected, atol=1e-6)
            if "typical_p" not in filters:
                by_definition = distribution(np.where(open_ids, logits, np.float32(-np.inf)), free)
                np.testing.assert_allclose(expected, by_definition, atol=1e-6)


def test_tokens_that_cannot_follow_are_refused(model: Model) -> None:
    with Sampler(model, SamplingParams(grammar='root ::= "ab"', seed=1)) as sampler:
        for wrong in (ord("b"), EOS):
            with pytest.raises(InputError, match="cannot follow"):
                sampler.accept(wrong)
        sampler.accept(ord("a"))
        sampler.accept(ord("b"))
        sampler.accept(EOS)
        with pytest.raises(InputError, match="has ended"):
            sampler.accept(EOS)
        with pytest.raises(InputError, match="has ended"):
            sampler.distribution(row(model, 0))
        assert sampler.emitted == 3


CHAIN = "\n".join(["root ::= a0", *(f"a{i} ::= a{i + 1}" for i in range(10000)), 'a10000 ::= "x"'])
DOUBLING = "\n".join(["root ::= a0", *(f"a{i} ::= a{i + 1} | a{i + 1}" for i in range(60)), 'a60 ::= "x"'])


@pytest.mark.parametrize(
    ("grammar", "words"),
    [
        ("", "no rule named root"),
        ('x ::= "a"', "no rule named root"),
        ("root ::= x", "x is used and not defined"),
        ('root ::= "a', "unexpected end"),
        ("root ::= [a-", "unexpected end"),
        ('root ::= "a" )', r"expecting newline or end at '\)'"),
        ('root ::= ("a"', r"expecting '\)'"),
        ('root = "a"', "expecting ::="),
        ("root ::= *", "expecting preceding item"),
        ('root ::= "\\q"', "unknown escape"),
        ('root ::= root "a" | "b"', "left recursion"),
        ('root ::= a root "x" | "y"\na ::= b\nb ::= "" | "q"', "left recursion"),  # llama.cpp's own check misses it
        ('root ::= "a"{3,1}', "repetition of 3 to 1"),
        ('root ::= "a"{0003,1}', "repetition of 3 to 1"),
        ('root ::= "a"{99999999999999999999999}', "repetition"),
        ('root ::= "a"{5000}', "repetition of 5000"),
        ("root ::= " + "(" * 1000 + ")" * 1000, "nested more than"),
        (CHAIN, "too many ways"),
        (DOUBLING, "too many ways"),
        ("root ::= <[99999999999]>", "too big"),
        ("root ::= <nothing>", "invalid token"),
        ('root ::= "a"\0', "NUL"),
        ('root ::= "\ud800"', "no valid text"),
        ("#" * (1 << 21), "bytes are more"),
    ],
)
def test_bad_grammars(model: Model, grammar: str, words: str, capfd: pytest.CaptureFixture[str]) -> None:
    start = time.monotonic()
    with pytest.raises(InputError, match=f"^grammar.*{words}") as caught:
        Sampler(model, SamplingParams(grammar=grammar, seed=1))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 200
    assert time.monotonic() - start < 5
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("text", ["(", ")", "{3,1}", "[", '"', "\\\\", "#"])
def test_what_looks_dangerous_may_be_quoted(model: Model, text: str) -> None:
    escaped = text.replace('"', '\\"')
    for grammar in (f'root ::= "{escaped * 300}"', f'root ::= "a" # {text * 300}', f"root ::= [\\]{escaped}]"):
        Sampler(model, SamplingParams(grammar=grammar, seed=1)).close()


def test_random_texts_never_crash(model: Model) -> None:
    rng = np.random.default_rng(0)
    parts = [
        "root", "::=", "a", '"x"', "[a-z]", "(", ")", "|", "*", "+", "?", "{1,3}", "\n", "<[5]>", "!", ".",
        "[^", "]", '"', "{", "#", "\\",
    ]  # fmt: skip
    accepted = 0
    for _ in range(2000):
        text = "root ::= " + " ".join(rng.choice(parts, rng.integers(1, 8)))
        try:
            sampler = Sampler(model, SamplingParams(grammar=text, seed=1))
        except InputError:
            continue
        accepted += 1
        for seed in range(3):
            token = int(sampler.distribution(row(model, seed)).argmax())
            sampler.accept(token)
            if model.is_eog(token):
                break
        sampler.close()
    assert accepted > 100
