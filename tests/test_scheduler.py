"""Many requests at once: texts are those of each alone, one target decode a step, cells freed, room shared."""

import random

import pytest

from engines import cells, engine, params
from llama_eagle import AbortedError, Engine, InputError, SamplingParams
from llama_eagle.request import Request
from loops import prompt
from tiny import TinyPair

pytestmark = pytest.mark.native


@pytest.mark.parametrize("spec", ["tree", "chain", "static", "off"])
def test_texts_are_those_of_each_alone(tiny_good_pair: TinyPair, alone: Engine, spec: str) -> None:
    with engine(tiny_good_pair, spec=spec) as many:
        requests = [many.submit(prompt(10 + 7 * i, i), params(i, 20 + 3 * i)) for i in range(12)]
        for i, request in enumerate(requests):
            assert request.wait().tokens == alone.generate(prompt(10 + 7 * i, i), params(i, 20 + 3 * i)).tokens
            assert request.result.spec.accepted > 0 or spec == "off"
        assert not many.step()


@pytest.mark.parametrize("spec", ["tree", "static"])
def test_one_target_decode_a_step_and_a_draft_decode_a_level(tiny_good_pair: TinyPair, spec: str) -> None:
    with engine(tiny_good_pair, spec=spec, draft_depth=4) as many:
        requests = [many.submit(prompt(20, i), params(i, 60)) for i in range(8)]
        while not all(request.result.tokens for request in requests):
            many.step()
        contexts = many.pair.target, many.pair.drafter.context  # type: ignore[union-attr]
        depth = 5 if spec == "static" else 4
        for _ in range(5):
            before = [context.stats().n_decode for context in contexts]
            many.step()
            assert [context.stats().n_decode for context in contexts] == [before[0] + 1, before[1] + depth]


def test_requests_come_and_go(many: Engine, alone: Engine) -> None:
    """Starts and cancellations in the middle of others; nobody else's text changes."""
    rng = random.Random(1)
    running: list[tuple[int, Request]] = []
    checked = 0
    for i in range(60):
        running.append((i, many.submit(prompt(5 + i % 40, i), params(i, 5 + i % 30))))
        for _ in range(rng.randrange(6)):
            many.step()
        if rng.random() < 0.3:
            running.pop(rng.randrange(len(running)))[1].cancel()
        for number, request in [pair for pair in running if pair[1].done]:
            expected = alone.generate(prompt(5 + number % 40, number), params(number, 5 + number % 30))
            assert request.result.tokens == expected.tokens
            assert request.result.text == expected.text
            running.remove((number, request))
            checked += 1
    while many.step():
        pass
    many.forget()
    assert checked > 20
    assert cells(many) == 0


@pytest.mark.parametrize("steps", [0, 1, 2, 3, 7])
def test_a_cancelled_request_frees_its_cells(many: Engine, steps: int) -> None:
    many.forget()
    request = many.submit(prompt(700), params(0, 50))
    for _ in range(steps):
        many.step()
    request.cancel()
    assert cells(many) == 0
    assert request.done
    assert not many.step()
    request.cancel()


def test_a_prefix_of_another_request_is_not_decoded_again(many: Engine) -> None:
    many.forget()
    first = many.submit(prompt(300), params(0, 5))
    first.wait()
    before = many.pair.target.stats().n_tokens
    shared = many.submit([*prompt(300), 7, 8], params(1, 1))
    other = many.submit([*prompt(300), 9, 8, 5], params(1, 1))
    shared.wait(), other.wait()
    assert many.pair.target.stats().n_tokens - before < 20


def test_a_fork_continues_the_text_and_shares_it(many: Engine, alone: Engine) -> None:
    many.forget()
    request = many.submit(prompt(200), params(1, 40))
    early = request.fork(params(2, 40))
    while len(request.result.tokens) < 15:
        many.step()
    before = many.pair.target.stats().n_tokens
    same, other = request.fork(params(1, 40)), request.fork()
    while not same.result.tokens[15:]:
        many.step()
    assert many.pair.target.stats().n_tokens - before < 200
    assert request.wait().tokens == same.wait().tokens == alone.generate(prompt(200), params(1, 40)).tokens
    assert request.result.text == same.result.text
    assert early.wait().tokens == alone.generate(prompt(200), params(2, 40)).tokens
    assert other.wait().tokens[:15] == request.result.tokens[:15]
    assert other.result.seed != request.result.seed
    with pytest.raises(InputError, match="done"):
        request.fork()


def test_a_full_pool_makes_the_youngest_wait(tiny_good_pair: TinyPair, alone: Engine) -> None:
    with engine(tiny_good_pair, n_ctx=256) as small:
        requests = [small.submit(prompt(60, i), params(i, 90)) for i in range(5)]
        for i, request in enumerate(requests):
            assert request.wait().tokens == alone.generate(prompt(60, i), params(i, 90)).tokens


def test_one_sequence_may_fill_the_context(tiny_good_pair: TinyPair) -> None:
    with engine(tiny_good_pair, n_ctx=256) as small:
        one, two = small.submit(prompt(60), params(0, -1)), small.submit(prompt(60, 1), params(0, -1))
        assert one.wait().completion_tokens == two.wait().completion_tokens == 256 - 60 + 1
        assert one.result.context_full
        assert one.result.finish_reason == "length"


def test_an_error_of_one_leaves_the_others(many: Engine, alone: Engine) -> None:
    ends = {token: float("-inf") for token in range(272) if many.pair.model.is_eog(token)}
    good = many.submit(prompt(30), params(0, 40))
    stuck = many.submit(prompt(20), SamplingParams(seed=1, grammar="root ::= [a-z]{9}", logit_bias=ends))
    first = many.submit(prompt(20), SamplingParams(seed=1, grammar="root ::= [a-z]{1}", logit_bias=ends))
    for request in (stuck, first):
        with pytest.raises(InputError, match="no token can follow"):
            request.wait()
    assert good.wait().tokens == alone.generate(prompt(30), params(0, 40)).tokens


def test_pieces_reach_a_callback_in_order(many: Engine) -> None:
    seen: list[str] = []
    request = many.submit(prompt(30), params(0, 20), on_piece=lambda piece: seen.append(piece.text))
    assert request.wait().text == "".join(seen)


def test_streams_of_one_engine_interleave(many: Engine, alone: Engine) -> None:
    one, two = many.stream(prompt(30), params(0, 20)), many.stream(prompt(25, 1), params(1, 20))
    texts = ["", ""]
    for i in range(40):
        texts[i % 2] += next((one, two)[i % 2]).text if i < 6 else ""
    texts[0] += "".join(piece.text for piece in one)
    texts[1] += "".join(piece.text for piece in two)
    assert texts[0] == alone.generate(prompt(30), params(0, 20)).text
    assert texts[1] == alone.generate(prompt(25, 1), params(1, 20)).text


def test_a_second_stream_waits_for_the_only_slot(alone: Engine) -> None:
    whole = alone.generate(prompt(30), params(0, 20)).text
    older = alone.stream(prompt(30), params(0, 20))
    begun = next(older).text
    assert alone.generate(prompt(9), params(1, 5)).completion_tokens == 5
    assert begun + "".join(piece.text for piece in older) == whole


def test_more_sequences_than_a_micro_batch_holds(tiny_good_pair: TinyPair, alone: Engine) -> None:
    with engine(tiny_good_pair, n_parallel=3, n_batch=7, n_ubatch=1) as small:
        requests = [small.submit(prompt(10, i), params(i, 20)) for i in range(4)]
        for i, request in enumerate(requests):
            assert request.wait().tokens == alone.generate(prompt(10, i), params(i, 20)).tokens


def test_an_abort_where_a_prompt_begins(many: Engine, alone: Engine) -> None:
    """The draft catches up with the prefix there; the request waits on."""
    many.forget()
    longer = [*prompt(30), *many.generate(prompt(30), params(0, 20)).tokens, 5]
    request = many.submit(longer, params(1, 20))
    draft = many.pair.drafter.context  # type: ignore[union-attr]
    draft.abort()
    with pytest.raises(AbortedError):
        many.step()
    draft.resume()
    assert not request.done
    assert request.wait().tokens == alone.generate(longer, params(1, 20)).tokens
