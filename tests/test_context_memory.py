"""What a context holds after aborts, copies, rewinds and any order of calls."""

import threading
import time
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llama_eagle import AbortedError, Batch, Context, DraftTree, EagleError, InputError, Model
from loops import EXACT
from loops import prompt as text
from tiny import TinyPair, TinyTarget

pytestmark = pytest.mark.native

Tiny = Callable[..., TinyTarget]


@pytest.fixture(scope="module")
def model(tiny_target: Tiny) -> Model:
    return Model(tiny_target("llama", n_ctx_train=8192).path)


@pytest.fixture(scope="module")
def windowed(tiny_target: Tiny) -> Model:
    return Model(tiny_target("gemma3", n_ctx_train=8192).path)


def test_more_outputs_than_room(model: Model) -> None:
    with Context(model, n_ctx=256, n_outputs_max=4, **EXACT) as context:
        with pytest.raises(InputError, match="n_outputs_max"):
            context.decode(Batch(text(5), outputs=[1] * 5))
        context.decode(Batch(text(9), outputs=[1] * 4 + [0] * 5))
        assert context.n_past() == 9


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
        assert context.cells_used() == context.n_past()
        assert context.n_nodes() == 0
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
        context = Context(draft, n_ctx=256, n_threads=1)
        context.abort()
        with pytest.raises(AbortedError):
            context.encode(np.zeros((3, 192)))
        context.resume()
        assert context.encode(np.zeros((3, 192))).shape == (3, 64)
        context.close()


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
def test_any_order_of_calls(
    steps: list[tuple[str, int, int, int]], kind: str, unified: bool, request: pytest.FixtureRequest
) -> None:
    with Context(
        request.getfixturevalue(kind), n_ctx=512, n_seq_max=2, n_batch=64, n_ubatch=16, kv_unified=unified, **EXACT
    ) as context:
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
