"""The native sampler against numpy: its distribution, its draws, and the prefix that penalties see."""

import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from llama_eagle import Batch, ClosedError, Context, InputError, Model, NativeError, SamplingParams
from llama_eagle.distribution import choose, distribution
from llama_eagle.sampler import Sampler
from llama_eagle.uniforms import uniform
from tiny import EOS, TinyPair, target_shape, write_target

pytestmark = pytest.mark.native

OFF: dict[str, Any] = {"top_k": 0, "top_p": 1.0, "min_p": 0.0}
FILTERS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "off": {**OFF, "temperature": 1.0},
    "top_k": {**OFF, "top_k": 7},
    "large_top_k": {**OFF, "top_k": 200},
    "top_p": {**OFF, "top_p": 0.7},
    "min_p": {**OFF, "min_p": 0.2},
    "hot": {"temperature": 5.0, "top_p": 1.0, "min_p": 0.0},
    "cold": {"temperature": 0.1},
    "greedy": {"temperature": 0.0},
    "almost_greedy": {"temperature": 1e-9},
    "bias": {"logit_bias": {5: 4.0, 7: -math.inf, 100: -3.0}, "temperature": 2.0},
    "greedy_bias": {"logit_bias": {9: 100.0}, "temperature": 0.0},
}


@pytest.fixture(scope="module")
def model(tiny_good_pair: TinyPair) -> Model:
    return Model(tiny_good_pair.target.path)


def row(model: Model, seed: int) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(model.info.n_vocab) * 3).astype(np.float32)


@pytest.mark.parametrize("name", FILTERS)
def test_the_distribution_is_that_of_the_definition(model: Model, name: str) -> None:
    params = SamplingParams(seed=1, **FILTERS[name])
    with Sampler(model, params) as sampler:
        for seed in range(20):
            logits = row(model, seed)
            np.testing.assert_allclose(sampler.distribution(logits), distribution(logits, params), atol=1e-6)


def test_ties_keep_the_smaller_id(model: Model) -> None:
    logits = np.zeros(model.info.n_vocab, np.float32)
    with Sampler(model, SamplingParams(seed=1, top_k=3, top_p=1.0)) as sampler:
        assert np.flatnonzero(sampler.distribution(logits)).tolist() == [0, 1, 2]


def test_typical_p_against_its_paper(model: Model) -> None:
    """Locally typical sampling (Meister et al. 2022): the tokens whose information is nearest to the entropy."""
    logits = row(model, 3)
    p = np.exp(logits - logits.max(), dtype=np.float64)
    p /= p.sum()
    distance = np.abs(-np.log(p) + (p * np.log(p)).sum())
    order = np.argsort(distance)
    kept = order[: int(np.argmax(np.cumsum(p[order]) > 0.6)) + 1]
    with Sampler(model, SamplingParams(seed=1, typical_p=0.6, temperature=1.0, **OFF)) as sampler:
        found = sampler.distribution(logits)
    assert set(np.flatnonzero(found)) == set(kept)
    np.testing.assert_allclose(found[kept], p[kept] / p[kept].sum(), atol=1e-5)


def penalised(logits: np.ndarray, seen: list[int], params: SamplingParams) -> np.ndarray:
    """llama.cpp's penalties: repetition divides (positive) or multiplies, the others are subtracted."""
    out = logits.copy()
    for token, count in Counter(seen[-params.repeat_last_n :] if params.repeat_last_n else []).items():
        out[token] = out[token] * params.repeat_penalty if out[token] <= 0 else out[token] / params.repeat_penalty
        out[token] -= count * params.frequency_penalty + params.presence_penalty
    return out


@pytest.mark.parametrize("last_n", [0, 1, 5, 64])
def test_penalties_see_the_end_of_prompt_and_text(model: Model, last_n: int) -> None:
    prompt = [5, 6, 7, 7, 8, 9, 5]
    params = SamplingParams(
        seed=1, repeat_last_n=last_n, repeat_penalty=1.5, presence_penalty=0.4, frequency_penalty=0.3, temperature=1.0
    )
    neutral = SamplingParams(seed=1, temperature=1.0)
    seen = list(prompt)
    with Sampler(model, params) as sampler:
        sampler.prompt(prompt)
        for step in range(30):
            logits = row(model, step)
            expected = distribution(penalised(logits, seen, params), neutral)
            np.testing.assert_allclose(sampler.distribution(logits), expected, atol=1e-5)
            token = int(np.random.default_rng(step).integers(5, 12))
            sampler.accept(token)
            seen.append(token)


def drawing(model: Model, context: Context, params: SamplingParams, tokens: list[int], count: int) -> list[int]:
    """Plain decoding with a sampler."""
    context.clear()
    context.decode(Batch(tokens))
    with Sampler(model, params) as sampler:
        sampler.prompt(tokens)
        text = []
        for i in range(count):
            law = sampler.distribution(context.logits()[-1])
            text.append(sampler.sample(context))
            assert text[-1] == choose(law, uniform(sampler.params.seed or 0, i)), "number i decides token i"
            assert sampler.emitted == sampler.draws == i + 1
            context.decode(Batch([text[-1]]))
    return text


def test_draws_follow_the_seeds_stream(model: Model) -> None:
    with Context(model, n_ctx=256) as context:
        params = [SamplingParams(seed=seed, temperature=1.5, repeat_penalty=1.3) for seed in (1, 2, 1)]
        a, b, again = (drawing(model, context, p, [60, 61, 62], 40) for p in params)
        assert a == again
        assert a != b


def test_reset_and_clone(model: Model) -> None:
    params = SamplingParams(seed=1, repeat_penalty=1.5, grammar="root ::= [a-z]+", **OFF)
    logits = row(model, 0)
    with Sampler(model, params) as sampler:
        fresh = sampler.distribution(logits)
        sampler.prompt([97, 98])
        sampler.accept(99)
        with sampler.clone() as twin:
            assert (twin.emitted, twin.params) == (1, sampler.params)
            np.testing.assert_array_equal(twin.distribution(logits), sampler.distribution(logits))
            before = sampler.distribution(logits)
            twin.accept(100)
            np.testing.assert_array_equal(sampler.distribution(logits), before)
        assert not np.array_equal(fresh, before)
        sampler.reset()
        assert sampler.emitted == 0
        np.testing.assert_array_equal(sampler.distribution(logits), fresh)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_rows_that_are_no_numbers(model: Model, value: float) -> None:
    logits = row(model, 0)
    logits[17] = value
    with Sampler(model, SamplingParams(seed=1)) as sampler, pytest.raises(NativeError, match="computed NaN"):
        sampler.distribution(logits)
    with Sampler(model) as sampler, pytest.raises(NativeError, match="computed NaN"):
        sampler.distribution(np.full_like(logits, -math.inf))


def test_forbidding_everything(model: Model) -> None:
    bias = dict.fromkeys(range(model.info.n_vocab), -math.inf)
    with Sampler(model, SamplingParams(logit_bias=bias)) as sampler, pytest.raises(InputError, match="forbid all"):
        sampler.distribution(row(model, 0))


def test_wrong_arguments(model: Model, tiny_pair: TinyPair) -> None:
    with pytest.raises(InputError, match=r"logit_bias of token 9999"):
        Sampler(model, SamplingParams(logit_bias={9999: 1.0}))
    with pytest.raises(InputError, match="needs a Model"):
        Sampler("model")  # type: ignore[arg-type]
    other = Model(tiny_pair.target.path)
    with pytest.raises(InputError, match="this is a draft"):
        Sampler(Model(tiny_pair.path, target=other))
    with Sampler(model) as sampler, Context(other, n_ctx=64) as context:
        for wrong in ([-1], [9999], [1.5]):
            with pytest.raises(InputError):
                sampler.prompt(wrong)  # type: ignore[arg-type]
        with pytest.raises(InputError, match="vocabulary"):
            sampler.accept(9999)
        with pytest.raises(InputError, match="shape"):
            sampler.distribution(np.zeros(3, np.float32))
        context.decode(Batch([5]))
        with pytest.raises(InputError, match="another model"):
            sampler.sample(context)
    with Sampler(other) as sampler, Context(other, n_ctx=64) as context:
        with pytest.raises(InputError, match="0 outputs"):
            sampler.sample(context)
        context.decode(Batch([5]))
        with pytest.raises(InputError, match="row 1 of 1"):
            sampler.sample(context, 1)


def test_lives(tmp_path: Path) -> None:
    model = Model(write_target(tmp_path / "t.gguf", target_shape("llama")).path)
    sampler = Sampler(model)
    sampler.close()
    sampler.close()
    with pytest.raises(ClosedError, match="sampler is closed"):
        sampler.accept(EOS)
    sampler = Sampler(model)
    model.close()
    with pytest.raises(ClosedError, match="model"):
        sampler.accept(EOS)
    sampler.close()
