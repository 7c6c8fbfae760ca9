"""A saved request goes on with the same text in another engine; other pairs' and damaged files are refused."""

from pathlib import Path
from typing import Any

import pytest

from llama_eagle import Engine, InputError, SamplingParams, SessionError
from loops import EXACT, prompt
from tiny import TinyPair

pytestmark = pytest.mark.native

PARAMS = (
    SamplingParams(temperature=0, max_tokens=60, ignore_eos=True),
    SamplingParams(seed=3, temperature=1.2, repeat_penalty=1.3, max_tokens=60, ignore_eos=True),
    SamplingParams(seed=5, grammar="root ::= [a-z]+", max_tokens=60),
)


def engine(pair: TinyPair, **options: Any) -> Engine:
    return Engine(pair.target.path, pair.path, **{"spec": "tree", "n_ctx": 512, **EXACT, **options})


@pytest.mark.parametrize("params", PARAMS, ids=["greedy", "penalties", "grammar"])
@pytest.mark.parametrize("steps", [0, 1, 2, 5])
def test_a_restored_request_goes_on(tiny_good_pair: TinyPair, tmp_path: Path, params: Any, steps: int) -> None:
    path = tmp_path / "session"
    with engine(tiny_good_pair, n_ubatch=16) as first:
        whole = first.generate(prompt(40), params)
        first.forget()
        request = first.submit(prompt(40), params)
        for _ in range(1 + steps):
            first.step()
        first.save(request, path)
        emitted = len(request.result.tokens)
        assert request.wait().tokens == whole.tokens
    with engine(tiny_good_pair, n_parallel=3) as second:
        other = second.submit(prompt(30, 1), params)
        second.step()
        before = second.pair.target.stats().n_tokens
        restored = second.restore(path)
        assert len(restored.result.tokens) == emitted
        pieces = list(restored)
        assert restored.result.tokens == whole.tokens
        assert restored.result.text == whole.text
        assert sum(len(piece.tokens) for piece in pieces) == len(whole.tokens) - emitted
        assert steps < 2 or restored.result.spec.accepted > 0
        if steps > 3:
            assert second.pair.target.stats().n_tokens - before < 17 * 60
        other.cancel()
        second.forget()
        assert second.pair.target.cells_used() == 0


def test_plain_engines_save_too(tiny_good_pair: TinyPair, tmp_path: Path) -> None:
    with engine(tiny_good_pair, spec="off") as plain:
        request = plain.submit(prompt(40), PARAMS[1])
        for _ in range(5):
            plain.step()
        plain.save(request, tmp_path / "s")
        whole = request.wait().tokens
        assert plain.restore(tmp_path / "s").wait().tokens == whole


def test_other_pairs_and_damage_are_refused(tiny_good_pair: TinyPair, tiny_pair: TinyPair, tmp_path: Path) -> None:
    path = tmp_path / "session"
    with engine(tiny_good_pair) as first:
        request = first.submit(prompt(40), PARAMS[0])
        first.step()
        first.step()
        first.save(request, path)
        data = path.read_bytes()
        for place in range(20, len(data), len(data) // 23):
            path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
            with pytest.raises(SessionError):
                first.restore(path)
        path.write_bytes(data)
        with pytest.raises(InputError, match="busy"):
            first.restore(path)
        request.cancel()
        first.restore(path).cancel()
    for options in ({"spec": "off"}, {"type_k": "f16"}, {"accept": "residual"}):
        with engine(tiny_good_pair, **options) as other, pytest.raises(SessionError, match="is of another"):
            other.restore(path)
    with engine(tiny_pair) as other, pytest.raises(SessionError, match="is of another"):
        other.restore(path)


def test_only_running_requests_are_saved(tiny_good_pair: TinyPair, tmp_path: Path) -> None:
    with engine(tiny_good_pair) as one:
        running, waiting = one.submit(prompt(9), PARAMS[0]), one.submit(prompt(9), PARAMS[0])
        one.step()
        with pytest.raises(InputError, match="waits for a slot"):
            one.save(waiting, tmp_path / "s")
        running.wait()
        with pytest.raises(InputError, match="is done"):
            one.save(running, tmp_path / "s")
        with pytest.raises(SessionError, match="cannot"):
            one.restore(tmp_path / "nothing")
        for path in (None, 5, "", "a\0b"):
            with pytest.raises(InputError, match="a path must be"):
                one.restore(path)  # type: ignore[arg-type]
