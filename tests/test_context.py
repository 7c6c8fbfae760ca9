"""Contexts under bad arguments, full caches, threads, aborts and thousands of lives: exceptions only, nothing leaks.

What can end a process runs in one of its own.
"""

import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from processes import run_python
from tiny import TinyPair, TinyTarget

from llama_eagle import AbortedError, Batch, ClosedError, Context, ContextFullError, DraftTree, EagleError, InputError, Model
from llama_eagle.accept import Path as AcceptPath

pytestmark = pytest.mark.native

Tiny = Callable[..., TinyTarget]
EXACT: dict[str, Any] = {"n_threads": 1, "type_k": "f32", "type_v": "f32", "flash_attn": "off"}


@pytest.fixture(scope="module")
def model(tiny_target: Tiny) -> Model:
    return Model(tiny_target("llama", n_ctx_train=8192).path)


@pytest.fixture(scope="module")
def windowed(tiny_target: Tiny) -> Model:
    return Model(tiny_target("gemma3", n_ctx_train=8192).path)


@pytest.fixture
def context(model: Model) -> Context:
    return Context(model, n_ctx=512, n_seq_max=2, n_batch=64, kv_unified=False, **EXACT)


def text(count: int, seed: int = 0) -> list[int]:
    return [int(t) for t in np.random.default_rng(seed).integers(3, 250, count)]


BAD_PARAMS: list[dict[str, Any]] = [
    *({name: value} for name in ("n_ctx", "n_batch", "n_threads") for value in (-1, "a", None, 1.5, 2**31, [], True)),
    *({name: 0} for name in ("n_batch", "n_ubatch", "n_seq_max")),
    *({name: value} for name in ("kv_unified", "swa_full") for value in ("yes", None, [], 2)),
    *({name: value} for name in ("flash_attn", "type_k", "type_v") for value in ("x", 1, None, [], {}, True)),
    {"n_seq_max": 257},
    {"n_threads": 100_000},
    {"nonsense": 1},
    {"type_v": "q8_0", "flash_attn": "off"},
]


@pytest.mark.parametrize("params", BAD_PARAMS, ids=str)
def test_bad_parameters(params: dict[str, Any], tiny_target: Tiny) -> None:
    code = "model = Model(path)\nprint(refused(Context, model, **eval(sys.argv[2])))"
    if params.get("n_threads") == 100_000:  # ended in a segmentation fault once
        run_python(code, tiny_target("llama").path, repr({"n_ctx": 256, **params}))
        return
    with Model(tiny_target("llama").path) as model, pytest.raises(InputError):
        Context(model, **{"n_ctx": 256, **params})


@pytest.mark.parametrize("model", [None, "model.gguf", 5], ids=repr)
def test_no_model(model: Any) -> None:
    with pytest.raises(InputError):
        Context(model, n_ctx=256)


@pytest.mark.parametrize("flash_attn", ["off", "on", "auto"])
@pytest.mark.parametrize("type_k", ["q8_0", "q4_0", "q5_1", "iq4_nl"])
def test_keys_that_fill_no_whole_block(type_k: str, flash_attn: str, tiny_target: Tiny) -> None:
    """Heads of 16 values: without flash attention llama.cpp takes them and computes garbage."""
    with Model(tiny_target("llama").path) as model, pytest.raises(EagleError, match=r"multiple of 32|block size 32"):
        Context(model, n_ctx=256, type_k=type_k, flash_attn=flash_attn)
    with Model(tiny_target("llama", head_dim=32).path) as wide:
        Context(wide, n_ctx=256, n_threads=1, type_k=type_k, flash_attn=flash_attn).close()


@pytest.mark.parametrize(
    "params",
    [
        {"n_ctx": 1},
        {"n_batch": 1, "n_ubatch": 1},
        {"n_ubatch": 1, "n_seq_max": 4},
        {"n_seq_max": 256, "kv_unified": False},
        {"n_outputs_max": 1},
        {"n_outputs_max": 2**31 - 1},
        {"n_batch": 2**31 - 1},
        {"n_ubatch": 2**31 - 1},
        {"type_k": "bf16", "type_v": "bf16"},
    ],
    ids=str,
)
def test_odd_parameters_work(params: dict[str, Any], model: Model) -> None:
    with Context(model, **{**EXACT, "n_ctx": 256, **params}) as context, Context(model, n_ctx=256, **EXACT) as plain:
        for token in (5, 6, 7):
            context.decode(Batch([token]))
        plain.decode(Batch([5, 6, 7]))
        limit = 0.03 if "type_k" in params else 1e-4
        assert np.abs(context.logits() - plain.logits()).max() < limit * np.abs(plain.logits()).max()


def test_a_context_larger_than_memory(tiny_target: Tiny) -> None:
    code = """
import resource
resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
model = Model(path)
for n_ctx in (2**28, 2**31 - 1):
    refused(Context, model, n_ctx=n_ctx, n_threads=1)
Context(model, n_ctx=256, n_threads=1).decode(Batch([1]))
"""
    pytest.importorskip("resource")
    run_python(code, tiny_target("llama").path)


def test_more_outputs_than_room(model: Model) -> None:
    with Context(model, n_ctx=256, n_outputs_max=4, **EXACT) as context:
        with pytest.raises(InputError, match="n_outputs_max"):
            context.decode(Batch(text(5), outputs=[1] * 5))
        context.decode(Batch(text(9), outputs=[1] * 4 + [0] * 5))
        assert context.n_past() == 9


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
    **{f"commit {v!r:.20}": (lambda c, v=v: c.commit(v)) for v in (None, 5, ["a"], [2**40], [0.5], [-1], [0], "0", [None])},
    **{f"commit in {v!r}": (lambda c, v=v: c.commit([], v)) for v in ("a", 2, -1, 2**40, None, 1.5)},
    **{f"rollback {v!r}": (lambda c, v=v: c.rollback(v)) for v in ("a", 2, -1, 2**40, None, 1.5)},
    **{f"seq_rm {v!r}": (lambda c, v=v: c.seq_rm(v, 0)) for v in ("a", 2, -1, 2**40, None, 1.5)},
    **{f"seq_rm from {v!r}": (lambda c, v=v: c.seq_rm(0, v)) for v in ("a", 2**40, None, 1.5)},
    **{f"seq_rm to {v!r}": (lambda c, v=v: c.seq_rm(0, 0, v)) for v in ("a", 2**40, None, 1.5)},
    **{f"seq_cp {v!r}": (lambda c, v=v: c.seq_cp(0, v)) for v in ("a", 2, -1, 2**40, None, 1.5)},
    **{f"{f} {v!r}": (lambda c, f=f, v=v: getattr(c, f)(v)) for f in ("n_past", "n_nodes", "cells_used") for v in ("a", 2, -1, 2**40, None, 1.5)},
    **{f"features {v!r:.20}": (lambda c, v=v: c.features(v)) for v in ([5], [-1], "abc", [0.5], [2**40], 7, [[0]], [None])},
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
    **{name: (lambda c, name=name: getattr(c, name)()) for name in ("logits", "hidden", "argmax", "features", "rollback", "n_past", "n_nodes", "cells_used", "clear", "stats")},
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
    assert context.logits().shape == (0, 272) and context.argmax().shape == (0,)
    assert context.top_k(3)[0].shape == (0, 3) and context.features().shape[0] == 0


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
            assert context.n_past() == context.cells_used() == past and context.n_nodes() == 0
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
        assert context.n_past() == context.cells_used() == 250 and context.n_nodes() == 0
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


CLOSING = """
model = Model(path)
outcomes = []
def work(context):
    try:
        while True:
            context.decode(Batch([1, 2, 3]))
            context.logits(), context.features(), context.top_k(2)
            context.seq_rm(0, 0)
    except EagleError as error:
        outcomes.append(type(error).__name__)
for _ in range(40):
    context = Context(model, (1,), n_ctx=256, n_threads=1)
    threads = [threading.Thread(target=work, args=(context,)) for _ in range(2)]
    for thread in threads:
        thread.start()
    time.sleep(0.003)
    context.close()
    for thread in threads:
        thread.join()
assert set(outcomes) <= {"ClosedError", "ContextFullError"} and len(outcomes) == 80, outcomes
model.close()
"""


def test_closing_under_other_threads(tiny_target: Tiny) -> None:
    run_python(CLOSING, tiny_target("llama").path)


def stopped(context: Context, batch: Batch) -> float:
    """Aborts a decode from another thread; seconds from abort() to the exception."""
    at: list[float] = []

    def stop() -> None:
        time.sleep(0.15)
        at.append(time.perf_counter())
        context.abort()

    stopper = threading.Thread(target=stop)
    stopper.start()
    with pytest.raises(AbortedError):
        context.decode(batch)
    ended = time.perf_counter()
    stopper.join()
    return ended - at[0]


def check_continues(context: Context, model: Model, tokens: list[int]) -> None:
    """Behind whatever n_past() says is there, logits are those of a fresh context."""
    kept = tokens[: context.n_past()]
    context.decode(Batch([7, 8]))
    with Context(model, n_ctx=512, **EXACT) as fresh:
        fresh.decode(Batch([*kept, 7, 8]))
        np.testing.assert_allclose(context.logits(), fresh.logits(), atol=1e-3)


@pytest.mark.parametrize("kind", ["model", "windowed"])
def test_abort_stops_a_long_decode(kind: str, request: pytest.FixtureRequest) -> None:
    """A window cache may lose the sequence, as the batch overwrote its window: then it says that nothing is there."""
    model: Model = request.getfixturevalue(kind)
    with Context(model, n_ctx=8192, n_batch=8192, n_ubatch=64, **EXACT) as context:
        context.decode(Batch(text(300)))
        assert stopped(context, Batch(text(7800, 1))) < 0.5
        with pytest.raises(AbortedError):
            context.decode(Batch([5]))
        context.resume()
        assert context.n_past() == (300 if kind == "model" else context.n_past())
        assert context.cells_used() == context.n_past() and context.n_nodes() == 0
        check_continues(context, model, text(300))


def test_abort_of_a_tree_keeps_what_was_there(model: Model) -> None:
    with Context(model, n_ctx=8192, n_batch=8192, n_ubatch=64, **EXACT) as context:
        context.decode(Batch(text(100)))
        context.decode(Batch([3, 4], parents=[-1, -1]))
        deep = Batch(text(7000, 1), parents=[0, *range(2, 7001)])
        assert stopped(context, deep) < 0.5
        context.resume()
        assert (context.n_past(), context.n_nodes(), context.cells_used()) == (100, 2, 102)
        context.commit([1])
        check_continues(context, model, [*text(100), 4])


def test_abort_during_encode(tiny_pair: TinyPair) -> None:
    with Model(tiny_pair.target.path) as target, Model(tiny_pair.path, target=target) as draft:
        with Context(draft, n_ctx=256, n_threads=1) as context:
            context.abort()
            with pytest.raises(AbortedError):
                context.encode(np.zeros((3, 192)))
            context.resume()
            assert context.encode(np.zeros((3, 192))).shape == (3, 64)


def test_a_copied_sequence(model: Model, windowed: Model) -> None:
    for each, unified in ((model, True), (model, False), (windowed, True), (windowed, False)):
        with Context(each, n_ctx=1024, n_seq_max=2, n_batch=512, kv_unified=unified, **EXACT) as context:
            context.decode(Batch(text(100)))
            context.seq_cp(0, 1)
            assert context.n_past(1) == 100
            context.decode(Batch([9], seq_id=1))
            copied = context.logits()
            context.decode(Batch([9]))
            np.testing.assert_allclose(copied, context.logits(), atol=1e-3)


def test_a_copied_sequence_longer_than_the_window_cache(windowed: Model) -> None:
    """The window's cells belong to both sequences; those outside of the window must not be held for ever."""
    with Context(windowed, n_ctx=1024, n_seq_max=2, n_batch=64, n_ubatch=64, **EXACT) as context:
        for first in range(0, 300, 60):
            context.decode(Batch(text(300)[first : first + 60]))
        context.seq_cp(0, 1)
        context.decode(Batch([9], seq_id=1))
        copied = context.logits()
        context.decode(Batch([9]))
        np.testing.assert_allclose(copied, context.logits(), atol=1e-3)


def test_a_window_cannot_be_gone_back_behind(windowed: Model) -> None:
    with Context(windowed, n_ctx=1024, n_batch=64, n_ubatch=64, **EXACT) as context:
        for first in range(0, 480, 60):
            context.decode(Batch(text(480)[first : first + 60]))
        with pytest.raises(InputError, match="sliding window"):
            context.seq_rm(0, 50)
        assert context.n_past() == 480
        context.seq_rm(0, 470)
        check_continues(context, windowed, text(480))


steps = st.lists(
    st.tuples(
        st.sampled_from(["decode", "tree", "commit", "rollback", "seq_rm", "seq_cp", "clear", "node"]),
        st.integers(-1, 2),
        st.integers(-2, 40),
        st.integers(-2, 40),
    ),
    max_size=25,
)


def act(context: Context, call: str, seq_id: int, a: int, b: int) -> None:
    tree = DraftTree.from_lists(5, [7, 8, 9], [-1, 0, 0])
    actions: dict[str, Callable[[], None]] = {
        "decode": lambda: context.decode(Batch([3] * max(a, 0), seq_id=seq_id)),
        "tree": lambda: context.decode(Batch(tree, seq_id=seq_id)),
        "node": lambda: context.decode(Batch([a, b], seq_id=seq_id, parents=[min(a, 3), b])),
        "commit": lambda: context.commit([0, 2][: abs(a) % 3], seq_id),
        "rollback": lambda: context.rollback(seq_id),
        "seq_rm": lambda: context.seq_rm(seq_id, a, b),
        "seq_cp": lambda: context.seq_cp(seq_id, a % 3),
        "clear": context.clear,
    }
    actions[call]()


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=steps, kind=st.sampled_from(["model", "windowed"]), unified=st.booleans())
def test_any_order_of_calls(steps: list[tuple[str, int, int, int]], kind: str, unified: bool, request: pytest.FixtureRequest) -> None:
    with Context(request.getfixturevalue(kind), n_ctx=512, n_seq_max=2, n_batch=64, n_ubatch=16, kv_unified=unified, **EXACT) as context:
        for call, seq_id, a, b in steps:
            before = [(context.n_past(s), context.n_nodes(s)) for s in (0, 1)]
            try:
                act(context, call, seq_id, a, b)
            except EagleError:
                assert before == [(context.n_past(s), context.n_nodes(s)) for s in (0, 1)]
        for seq_id in (0, 1):
            context.rollback(seq_id)
            context.decode(Batch([5], seq_id=seq_id))
            assert np.isfinite(context.logits()).all()


CYCLES = """
model = Model(path)
count = int(sys.argv[2])
def cycles(n):
    for i in range(n):
        with Context(model, (1, 6) if i % 2 else (), n_ctx=256, n_batch=32, n_threads=1) as context:
            if i % 50 == 0:
                context.decode(Batch([1, 2, 3]))
    return rss()
before = cycles(count // 5)
grown = cycles(count) - before
print(f"{grown:.1f} MiB more after {count} contexts")
assert grown < 8, f"{grown:.1f} MiB more after {count} contexts"
"""


@pytest.mark.parametrize("count", [1500, pytest.param(10_000, marks=pytest.mark.slow)])
def test_opening_and_closing_leaks_nothing(count: int, tiny_target: Tiny) -> None:
    print(run_python(CYCLES, tiny_target("llama").path, str(count), timeout=600))


MODELS = """
def cycles(n):
    for _ in range(n):
        with Model(path) as target, Model(sys.argv[2], target=target) as draft, Context(draft, n_ctx=256, n_threads=1) as context:
            context.decode(Batch([1, 2], embd=np.zeros((2, 64))))
    return rss()
before = cycles(40)
grown = cycles(150) - before
assert grown < 8, f"{grown:.1f} MiB more after 150 pairs"
"""


def test_opening_and_closing_pairs_leaks_nothing(tiny_pair: TinyPair) -> None:
    run_python(MODELS, tiny_pair.target.path, tiny_pair.path)


def test_dropping_without_closing(tiny_target: Tiny) -> None:
    code = "def once():\n    Context(Model(path), (2,), n_ctx=256, n_threads=1).decode(Batch([1]))\nfor _ in range(30):\n    once()\nmodel = Model(path)\nkept = Context(model, n_ctx=256, n_threads=1)\ndel model\ngc.collect()\nkept.decode(Batch([1]))"
    run_python(code, tiny_target("llama").path)
