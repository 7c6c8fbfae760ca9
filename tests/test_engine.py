"""Text in, text out on a tiny pair: how answers end, what a closed one leaves, which prompts are refused."""

from collections.abc import Iterator
from typing import Any

import pytest

from llama_eagle import ContextFullError, Engine, InputError, SamplingParams
from tiny import TinyPair

pytestmark = pytest.mark.native

PROMPT = list(range(60, 80))


@pytest.fixture(scope="module")
def engine(tiny_good_pair: TinyPair) -> Iterator[Engine]:
    with Engine(tiny_good_pair.target.path, tiny_good_pair.path, n_ctx=256, spec="tree", n_threads=1) as engine:
        yield engine


def limited(count: int, **changes: Any) -> SamplingParams:
    return SamplingParams(temperature=0, max_tokens=count, ignore_eos=True, **changes)


@pytest.mark.parametrize("prompt", [[1.5], ["a"], None, 7, [2**31], [True, None], [[1, 2]]])
def test_prompts_that_are_no_tokens(engine: Engine, prompt: Any) -> None:
    with pytest.raises(InputError, match="prompt must"):
        engine.stream(prompt)


def test_prompts_of_a_wrong_length(engine: Engine) -> None:
    with pytest.raises(InputError, match="empty"):
        engine.stream([])
    with pytest.raises(ContextFullError, match="257 tokens"):
        engine.stream([65] * 257)


def test_what_waited_for_a_stop_text_comes_at_the_limit(engine: Engine) -> None:
    whole = engine.generate(PROMPT, limited(20)).text
    pieces = list(engine.stream(PROMPT, limited(20, stop=(whole[-1] + "\0never",))))
    assert pieces[-1].tokens == ()
    assert pieces[-1].text == whole[-1]
    assert "".join(piece.text for piece in pieces) == engine.result.text == whole
    assert engine.result.finish_reason == "length"


def test_a_stop_text_ends_the_answer(engine: Engine) -> None:
    whole = engine.generate(PROMPT, limited(20)).text
    result = engine.generate(PROMPT, limited(20, stop=(whole[5:8],)))
    assert result.text == whole[: whole.index(whole[5:8])]
    assert result.finish_reason == "stop"
    assert len(result.tokens) < 20


def test_a_full_context_is_told_from_a_limit(engine: Engine) -> None:
    assert engine.generate(PROMPT, limited(-1)).context_full
    assert engine.result.completion_tokens == 256 - len(PROMPT) + 1
    assert not engine.generate(PROMPT, limited(256 - len(PROMPT) + 1)).context_full


def test_a_closed_stream_leaves_a_result(engine: Engine) -> None:
    stream = engine.stream(PROMPT, limited(50))
    shown = [next(stream) for _ in range(3)]
    stream.close()  # type: ignore[attr-defined]
    assert engine.result.tokens == [token for piece in shown for token in piece.tokens]
    assert engine.result.text == "".join(piece.text for piece in shown)
    assert engine.result.timings.decode_s > 0


def test_no_tokens_wanted(engine: Engine) -> None:
    assert engine.generate(PROMPT, limited(0)).tokens == []
