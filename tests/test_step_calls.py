"""The fused calls of a step against their parts, call by call."""

import math

import numpy as np
import pytest

from heads import Head, load, rows
from llama_eagle import Batch, Context, Drafter, DraftTree, InputError, TreeShape, grow
from llama_eagle.acceptance import accept_tokens
from llama_eagle.step_calls import draft_trees, verify
from llama_eagle.tree import Prices
from llama_eagle.turn import Turn
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
        drafter = Drafter(context)
        drafter.observe(tokens[19:29].tolist(), features[19:29])
        found = drafter.grow(int(tokens[29]), TreeShape(*shape))
        assert context.n_nodes() == 0
        assert context.n_past() == context.cells_used() == 29
        assert found.root == expected.root
        for name in ("tokens", "parents", "depths"):
            assert getattr(found, name).tolist() == getattr(expected, name).tolist()
        assert np.allclose(found.scores, expected.scores, atol=1e-5)


@pytest.mark.parametrize(("node", "level"), [(0.0, 0.0), (0.02, 0.05), (0.05, 0.02), (0.02, 0.9), (1.0, 0.01)])
def test_priced_trees_are_those_of_the_definition(good: Head, node: float, level: float) -> None:
    tokens, features = rows(good, 30)
    prices = Prices(tuple(node * i for i in range(1, 31)), math.log(max(level, 1e-30)))
    with good.context() as context:
        context.decode(Batch(tokens[1:], embd=context.encode(features[:29])))
        expected = grow(context, 30, 5, 4, prices=prices)
        levels = context.stats().n_decode
        context.clear()
        drafter = Drafter(context)
        drafter.observe(tokens[:29].tolist(), features[:29])
        turn = Turn(0)
        turn.root(int(tokens[29]))
        turn.draft(TreeShape(30, 5, 4, prices))
        draft_trees(context, [turn])
        found = turn.tree()
        assert turn.drafted()[:2] == (levels, len(found))
        assert turn.drafted().promised == pytest.approx(np.exp(found.scores).sum())
        for name in ("tokens", "parents", "depths"):
            assert getattr(found, name).tolist() == getattr(expected, name).tolist()


@pytest.mark.parametrize("shape", [(0, 2, 2), (4, 0, 2), (4, 2, 0), (4, 2, 100000), (-1, 2, 2)])
def test_draft_refuses_senseless_shapes(good: Head, shape: tuple[int, int, int]) -> None:
    tokens, features = rows(good, 4)
    with good.context() as context:
        drafter = Drafter(context)
        drafter.observe(tokens.tolist(), features)
        with pytest.raises(InputError, match="must be at least 1"):
            drafter.grow(5, TreeShape(*shape))
        assert drafter.pending() == 4


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
        path = verify(target, tree)
        features = target.features(list(path.rows))
        assert path == expected
        assert len(path.nodes) == (0, 0, 1, 3)[number]
        assert np.allclose(features, kept, atol=1e-4)
        assert target.n_past() == len(prompt) + 1 + len(path.nodes)
        assert target.n_nodes() == 0
