"""Callbacks of requests, and what each one's statistics say when many run at once."""

from dataclasses import replace

import pytest

from engines import cells, engine, params
from llama_eagle import Engine, InputError, Piece
from llama_eagle.request import Request
from loops import prompt
from tiny import TinyPair

pytestmark = pytest.mark.native


class Raises:
    """A callback that raises with its piece number `at`."""

    def __init__(self, error: BaseException, at: int) -> None:
        self.error, self.left = error, at

    def __call__(self, piece: Piece) -> None:
        self.left -= 1
        if self.left < 0:
            raise self.error


@pytest.mark.parametrize("at", [0, 1, 4])
def test_what_a_callback_raises_ends_its_request_alone(many: Engine, alone: Engine, at: int) -> None:
    many.forget()
    others = [many.submit(prompt(20, i), params(i, 40)) for i in range(3)]
    bad = many.submit(prompt(25), params(0, 40), on_piece=Raises(ZeroDivisionError("here"), at))
    others += [many.submit(prompt(20, i), params(i, 40)) for i in range(3, 6)]
    for i, request in enumerate(others):
        assert request.wait().tokens == alone.generate(prompt(20, i), params(i, 40)).tokens
    with pytest.raises(ZeroDivisionError, match="here"):
        bad.wait()
    assert bad.done
    whole = alone.generate(prompt(25), params(0, 40)).tokens
    assert 0 < len(bad.result.tokens) < 40
    assert bad.result.tokens == whole[: len(bad.result.tokens)]
    assert many.generate(prompt(25), params(0, 40)).tokens == whole  # from the cells that it left
    many.forget()
    assert cells(many) == 0


def test_what_a_callback_raises_at_the_limit(many: Engine) -> None:
    """The last piece, of text that was held back for a stop text."""
    whole = many.generate(prompt(25), params(0, 20)).text
    request = many.submit(prompt(25), params(0, 20, stop=(whole[-1] + "\0never",)))
    request.on_piece = lambda piece: None if piece.tokens else Raises(ValueError("last"), 0)(piece)
    with pytest.raises(ValueError, match="last"):
        request.wait()


def test_an_interrupt_in_a_callback_is_raised_behind_the_step(many: Engine, alone: Engine) -> None:
    bad = many.submit(prompt(25), params(0, 40), on_piece=Raises(KeyboardInterrupt(), 2))
    others = [many.submit(prompt(20, i), params(i, 40)) for i in range(3)]
    with pytest.raises(KeyboardInterrupt):
        others[0].wait()
    assert bad.done
    for i, request in enumerate(others):
        assert request.wait().tokens == alone.generate(prompt(20, i), params(i, 40)).tokens


def test_callbacks_cancel_and_submit(many: Engine, alone: Engine) -> None:
    many.forget()
    made: list[Request] = []
    had: list[int] = []

    def act(piece: Piece) -> None:
        if not made:
            first.cancel(), itself.cancel(), last.cancel()
            had.append(len(last.result.tokens))
            made.append(many.submit(prompt(33), params(2, 20)))

    first = many.submit(prompt(20, 0), params(0, 40))
    itself = many.submit(prompt(20, 1), params(1, 40))
    last = many.submit(prompt(20, 2), params(2, 40))
    good = many.submit(prompt(20, 3), params(3, 40))
    while not all(request.result.tokens for request in (first, itself, last)):
        many.step()
    itself.on_piece = act
    assert good.wait().tokens == alone.generate(prompt(20, 3), params(3, 40)).tokens
    assert all(request.done for request in (first, itself, last))
    assert len(last.result.tokens) == had[0]
    assert made[0].wait().tokens == alone.generate(prompt(33), params(2, 20)).tokens
    many.forget()
    assert cells(many) == 0


def test_a_callback_cannot_run_the_engine(many: Engine, alone: Engine) -> None:
    request = many.submit(prompt(20), params(0, 20), on_piece=lambda piece: many.step() and None)
    with pytest.raises(InputError, match="callback"):
        request.wait()
    assert many.generate(prompt(20), params(0, 20)).tokens == alone.generate(prompt(20), params(0, 20)).tokens


def test_generate_calls_back(many: Engine) -> None:
    seen: list[Piece] = []
    result = many.generate(prompt(30), params(0, 20), on_piece=seen.append)
    assert [token for piece in seen for token in piece.tokens] == result.tokens
    with pytest.raises(ZeroDivisionError):
        many.generate(prompt(30), params(0, 20), on_piece=Raises(ZeroDivisionError(), 1))


@pytest.mark.parametrize("n_parallel", [1, 3, 8])
def test_completions_decode_their_prompt_once(tiny_good_pair: TinyPair, alone: Engine, n_parallel: int) -> None:
    with engine(tiny_good_pair, n_parallel=n_parallel) as made:
        before = made.pair.target.stats().n_tokens
        assert len(made.completions(prompt(600), params(1, 1), n=5)) == 5
        assert made.pair.target.stats().n_tokens - before < 600 + 3 * 5  # a fork decodes the prompt's end
        results = made.completions(prompt(100), params(1, 30), n=5)
        assert [result.seed for result in results] == [3, 4, 5, 6, 7]
        for result in results:
            assert result.tokens == alone.generate(prompt(100), params(1, 30, seed=result.seed)).tokens


def test_completions_of_drawn_seeds_and_of_nothing(many: Engine) -> None:
    seeds = [result.seed for result in many.completions(prompt(20), params(1, 5, seed=-1), n=3)]
    assert len(set(seeds)) == 3
    edge = many.completions(prompt(20), params(1, 5, seed=2**32 - 2), n=2)
    assert [result.seed for result in edge] == [2**32 - 2, 0]
    assert [result.tokens for result in many.completions(prompt(20), params(1, 0), n=3)] == [[], [], []]
    with pytest.raises(InputError, match="n 0 is not in"):
        many.completions(prompt(20), params(1, 5), n=0)


def test_completions_fail_together(many: Engine) -> None:
    ends = {token: float("-inf") for token in range(272) if many.pair.model.is_eog(token)}
    stuck = params(1, 20, ignore_eos=False, grammar="root ::= [a-z]{3}", logit_bias=ends)
    with pytest.raises(InputError, match="no token can follow"):
        many.completions(prompt(20), stuck, n=12)
    assert not many.step()


def test_statistics_are_those_of_each_alone(many: Engine, tiny_good_pair: TinyPair) -> None:
    """Counts do not depend on what else runs; seconds are those of the steps that a request took part in."""
    with engine(tiny_good_pair, n_parallel=1) as single:
        expected = [single.generate(prompt(20, i), params(i, 30 + i)) for i in range(6)]
    requests = [many.submit(prompt(20, i), params(i, 30 + i)) for i in range(6)]
    for request, one in zip(requests, expected, strict=True):
        result = request.wait()
        alone, among = (replace(spec, graphs_built=0, graphs_reused=0) for spec in (one.spec, result.spec))
        assert among == alone
        assert result.spec.emitted == result.completion_tokens - 1
        times = result.timings
        assert times.prefill_s > 0
        assert 0 < times.draft_s + times.verify_s <= times.decode_s
        assert times.other_s == pytest.approx(times.decode_s - times.draft_s - times.verify_s)
        assert times.tokens_per_s == pytest.approx(result.completion_tokens / times.decode_s)


def test_a_fork_counts_its_own_steps_only(many: Engine) -> None:
    request = many.submit(prompt(30), params(1, 40))
    while len(request.result.tokens) < 25:
        many.step()
    had = len(request.result.tokens)
    child = request.fork()
    request.cancel()
    result = child.wait()
    assert result.spec.emitted == 40 - had
    assert result.timings.tokens_per_s == pytest.approx((40 - had) / result.timings.decode_s)


def test_characters_and_stop_texts_are_joined_for_each_request(many: Engine, alone: Engine) -> None:
    """Tokens are bytes here: a character's lie in several steps, those of other requests between them."""
    text = "aé😀 END ü"
    grammar = 'root ::= "' + text + '"'
    fixed = [params(1, -1, ignore_eos=False, grammar=grammar, seed=i, stop=stop) for i, stop in enumerate(STOPS)]
    requests = [many.submit(prompt(20, i), each) for i, each in enumerate(fixed)]
    pieces: list[list[str]] = [[] for _ in requests]
    while many.step():
        for request, shown in zip(requests, pieces, strict=True):
            shown[:] = ["".join(piece.text for piece in request._pieces)]
            assert text.startswith(shown[0])  # no half of a character, no part of a stop text
    wanted = [text.partition(stop[0])[0] if stop else text for stop in STOPS]
    assert [request.wait().text for request in requests] == wanted
    assert all(len(request.result.tokens) >= len(one.encode()) for request, one in zip(requests, wanted, strict=True))


STOPS = [(), ("END",), ("😀 E",), ("é",), ("END ü\0",), ("ü",), (" ",), ("a",)]
