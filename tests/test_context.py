"""Contexts under bad arguments, full caches, threads, aborts and thousands of lives: exceptions only, nothing leaks.

What can end a process runs in one of its own.
"""

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from llama_eagle import (
    Batch,
    ClosedError,
    Context,
    ContextFullError,
    DraftTree,
    InputError,
    Model,
)
from llama_eagle.acceptance import Path as AcceptPath
from loops import EXACT
from loops import prompt as text
from tiny import TinyTarget

pytestmark = pytest.mark.native

Tiny = Callable[..., TinyTarget]


@pytest.fixture(scope="module")
def model(tiny_target: Tiny) -> Model:
    return Model(tiny_target("llama", n_ctx_train=8192).path)


@pytest.fixture
def context(model: Model) -> Context:
    return Context(model, n_ctx=512, n_seq_max=2, n_batch=64, kv_unified=False, **EXACT)


BAD_CALLS: dict[str, Callable[[Context], Any]] = {
    "decode None": lambda c: c.decode(None),  # type: ignore[arg-type]
    "decode list": lambda c: c.decode([1]),  # type: ignore[arg-type]
    "decode empty": lambda c: c.decode(Batch([])),
    "decode too much": lambda c: c.decode(Batch([1] * 65)),
    "decode features": lambda c: c.decode(Batch([1], embd=np.zeros((1, 64)))),
    "decode bad sequence": lambda c: c.decode(Batch([1], seq_id=2)),
    "decode a node of nothing": lambda c: c.decode(Batch([1], seq_id=1, parents=[-1])),
    "encode": lambda c: c.encode(np.zeros((1, 192))),
    "top_k 0": lambda c: c.top_k(0),
    "top_k too much": lambda c: c.top_k(273),
    "top_k text": lambda c: c.top_k("a"),  # type: ignore[arg-type]
    "top_k float": lambda c: c.top_k(1.5),  # type: ignore[arg-type]
    **{
        f"commit {v!r:.20}": (lambda c, v=v: c.commit(v))
        for v in (None, 5, ["a"], [2**40], [0.5], [-1], [0], "0", [None])
    },
    **{f"commit in {v!r}": (lambda c, v=v: c.commit([], v)) for v in ("a", 2, -1, 2**40, None, 1.5)},
    **{f"rollback {v!r}": (lambda c, v=v: c.rollback(v)) for v in ("a", 2, -1, 2**40, None, 1.5)},
    **{f"seq_rm {v!r}": (lambda c, v=v: c.seq_rm(v, 0)) for v in ("a", 2, -1, 2**40, None, 1.5)},
    **{f"seq_rm from {v!r}": (lambda c, v=v: c.seq_rm(0, v)) for v in ("a", 2**40, None, 1.5)},
    **{f"seq_rm to {v!r}": (lambda c, v=v: c.seq_rm(0, 0, v)) for v in ("a", 2**40, None, 1.5)},
    **{f"seq_cp {v!r}": (lambda c, v=v: c.seq_cp(0, v)) for v in ("a", 2, -1, 2**40, None, 1.5)},
    **{
        f"{f} {v!r}": (lambda c, f=f, v=v: getattr(c, f)(v))
        for f in ("n_past", "n_nodes", "cells_used")
        for v in ("a", 2, -1, 2**40, None, 1.5)
    },
    **{
        f"features {v!r:.20}": (lambda c, v=v: c.features(v))
        for v in ([5], [-1], "abc", [0.5], [2**40], 7, [[0]], [None])
    },
}


@pytest.mark.parametrize("call", BAD_CALLS)
def test_bad_calls_change_nothing(call: str, model: Model) -> None:
    with Context(model, (1,), n_ctx=512, n_seq_max=2, n_batch=64, **EXACT) as context:
        context.decode(Batch([5, 6, 7]))
        expected = context.logits()
        with pytest.raises(InputError):
            BAD_CALLS[call](context)
        assert (context.n_past(), context.n_past(1), context.n_nodes(), context.cells_used()) == (3, 0, 0, 3)
        context.decode(Batch([7], seq_id=1))
        context.seq_rm(1, 0)
        context.seq_rm(0, 2)
        context.decode(Batch([7]))
        np.testing.assert_allclose(context.logits(), expected, atol=1e-4)


CLOSED: dict[str, Callable[[Context], Any]] = {
    "decode": lambda c: c.decode(Batch([1])),
    "commit": lambda c: c.commit(AcceptPath((), (), 0)),
    "seq_rm": lambda c: c.seq_rm(0, 0),
    "seq_cp": lambda c: c.seq_cp(0, 1),
    "top_k": lambda c: c.top_k(1),
    **{
        name: (lambda c, name=name: getattr(c, name)())
        for name in (
            "logits",
            "hidden",
            "argmax",
            "features",
            "rollback",
            "n_past",
            "n_nodes",
            "cells_used",
            "clear",
            "stats",
        )
    },
}


@pytest.mark.parametrize("call", CLOSED)
def test_a_closed_context(call: str, context: Context) -> None:
    context.decode(Batch([1, 2]))
    context.close()
    context.close()
    assert context.closed
    context.abort()
    context.resume()
    with pytest.raises(ClosedError):
        CLOSED[call](context)


def test_results_are_copies(context: Context) -> None:
    context.decode(Batch([5, 6]))
    logits = context.logits()
    kept = logits.copy()
    context.decode(Batch([9]))
    np.testing.assert_array_equal(logits, kept)
    context.close()
    np.testing.assert_array_equal(logits, kept)


def test_nothing_before_the_first_decode(context: Context) -> None:
    assert context.logits().shape == (0, 272)
    assert context.argmax().shape == (0,)
    assert context.top_k(3)[0].shape == (0, 3)
    assert context.features().shape[0] == 0


@pytest.mark.parametrize("unified", [True, False])
def test_a_full_cache_decodes_nothing(model: Model, unified: bool) -> None:
    with Context(model, n_ctx=512, n_seq_max=2, n_batch=128, kv_unified=unified, **EXACT) as context:
        room = [512, 0] if unified else [256, 256]
        for seq_id, count in enumerate(room):
            for first in range(0, count - 12, 100):
                context.decode(Batch(text(min(100, count - 12 - first)), seq_id=seq_id))
        past = context.n_past()
        for batch in (Batch(text(13)), Batch(DraftTree.chain(5, text(12)))):
            with pytest.raises(ContextFullError):
                context.decode(batch)
            assert context.n_past() == context.cells_used() == past
            assert context.n_nodes() == 0
        context.decode(Batch(DraftTree.chain(5, text(11))))
        context.rollback()
        context.decode(Batch(text(11)))
        with pytest.raises(ContextFullError):
            context.decode(Batch([5]))
        context.seq_rm(0, 100)
        context.decode(Batch(text(50)))
        assert context.n_past() == context.cells_used() == 150


def test_a_wide_tree_needs_cells_not_positions(model: Model) -> None:
    """A tree of 20 nodes of depth 1 at the end of the context: few positions, but no free cells."""
    with Context(model, n_ctx=256, **EXACT) as context:
        context.decode(Batch(text(250)))
        tree = DraftTree.from_lists(5, list(range(10, 30)), [-1] * 20)
        with pytest.raises(ContextFullError):
            context.decode(Batch(tree))
        assert context.n_past() == context.cells_used() == 250
        assert context.n_nodes() == 0
        context.decode(Batch(DraftTree.from_lists(5, [10, 11, 12, 13, 14], [-1] * 5)))
        context.commit([3])
        assert context.n_past() == context.cells_used() == 252


def test_two_threads_share_a_context(model: Model) -> None:
    """Calls wait for each other: each sequence ends as if it had been alone."""
    with Context(model, n_ctx=512, n_seq_max=2, kv_unified=False, **EXACT) as context:
        errors: list[BaseException] = []

        def work(seq_id: int) -> None:
            try:
                for token in text(60, seq_id):
                    context.decode(Batch([token], seq_id=seq_id))
                    context.argmax(), context.top_k(3), context.features(), context.stats()
                    context.decode(Batch([3, 4], seq_id=seq_id, parents=[-1, 0]))
                    context.rollback(seq_id)
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=work, args=(s,)) for s in (0, 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []
        for seq_id in (0, 1):
            context.decode(Batch([9], seq_id=seq_id))
            with Context(model, n_ctx=256, **EXACT) as alone:
                alone.decode(Batch([*text(60, seq_id), 9]))
                np.testing.assert_allclose(context.logits(), alone.logits(), atol=1e-3)
