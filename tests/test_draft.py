"""EAGLE-3 heads against an independent numpy network: encode, decode, chains and one dynamic tree."""

from collections.abc import Callable

import numpy as np
import pytest

from heads import HEADS, TOLERANCE, Head, check_tree, error, load, rows
from llama_eagle import Batch, Context, Drafter, InputError, Model, grow
from reference import Limits, grow_reference
from reference.growth import log_softmax
from tiny import HeadShape

pytestmark = pytest.mark.native


@pytest.fixture(scope="module", params=HEADS, ids=str)
def head(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Head:
    return load(tmp_path_factory.mktemp("head"), HeadShape(seed=3, **HEADS[request.param]))


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Head:
    return load(tmp_path_factory.mktemp("good"), HeadShape(seed=2, n_head_kv=4, n_draft_vocab=240), good=True)


def check_top_k(head: Head, context: Context, logits: np.ndarray, k: int = 5) -> None:
    """The k best of each row: target ids, log probabilities over the draft vocabulary."""
    ids, logp = context.top_k(k)
    expected = log_softmax(logits)
    order = np.argsort(-expected, axis=1, kind="stable")[:, :k]
    np.testing.assert_array_equal(ids, head.reference().target_ids[order])
    np.testing.assert_allclose(logp, np.take_along_axis(expected, order, axis=1), atol=1e-3)


@pytest.mark.parametrize("n_ubatch", [512, 8])
def test_encode(head: Head, n_ubatch: int) -> None:
    _, features = rows(head, 21)
    with head.context(n_ubatch=n_ubatch) as context:
        g = context.encode(features)
        expected = head.reference().encode(features)
        assert g.shape == (21, head.shape.n_embd)
        assert error(g, expected) < TOLERANCE < error(np.roll(g, 1, axis=0), expected)
        assert context.stats().n_encode == (1 if n_ubatch == 512 else 3)


@pytest.mark.parametrize("n_ubatch", [512, 8])
def test_catching_up_gives_the_last_row(head: Head, n_ubatch: int) -> None:
    tokens, features = rows(head, 21)
    net = head.reference()
    g = net.encode(features).astype(np.float32)
    hidden, logits = net.decode(tokens, g, np.arange(21))
    with head.context(n_ubatch=n_ubatch) as context:
        context.decode(Batch(tokens, embd=g))
        assert context.logits().shape == (1, head.shape.n_draft_vocab)
        assert context.hidden().shape == (
            1,
            head.shape.n_embd,
        )
        assert error(context.logits(), logits[-1:]) < TOLERANCE < error(context.logits(), logits[-2:-1])
        assert error(context.hidden(), hidden[-1:]) < TOLERANCE < error(context.hidden(), hidden[-2:-1])
        check_top_k(head, context, logits[-1:])


@pytest.mark.parametrize("n_ubatch", [512, 5])
@pytest.mark.parametrize("wanted", [[1] * 12, [0, 1, 0, 0, 1, 1, 0, 0, 0, 0, 0, 1], [1] + [0] * 11, [0, 0, 0, 1] * 3])
def test_mixed_outputs(head: Head, n_ubatch: int, wanted: list[int]) -> None:
    tokens, features = rows(head, 12)
    net = head.reference()
    g = net.encode(features).astype(np.float32)
    hidden, logits = net.decode(tokens, g, np.arange(12))
    picked = np.flatnonzero(wanted)
    with head.context(n_ubatch=n_ubatch) as context:
        context.decode(Batch(tokens, embd=g, outputs=wanted))
        assert error(context.logits(), logits[picked]) < TOLERANCE
        assert error(context.hidden(), hidden[picked]) < TOLERANCE
        check_top_k(head, context, logits[picked])
        np.testing.assert_array_equal(context.argmax(), logits[picked].argmax(axis=1))


def test_three_chained_steps(head: Head) -> None:
    """A draft's own hidden state is the next step's input."""
    tokens, features = rows(head, 9)
    net = head.reference()
    g = net.encode(features)
    hidden, logits = net.decode(tokens, g, np.arange(9))
    with head.context() as context:
        context.decode(Batch(tokens, embd=g))
        for step in range(3):
            token = int(context.top_k(1)[0][-1, 0])
            assert token == net.target_ids[logits[-1].argmax()]
            context.decode(Batch([token], embd=context.hidden()[-1:], parents=[step - 1]))
            hidden, logits = net.decode([token], hidden[-1:], [9 + step])
            assert error(context.logits(), logits) < TOLERANCE
            assert error(context.hidden(), hidden) < TOLERANCE
        assert context.n_past() == 9
        assert context.n_nodes() == 3
        context.rollback()
        assert context.cells_used() == context.n_past() == 9


@pytest.mark.parametrize(
    "limits", [Limits(16, 5, 4), Limits(3, 3, 1), Limits(40, 3, 6), Limits(1, 1, 1), Limits(5, 6, 2)], ids=str
)
def test_a_dynamic_tree_equals_the_reference(head: Head, limits: Limits) -> None:
    for seed in (1, 2):
        tokens, features = rows(head, 11, seed)
        net = head.reference()
        expected = grow_reference(net, tokens, net.encode(features), 0, limits)
        with head.context(n_ctx=1024) as context:
            context.decode(Batch(tokens, embd=context.encode(features)))
            tree = grow(context, limits.nodes, limits.depth, limits.top_k)
            check_tree(head, tree, int(tokens[-1]), expected)
            context.rollback()
            assert context.cells_used() == context.n_past() == 11


def test_a_tree_of_the_second_sequence(good: Head) -> None:
    with good.context(n_seq_max=2) as context:
        for seq_id, seed in ((1, 5), (0, 6), (1, 7)):
            tokens, features = rows(good, 8, seed)
            context.seq_rm(seq_id, 0)
            context.decode(Batch(tokens, embd=context.encode(features), seq_id=seq_id))
            net = good.reference()
            expected = grow_reference(net, tokens, net.encode(features), 0, Limits(8, 3, 3))
            check_tree(good, grow(context, 8, 3, 3, seq_id=seq_id), int(tokens[-1]), expected)
            context.rollback(seq_id)


def test_grow_refuses_what_has_no_output_to_grow_from(good: Head) -> None:
    tokens, features = rows(good, 5)
    with good.context() as context:
        g = context.encode(features)
        with pytest.raises(InputError, match="decoded no token"):
            grow(context)
        context.decode(Batch(tokens, embd=g, outputs=[0] * 5))
        with pytest.raises(InputError):
            grow(context)
        for limits in ((0, 1, 1), (1, 0, 1), (1, 1, 0), (4, 2, 999)):
            with pytest.raises(InputError):
                grow(context, *limits)


@pytest.mark.parametrize("between", ["rollback", "clear", "seq_rm", "another tree"])
def test_grow_refuses_a_stale_output(good: Head, between: str) -> None:
    """The rows of the last decode no longer belong to the last committed token."""
    tokens, features = rows(good, 5)
    with good.context() as context:
        context.decode(Batch(tokens, embd=context.encode(features)))
        if between in ("rollback", "another tree"):
            grow(context, 4, 2, 2)
        action: dict[str, Callable[[], None]] = {
            "rollback": context.rollback,
            "clear": context.clear,
            "seq_rm": lambda: context.seq_rm(0, 3),
            "another tree": lambda: None,
        }
        action[between]()
        with pytest.raises(InputError):
            grow(context, 4, 2, 2)


def test_grow_takes_the_row_of_its_own_sequence(good: Head) -> None:
    texts = [rows(good, 6, seed) for seed in (3, 4)]
    with good.context(n_seq_max=2) as context:
        context.decode(Batch([9], embd=np.zeros((1, 64))))
        context.clear()
        parts = [Batch(t, embd=context.encode(f), seq_id=s) for s, (t, f) in enumerate(texts)]
        context.decode(Batch.join(parts))
        try:
            tree = grow(context, 8, 3, 3, seq_id=0)
        except InputError:
            return  # refusing is fine, another sequence's tree is not
        net = good.reference()
        check_tree(
            good,
            tree,
            int(texts[0][0][-1]),
            grow_reference(net, texts[0][0], net.encode(texts[0][1]), 0, Limits(8, 3, 3)),
        )


def test_only_drafts_draft(good: Head) -> None:
    with Model(good.target.path) as model, Context(model, n_ctx=256) as context:
        with pytest.raises(InputError, match="no draft"):
            Drafter(context)
        with pytest.raises(InputError):
            grow(context)
        context.decode(Batch([1, 2]))
        with pytest.raises(InputError):
            grow(context)
