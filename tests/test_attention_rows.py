"""What a token's attention adds up to depends on its own sequence only: not on holes, neighbours or the batch's size.

Flash attention on a CPU: prompts in tiles, steps row by row, whatever their numbers.
"""

from collections.abc import Callable, Iterator
from itertools import pairwise

import numpy as np
import pytest

from llama_eagle import Batch, Context, Model
from llama_eagle.ffi import C, ffi
from loops import prompt
from tiny import TinyTarget

pytestmark = pytest.mark.native


@pytest.fixture(scope="module")
def model(tiny_target: Callable[..., TinyTarget]) -> Iterator[Model]:
    with Model(tiny_target("llama").path) as made:
        yield made


def context(model: Model, **params: int) -> Context:
    layers = tuple(range(1, model.info.n_layer))
    return Context(model, layers, **{"n_ctx": 1024, "n_threads": 2, "n_seq_max": 3, **params}, flash_attn="on")


def rows(count: int) -> np.ndarray:
    return np.ones(count, np.int8)


TEXT = prompt(300, 5)


def features(model: Model, pieces: list[list[int]], around: list[int]) -> np.ndarray:
    """Of a prompt in pieces, each behind a stretch of another sequence's cells, some of which are freed again."""
    out = []
    with context(model) as ctx:
        for piece, gap in zip(pieces, around, strict=True):
            if gap:
                ctx.decode(Batch(prompt(gap, gap), seq_id=1))
                ctx.seq_rm(1, ctx.n_past(1) - gap // 2)
            ctx.decode(Batch(piece, seq_id=2))
            out.append(ctx.features())
    return np.concatenate(out)


@pytest.mark.parametrize("gap", [1, 37, 64, 150])
def test_a_prompt_among_other_cells(model: Model, gap: int) -> None:
    alone = features(model, [TEXT], [0])
    np.testing.assert_array_equal(features(model, [TEXT], [gap]), alone)


@pytest.mark.parametrize("cuts", [[100], [30], [63, 127], [2, 150, 297]])
def test_a_prompt_in_pieces(model: Model, cuts: list[int]) -> None:
    """A reused prefix leaves a shorter prompt, which rounds as the whole one. Of single tokens, products may differ."""
    pieces = [TEXT[a:b] for a, b in pairwise([0, *cuts, len(TEXT)])]
    with context(model) as ctx:
        found = []
        for piece in pieces:
            tokens = np.array(piece, np.int32)
            raw = ffi.new("eagle_batch *", (len(piece), ffi.from_buffer("int32_t[]", tokens)))
            raw.rows = C.EAGLE_ROWS_PROMPT
            assert C.eagle_decode(ctx.handle, raw) == C.EAGLE_OK
            found.append(ctx.features())
    np.testing.assert_array_equal(np.concatenate(found), features(model, [TEXT], [0]))


def test_many_rows_of_a_step_are_those_of_fewer(model: Model) -> None:
    with context(model) as ctx:
        ctx.decode(Batch(TEXT[:200]))
        few = []
        for first in (200, 250):
            ctx.decode(Batch(TEXT[first : first + 50], outputs=rows(50)))
            few.append(ctx.features())
        ctx.seq_rm(0, 200)
        ctx.decode(Batch(TEXT[200:], outputs=rows(100)))
        np.testing.assert_array_equal(ctx.features(), np.concatenate(few))
        ctx.seq_rm(0, 200)
        ctx.decode(Batch(TEXT[200:]))  # a prompt: other sums
        assert np.abs(ctx.features() - np.concatenate(few)).max() > 0


def test_rows_that_are_none(model: Model) -> None:
    with context(model) as ctx:
        tokens = ffi.new("int32_t[1]", [5])
        raw = ffi.new("eagle_batch *", (1, tokens))
        raw.rows = 7
        assert C.eagle_decode(ctx.handle, raw) == C.EAGLE_INVALID
        assert b"rows 7" in ffi.string(C.eagle_context_error(ctx.handle))
