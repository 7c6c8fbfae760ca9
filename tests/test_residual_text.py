"""Texts with accept="residual": their distribution, repeatable, several at once, with grammars and penalties."""

import json
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from chi_square import assert_fits
from llama_eagle import Batch, Context, Engine, SamplingParams, TreeShape
from llama_eagle.drawn_tree import drawn
from llama_eagle.sampler import Sampler
from llama_eagle.static_tree import StaticTree
from loops import EXACT, Loaded, load, prompt
from test_sampled_text import JSON
from tiny import TinyPair

pytestmark = pytest.mark.native


@pytest.fixture(scope="module")
def good(tiny_good_pair: TinyPair) -> Loaded:
    return load(tiny_good_pair)


def engine(pair: TinyPair, **options: Any) -> Engine:
    given = {"spec": "tree", "n_ctx": 1024, "accept": "residual", **EXACT}
    return Engine(pair.target.path, pair.path, **{**given, **options})


@pytest.fixture(scope="module")
def trees(tiny_good_pair: TinyPair) -> Iterator[Engine]:
    with engine(tiny_good_pair, n_parallel=4) as made:
        yield made


FILTERS: dict[str, Any] = {"temperature": 1.0, "top_p": 0.9, "top_k": 4, "min_p": 0.0, "ignore_eos": True}


@pytest.mark.parametrize(
    "shape", [drawn(TreeShape.chain(2)), drawn(StaticTree.by_level([3, 2]))], ids=["chain", "tree"]
)
def test_two_tokens_have_the_targets_distribution(good: Loaded, shape: StaticTree) -> None:
    """Chi-square over 800 seeds of the second and third token together, both decided in the same verification."""
    tokens, n = prompt(20, 2), 800
    size = good.model.info.n_vocab
    expected, counts, accepted = law_of_two(good, tokens) * n, np.zeros((size, size)), np.zeros(3)
    loop = good.loop(shape)
    for seed in range(n):
        with Sampler(good.model, SamplingParams(seed=seed, **FILTERS)) as sampler:
            loop.start(tokens, sampler)
            step = loop.next(3)
            accepted[step.accepted] += 1
            words = step.tokens if len(step.tokens) > 1 else (*step.tokens, *loop.next(1).tokens)
        counts[words[0], words[1]] += 1
    assert accepted.min() > n / 20
    assert_fits(counts.ravel(), expected.ravel())


def law_of_two(pair: Loaded, tokens: list[int]) -> np.ndarray:
    """float64[n_vocab, n_vocab]: of the second and the third token behind a prompt."""
    size = pair.model.info.n_vocab
    law = np.zeros((size, size))
    with Context(pair.model, n_ctx=256, **EXACT) as plain, Sampler(pair.model, SamplingParams(**FILTERS)) as sampler:
        plain.decode(Batch(tokens))
        first = sampler.distribution(plain.logits()[-1])
        for a in np.flatnonzero(first):
            plain.decode(Batch([int(a)]))
            second = sampler.distribution(plain.logits()[-1])
            for b in np.flatnonzero(second):
                plain.decode(Batch([int(b)]))
                law[b] += first[a] * second[b] * sampler.distribution(plain.logits()[-1])
                plain.seq_rm(0, len(tokens) + 1)
            plain.seq_rm(0, len(tokens))
    return law


def test_a_seed_gives_one_text(tiny_good_pair: TinyPair, trees: Engine) -> None:
    params = SamplingParams(seed=5, temperature=1.2, max_tokens=60, ignore_eos=True)
    first = trees.generate(prompt(20), params)
    assert first.spec.accepted > 5
    assert first.settings["accept"] == "residual"
    assert trees.generate(prompt(20), params).tokens == first.tokens
    assert trees.generate(prompt(20), SamplingParams(**{**vars(params), "seed": 6})).tokens != first.tokens
    with engine(tiny_good_pair) as other:
        assert other.generate(prompt(20), params).tokens == first.tokens


def test_several_at_once_write_what_each_writes_alone(trees: Engine) -> None:
    """Samplers of temperature 0 among them, which take the draft's best tokens."""
    temperatures = [0.0, 0.7, 1.0, 1.4, 0.0, 1.0]
    settings = [
        SamplingParams(seed=i, temperature=t, max_tokens=30 + 5 * i, ignore_eos=True)
        for i, t in enumerate(temperatures)
    ]
    alone = [trees.generate(prompt(15 + i, i), params) for i, params in enumerate(settings)]
    trees.forget()
    requests = [trees.submit(prompt(15 + i, i), params) for i, params in enumerate(settings)]
    for request, expected in zip(requests, alone, strict=True):
        assert request.wait().tokens == expected.tokens
        assert request.result.spec.accepted > 0


@pytest.mark.parametrize("penalty", [1.0, 1.2])
def test_temperature_0_is_plain_decoding(tiny_good_pair: TinyPair, trees: Engine, penalty: float) -> None:
    params = SamplingParams(temperature=0, repeat_penalty=penalty, max_tokens=50, ignore_eos=True)
    with engine(tiny_good_pair, spec="off") as plain:
        assert plain.generate(prompt(20), params).tokens == trees.generate(prompt(20), params).tokens


def test_without_drafts_it_is_what_match_is(tiny_good_pair: TinyPair) -> None:
    params = SamplingParams(seed=3, max_tokens=30, ignore_eos=True)
    texts = []
    for accept in ("match", "residual"):
        with engine(tiny_good_pair, spec="off", accept=accept) as plain:
            texts.append(plain.generate(prompt(20), params).tokens)
    assert texts[0] == texts[1]


@pytest.mark.parametrize("options", [{"spec": "tree"}, {"spec": "chain"}, {"draft_tree": "3,2", "spec": "static"}])
def test_grammar_answers_always_parse(tiny_good_pair: TinyPair, options: dict[str, Any]) -> None:
    ended = accepted = 0
    with engine(tiny_good_pair, **options) as made:
        for seed in range(15):
            params = SamplingParams(seed=seed, temperature=1.5, grammar=JSON, max_tokens=900, repeat_penalty=1.1)
            result = made.generate("An object:", params)
            accepted += result.spec.accepted
            if result.finish_reason == "stop":
                assert isinstance(json.loads(result.text), dict)
                ended += 1
            params = SamplingParams(seed=seed, temperature=2.0, grammar='root ::= "<" [a-c]{2,9} ">"')
            result = made.generate("Letters:", params)
            assert result.finish_reason == "stop"
            assert re.fullmatch("<[a-c]{2,9}>", result.text)
            assert made.pair.model.is_eog(result.tokens[-1])
    assert ended > 5
    assert accepted > 5


def test_it_stops_at_an_end_token(trees: Engine) -> None:
    """Also where the end token was drafted and more behind it."""
    ended = 0
    ends = {token: 4.0 for token in range(272) if trees.pair.model.is_eog(token)}
    for seed in range(20):
        params = SamplingParams(seed=seed, temperature=1.5, logit_bias=ends, max_tokens=60)
        result = trees.generate(prompt(20), params)
        stops = [trees.pair.model.is_eog(token) for token in result.tokens]
        assert not any(stops[:-1])
        ended += stops[-1]
    assert ended > 5


def test_the_rest_of_a_context_is_drafted_too(tiny_good_pair: TinyPair) -> None:
    """Forms are cut to what is left; the text fills the context."""
    with engine(tiny_good_pair, n_ctx=256) as made:
        result = made.generate(prompt(200), SamplingParams(seed=2, ignore_eos=True))
        assert result.context_full
        assert len(result.tokens) == 256 - 200 + 1
