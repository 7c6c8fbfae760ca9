"""Texts over the path verifier: those of tree attention and of plain decoding, alone and many at once; cells freed."""

import random
from typing import Any

import pytest

import engines
from engines import params
from llama_eagle import AbortedError, Engine, InputError
from llama_eagle.options import EngineOptions
from loops import prompt
from tiny import TinyPair

pytestmark = pytest.mark.native

SHAPES: dict[str, dict[str, Any]] = {
    "tree": {"spec": "tree", "draft_nodes": 16},
    "large": {"spec": "tree", "draft_nodes": 60, "draft_depth": 6, "draft_top_k": 8},
    "static": {"spec": "static"},
    "chain": {"spec": "chain", "draft_max": 6},
}


def engine(pair: TinyPair, **options: Any) -> Engine:
    return engines.engine(pair, **{"n_parallel": 1, "verify": "paths", **options})


@pytest.mark.parametrize("shape", SHAPES)
def test_texts_are_those_of_trees_and_of_plain_decoding(tiny_good_pair: TinyPair, alone: Engine, shape: str) -> None:
    with (
        engine(tiny_good_pair, **SHAPES[shape]) as paths,
        engine(tiny_good_pair, **SHAPES[shape], verify="tree") as trees,
    ):
        target = paths.pair.target
        for i in range(4):
            given = prompt(15 + i, i), params(i, 60)
            tokens = alone.generate(*given).tokens
            assert paths.generate(*given).tokens == trees.generate(*given).tokens == tokens
            for field in ("steps", "drafted", "accepted"):
                assert getattr(paths.result.spec, field) == getattr(trees.result.spec, field)
            assert paths.result.spec.accepted > 10
            assert target.cells_used() == target.n_past() == len(paths.loop.slots[0].tokens)
        paths.forget()
        assert target.cells_used() == 0
        assert target.n_paths == {"tree": 16, "large": 60, "static": 15, "chain": 1}[shape]


@pytest.mark.parametrize(("shape", "parallel"), [("tree", 8), ("large", 6), ("static", 8), ("chain", 8)])
def test_requests_come_and_go(tiny_good_pair: TinyPair, alone: Engine, shape: str, parallel: int) -> None:
    """Many at once, some cancelled; more wanted leaves than there are ids for `large`."""
    rng = random.Random(1)
    with engine(tiny_good_pair, n_parallel=parallel, **SHAPES[shape]) as many:
        decodes = many.pair.target.stats().n_decode
        requests = [many.submit(prompt(5 + i % 40, i), params(i, 5 + i % 30)) for i in range(20)]
        steps = 0
        while many.step():
            steps += 1
            if rng.random() < 0.1:
                requests.pop(rng.randrange(len(requests))).cancel()
        assert many.pair.target.stats().n_decode - decodes == steps
        for request in requests:
            assert request.wait().tokens == alone.generate(request.prompt, request.params).tokens
        assert sum(request.result.spec.accepted for request in requests) > 20
        many.forget()
        assert many.pair.target.cells_used() == 0


def test_more_sequences_than_paths_decode_plainly(tiny_good_pair: TinyPair, alone: Engine) -> None:
    with engine(tiny_good_pair, n_parallel=6) as many:
        many.pair.target.n_paths = 4  # of 96: what the loop believes
        requests = [many.submit(prompt(9, i), params(i, 12 + 9 * i)) for i in range(6)]
        for i, request in enumerate(requests):
            assert request.wait().tokens == alone.generate(prompt(9, i), params(i, 12 + 9 * i)).tokens
        assert 0 < requests[-1].result.spec.drafted <= 4 * requests[-1].result.spec.steps


def test_a_text_goes_on_behind_an_abort(tiny_good_pair: TinyPair, alone: Engine) -> None:
    tokens = alone.generate(prompt(30), params(1, 40)).tokens
    with engine(tiny_good_pair) as paths:
        request = paths.submit(prompt(30), params(1, 40))
        for number in range(20):
            paths.step()
            if number % 3 == 1:
                paths.pair.target.abort()
                with pytest.raises(AbortedError):
                    paths.step()
                paths.pair.target.resume()
                assert paths.pair.target.cells_used() == paths.pair.target.n_past()
        assert request.wait().tokens == tokens


@pytest.mark.parametrize("room", range(5))
def test_at_the_edge_of_the_context(tiny_good_pair: TinyPair, alone: Engine, room: int) -> None:
    tokens = prompt(256 - 10 - room)
    with engine(tiny_good_pair, n_ctx=256, draft_nodes=30) as paths:
        result = paths.generate(tokens, params(0, -1))
        assert result.context_full
        assert result.tokens == alone.generate(tokens, params(0, 11 + room)).tokens


def test_options() -> None:
    assert EngineOptions().n_paths() == EngineOptions(n_parallel=200).n_paths() == 0
    assert EngineOptions(verify="paths").n_paths() == 63
    assert EngineOptions(verify="paths", spec="tree").n_paths() == 16
    assert EngineOptions(verify="paths", n_parallel=20, draft_nodes=40).n_paths() == 236
    assert EngineOptions(verify="paths", spec="chain", n_parallel=20).n_paths() == 20
    assert EngineOptions(verify="paths", n_parallel=128).n_paths() == 128
    with pytest.raises(InputError, match="n_parallel 129 leaves no sequence id for a path each: at most 128"):
        EngineOptions(verify="paths", n_parallel=129)
    with pytest.raises(InputError, match="verify must be one of tree, paths, got 'path'"):
        EngineOptions(verify="path")
