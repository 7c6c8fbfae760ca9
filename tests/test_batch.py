"""Batches: what is refused at once, what is passed on, and that numpy arrays of any kind arrive as they are meant."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llama_eagle import Batch, Context, DraftTree, EagleError, InputError, Model
from llama_eagle.batch import PLAIN
from tiny import TinyTarget

pytestmark = pytest.mark.native

JUNK = [
    None,
    5,
    "abc",
    ["1"],
    [[1]],
    [1.5],
    [float("nan")],
    [2**40],
    [-(2**40)],
    [1j],
    {1: 2},
    {1, 2},
    [None],
    ["a", 3],
    [[1], [2, 3]],
    object(),
]
junk = st.one_of(
    st.sampled_from(JUNK),
    st.lists(st.one_of(st.integers(), st.floats(), st.text(max_size=2), st.none(), st.binary(max_size=2)), max_size=4),
)


@pytest.fixture(scope="module")
def context(tiny_target: Callable[..., TinyTarget]) -> Context:
    return Context(Model(tiny_target("llama").path), n_ctx=256, n_seq_max=2, n_batch=64, n_threads=1)


@pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore:Casting complex")
@pytest.mark.parametrize("tokens", JUNK, ids=repr)
def test_tokens_that_are_none(tokens: Any) -> None:
    with pytest.raises(InputError):
        Batch(tokens)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("tokens", [[1.5], [float("nan")], [1j], [2**40]], ids=repr)
def test_refusals_come_without_warnings(tokens: Any) -> None:
    with pytest.raises(InputError):
        Batch(tokens)


@pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore:Casting complex")
@pytest.mark.parametrize("name", ["parents", "outputs", "embd"])
@pytest.mark.parametrize("value", [*JUNK[1:], [1, 2, 3], np.zeros((2, 2, 2)), np.zeros((3, 2)), "x"], ids=repr)
def test_rows_that_do_not_fit(name: str, value: Any) -> None:
    with pytest.raises(InputError):
        Batch([1, 2], **{name: value})


@pytest.mark.parametrize("seq_id", ["a", 2**40, -(2**40), 1.5, None, [1], [0, 1], object(), float("nan")], ids=repr)
def test_sequence_ids_that_are_none(seq_id: Any) -> None:
    with pytest.raises(InputError):
        Batch([1, 2], seq_id=seq_id)


@pytest.mark.parametrize("batches", [[], [1], 5, None, [Batch([1]), None], [[1, 2]]], ids=repr)
def test_joining_what_is_no_batch(batches: Any) -> None:
    with pytest.raises(InputError):
        Batch.join(batches)


def test_joining_all_or_none_with_embd() -> None:
    with pytest.raises(InputError, match="all or none"):
        Batch.join([Batch([1], embd=np.zeros((1, 4))), Batch([1])])
    with pytest.raises(InputError):
        Batch.join([Batch([1], embd=np.zeros((1, 4))), Batch([1], embd=np.zeros((1, 5)))])


def test_joining_keeps_rows_in_order() -> None:
    tree = DraftTree.from_lists(9, [5, 6], [-1, 0])
    joined = Batch.join([Batch([1, 2, 3]), Batch(tree, seq_id=1), Batch([4], seq_id=2, outputs=[0])])
    assert joined.tokens.tolist() == [1, 2, 3, 9, 5, 6, 4]
    assert joined.seq_ids is not None
    assert joined.seq_ids.tolist() == [0, 0, 0, 1, 1, 1, 2]
    assert joined.parents is not None
    assert joined.parents.tolist() == [PLAIN] * 4 + [-1, 0, PLAIN]
    assert joined.outputs is not None
    assert joined.outputs.tolist() == [0, 0, 1, 1, 1, 1, 0]


@pytest.mark.parametrize(
    "tokens",
    [
        np.array([7, 8, 9], np.int64),
        np.array([7, 8, 9], ">i4"),
        np.array([7, 8, 9], np.uint8),
        np.array([7, 0, 8, 0, 9], np.int32)[::2],
        np.array([9, 8, 7], np.int32)[::-1],
        np.array([7.0, 8.0, 9.0]),
        (7, 8, 9),
        range(7, 10),
    ],
    ids=lambda t: str(getattr(t, "dtype", type(t).__name__)),
)
def test_arrays_of_any_kind(tokens: Any, context: Context) -> None:
    context.clear()
    context.decode(Batch([7, 8, 9]))
    expected = context.logits()
    context.clear()
    batch = Batch(tokens)
    assert batch.tokens.dtype == np.int32
    assert batch.tokens.tolist() == [7, 8, 9]
    context.decode(batch)
    np.testing.assert_array_equal(context.logits(), expected)


def test_booleans_are_outputs(context: Context) -> None:
    context.clear()
    context.decode(Batch([7, 8, 9], outputs=np.array([True, False, True])))
    assert context.logits().shape == (2, 272)


@pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore:Casting complex")
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    tokens=st.one_of(st.lists(st.integers(0, 271), min_size=1, max_size=3), junk),
    seq_id=st.one_of(st.integers(-2, 3), junk),
    parents=st.one_of(st.none(), junk),
    outputs=st.one_of(st.none(), junk),
)
def test_anything_is_a_batch_or_refused(context: Context, tokens: Any, seq_id: Any, parents: Any, outputs: Any) -> None:
    context.clear()
    try:
        context.decode(Batch(tokens, seq_id=seq_id, parents=parents, outputs=outputs))
    except EagleError:
        assert context.n_past(0) == context.n_past(1) == context.n_nodes(0) == context.n_nodes(1) == 0
    else:
        assert context.n_past(0) + context.n_past(1) == len(tokens)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.lists(
        st.tuples(
            st.integers(-1, 273),
            st.integers(-1, 2),
            st.sampled_from([PLAIN] * 4 + [-3, -1, 0, 1, 2, 50]),
            st.booleans(),
        ),
        max_size=70,
    )
)
def test_whole_numbers_of_any_size_never_abort(context: Context, rows: list[tuple[int, int, int, bool]]) -> None:
    context.clear()
    context.decode(Batch([5]))
    context.decode(Batch([6], seq_id=1))
    parts = [Batch([t], seq_id=s, parents=[p], outputs=[o]) for t, s, p, o in rows]
    try:
        context.decode(Batch.join(parts))
    except EagleError:
        assert context.n_past(0) == context.n_past(1) == 1
        assert context.n_nodes(0) == context.n_nodes(1) == 0
    else:
        assert len(context.logits()) == sum(o for *_, o in rows)
        counts = [context.n_past(s) + context.n_nodes(s) for s in (0, 1)]
        assert sum(counts) == len(rows) + 2
