"""A full context that goes on: at the same token whatever is drafted, in both caches, and no further where asked."""

from collections.abc import Callable
from typing import Any

import pytest

from llama_eagle import AbortedError, Engine, InputError, ModelError, SamplingParams
from loops import EXACT, prompt
from tiny import TinyPair, TinyTarget

pytestmark = pytest.mark.native

LONG = SamplingParams(temperature=0, max_tokens=700, ignore_eos=True)
SAMPLED = SamplingParams(seed=3, temperature=1.1, max_tokens=700, ignore_eos=True)


def engine(pair: TinyPair, **options: Any) -> Engine:
    given = {"n_ctx": 256, "context_shift": True, **EXACT, **options}
    return Engine(pair.target.path, pair.path, **given)


@pytest.mark.parametrize("params", [LONG, SAMPLED], ids=["greedy", "sampled"])
@pytest.mark.parametrize("keep", [0, 20])
def test_drafting_changes_nothing(tiny_good_pair: TinyPair, params: SamplingParams, keep: int) -> None:
    results = []
    for spec in ("off", "tree", "chain"):
        with engine(tiny_good_pair, spec=spec, keep=keep) as one:
            results.append(one.generate(prompt(50), params))
            if spec != "off":
                assert results[-1].spec.accepted > 100
                assert one.pair.target.cells_used() == 0, "a shifted context is no prefix of anything"
            again = one.generate(prompt(50), params)
            assert again.tokens == results[-1].tokens
    assert results[0].tokens == results[1].tokens == results[2].tokens
    assert results[0].completion_tokens == 700
    assert not results[0].context_full


def test_the_beginning_that_is_kept_matters(tiny_good_pair: TinyPair) -> None:
    texts = []
    for keep in (0, 20):
        with engine(tiny_good_pair, spec="tree", keep=keep) as one:
            texts.append(one.generate(prompt(50), SAMPLED).tokens)
    assert texts[0][:207] == texts[1][:207]
    assert texts[0] != texts[1]


def test_what_cannot_shift_is_refused(tiny_good_pair: TinyPair, tiny_target: Callable[..., TinyTarget]) -> None:
    with pytest.raises(InputError, match="n_parallel is 2"):
        engine(tiny_good_pair, n_parallel=2)
    with pytest.raises(ModelError, match="cannot shift its context"):
        Engine(tiny_target("llama4").path, None, n_ctx=256, context_shift=True)


def test_a_shifted_request_is_not_saved(tiny_good_pair: TinyPair, tmp_path_factory: pytest.TempPathFactory) -> None:
    with engine(tiny_good_pair, spec="tree") as one:
        request = one.submit(prompt(50), LONG)
        while len(request.result.tokens) < 300:
            one.step()
        with pytest.raises(InputError, match="shifted"):
            one.save(request, tmp_path_factory.mktemp("s") / "s")


def test_an_abort_in_a_shift(tiny_good_pair: TinyPair) -> None:
    """The draft catches up first: an abort there leaves both caches unshifted."""
    with engine(tiny_good_pair, spec="tree") as one:
        whole = one.generate(prompt(50), LONG).tokens
        request = one.submit(prompt(50), LONG)
        while not request.result.tokens or one.loop.room(one.loop.slots[0]) > 0:
            one.step()
        draft = one.pair.drafter.context  # type: ignore[union-attr]
        draft.abort()
        with pytest.raises(AbortedError):
            one.step()
        draft.resume()
        assert one.pair.target.n_past() == 256
        assert request.wait().tokens == whole
