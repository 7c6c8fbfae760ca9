"""The fused calls of a step against their parts, call by call."""

import numpy as np
import pytest

from heads import Head, load, rows
from llama_eagle import Batch, Context, DraftTree, InputError, grow
from llama_eagle.acceptance import accept_tokens
from llama_eagle.step_calls import draft, verify
from tiny import HeadShape

pytestmark = pytest.mark.native


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Head:
    return load(tmp_path_factory.mktemp("good"), HeadShape(seed=2, n_head_kv=4, n_draft_vocab=240), good=True)


@pytest.mark.parametrize("shape", [(16, 5, 4), (3, 4, 1), (60, 6, 8), (1, 1, 10), (40, 3, 2)])
def test_draft_grows_the_tree_that_the_definition_grows(good: Head, shape: tuple[int, int, int]) -> None:
    tokens, features = rows(good, 30)
    with good.context() as context:
        context.decode(Batch(tokens[1:], embd=context.encode(features[:29])))
        expected = grow(context, *shape)
        context.clear()
        context.decode(Batch(tokens[1:20], embd=context.encode(features[:19])))
        found = draft(context, tokens[20:].tolist(), features[19:29], shape)
        assert context.n_nodes() == 0
        assert context.n_past() == context.cells_used() == 29
        assert found.root == expected.root
        for name in ("tokens", "parents", "depths"):
            assert getattr(found, name).tolist() == getattr(expected, name).tolist()
        assert np.allclose(found.scores, expected.scores, atol=1e-5)


@pytest.mark.parametrize("shape", [(0, 2, 2), (4, 0, 2), (4, 2, 0), (4, 2, 100000), (-1, 2, 2)])
def test_draft_refuses_senseless_shapes(good: Head, shape: tuple[int, int, int]) -> None:
    tokens, features = rows(good, 4)
    with good.context() as context, pytest.raises(InputError, match="must be at least 1"):
        draft(context, tokens.tolist(), features, shape)


def test_draft_refuses_rows_that_do_not_fit(good: Head) -> None:
    tokens, features = rows(good, 4)
    with good.context() as context:
        for wrong in (features[:3], features[:, :-1], np.asfortranarray(features)):
            with pytest.raises(InputError, match="4 tokens need features of shape"):
                draft(context, tokens.tolist(), wrong, (4, 2, 2))
        with pytest.raises(InputError, match="need features"):
            draft(context, [], features[:0], (4, 2, 2))


def trees(target: Context, root: int) -> list[DraftTree]:
    """A tree that carries the target's own continuation at depths 0, 1 and 3, and one without nodes."""
    own: list[int] = []
    past = target.n_past()
    for token in (root, *own):
        target.decode(Batch([token]))
    for _ in range(3):
        own.append(int(target.argmax()[-1]))
        target.decode(Batch([own[-1]]))
    target.seq_rm(0, past)
    a, b, c = own
    return [
        DraftTree.from_lists(root, [], []),
        DraftTree.from_lists(root, [a + 1, a + 2, 5], [-1, -1, 0]),
        DraftTree.from_lists(root, [a + 1, a, b + 1, b + 2], [-1, -1, 0, 1]),
        DraftTree.from_lists(root, [a + 1, a, b, b + 1, b + 2, c], [-1, -1, 1, 1, 0, 2]),
    ]


@pytest.mark.parametrize("number", range(4))
def test_verify_is_decode_accept_features_and_commit(good: Head, number: int) -> None:
    prompt = rows(good, 12)[0]
    with Context(good.model.target, (1, 2), n_ctx=256) as target:
        target.decode(Batch(prompt))
        tree = trees(target, 7)[number]
        target.decode(Batch(tree))
        expected = accept_tokens(tree, target.argmax())
        kept = target.features(list(expected.rows))
        target.rollback()
        target.seq_rm(0, len(prompt))
        path, features = verify(target, tree)
        assert path == expected
        assert len(path.nodes) == (0, 0, 1, 3)[number]
        assert np.allclose(features, kept, atol=1e-4)
        assert target.n_past() == len(prompt) + 1 + len(path.nodes)
        assert target.n_nodes() == 0


def test_verify_refuses_a_tree_whose_depths_lie(good: Head) -> None:
    with Context(good.model.target, (1, 2), n_ctx=256) as target:
        target.decode(Batch(rows(good, 12)[0]))
        tree = trees(target, 7)[3]
        flat = DraftTree(tree.root, tree.tokens, tree.parents, np.ones_like(tree.depths), tree.scores)
        with pytest.raises(InputError, match="deeper"):
            verify(target, flat)
