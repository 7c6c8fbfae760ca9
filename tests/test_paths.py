"""The path verifier: node by node it computes what tree attention does, and it leaves the same cells behind."""

import threading
from typing import Any

import numpy as np
import pytest

from llama_eagle import AbortedError, Batch, Context, ContextFullError, DraftTree, EagleError, InputError, Model
from llama_eagle.step_calls import verify, verify_turns
from llama_eagle.turn import Turn
from loops import EXACT
from tiny import TinyPair, target_shape, write_target
from trees import random_tree

pytestmark = pytest.mark.native

MODELS: dict[str, dict[str, Any]] = {
    "llama": {"head_dim": 32},
    "qwen2": {"n_head": 2, "n_head_kv": 1, "head_dim": 32},
    "deepseek2": {},
    "gemma2": {"head_dim": 32},
    "gemma3": {"head_dim": 32},
    "llama4": {"n_layer": 4, "n_head": 1, "n_head_kv": 1, "head_dim": 64, "n_ctx_train": 16384},
}
FEATURES = (0, 2)
LIMIT = 48


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Model]:
    folder = tmp_path_factory.mktemp("paths")
    return {
        arch: Model(write_target(folder / f"{arch}.gguf", target_shape(arch, seed=7, **shape)).path)
        for arch, shape in MODELS.items()
    }


def make(model: Model, n_paths: int, **params: Any) -> Context:
    given = {"n_ctx": 1024, "n_batch": 128, "n_ubatch": 128, "n_seq_max": 4, **EXACT}
    return Context(model, FEATURES, n_paths=n_paths, **{**given, **params})


def both(model: Model, **params: Any) -> tuple[Context, Context]:
    return make(model, LIMIT, **params), make(model, 0, **params)


def text(rng: np.random.Generator, count: int) -> list[int]:
    return [int(token) for token in rng.integers(3, 250, count)]


def prefill(context: Context, tokens: list[int], seq_id: int = 0) -> None:
    for first in range(0, len(tokens), context.n_batch):
        context.decode(Batch(tokens[first : first + context.n_batch], seq_id=seq_id))


def turn(seq_id: int, tree: DraftTree) -> Turn:
    res = Turn(seq_id)
    res.give(tree)
    return res


def along(rng: np.random.Generator, context: Context, seq_id: int, nodes: int) -> DraftTree:
    """A random tree, a random path of which carries the target's own tokens: some of it is accepted."""
    tree = random_tree(rng, nodes, 250)
    path = tree.paths()[int(rng.integers(len(tree.paths())))] if len(tree) else []
    tokens, past = tree.tokens.copy(), context.n_past(seq_id)
    context.decode(Batch([tree.root], seq_id=seq_id))
    for node in path[: int(rng.integers(len(path) + 1))]:
        tokens[node] = context.argmax()[-1]
        context.decode(Batch([int(tokens[node])], seq_id=seq_id))
    context.seq_rm(seq_id, past)
    return DraftTree(tree.root, tokens, tree.parents, tree.depths, tree.scores)


WINDOWS = ("gemma2", "gemma3", "llama4")  # paths over a window take one ubatch


@pytest.mark.parametrize(
    ("arch", "ubatch"), [*((arch, 128) for arch in MODELS), *((arch, 16) for arch in MODELS if arch not in WINDOWS)]
)
def test_both_verifiers_agree_node_by_node(models: dict[str, Model], arch: str, ubatch: int) -> None:
    """Several sequences with unequal trees, round after round: logits, features, paths and cells."""
    rng = np.random.default_rng(1)
    paths, trees = both(models[arch], n_ubatch=ubatch)
    accepted, rounding = 0, 5e-3 if arch.startswith("gemma") else 1e-4  # gemma's GELU is an f16 table
    with paths, trees, make(models[arch], 0, swa_full=True) as plain:
        for seq_id in range(3):
            tokens = text(rng, 5 + 30 * seq_id)
            for context in (paths, trees, plain):
                prefill(context, tokens, seq_id)
        for sizes in ((9, 14, 3), (1, 16, 8), (12, 0, 5), (16, 16, 16), (0, 0, 0), (2, 20, 7)):
            drafts = [along(rng, plain, seq_id, size) for seq_id, size in enumerate(sizes)]
            turns = [[turn(i, tree) for i, tree in enumerate(drafts)] for _ in range(2)]
            verify_turns(paths, turns[0])
            verify_turns(trees, turns[1])
            np.testing.assert_allclose(paths.logits(), trees.logits(), atol=rounding)
            np.testing.assert_allclose(paths.features(), trees.features(), atol=rounding)
            for seq_id, (one, other) in enumerate(zip(*turns, strict=True)):
                assert one.path() == other.path()
                prefill(plain, [drafts[seq_id].root, *one.path().tokens], seq_id)
                accepted += len(one.path().tokens)
                assert paths.n_past(seq_id) == trees.n_past(seq_id) == plain.n_past(seq_id)
                assert paths.n_nodes(seq_id) == 0
            assert paths.cells_used() == sum(paths.n_past(seq_id) for seq_id in range(3))
            assert paths.stats().n_decode == trees.stats().n_decode
    assert accepted > 10


def test_cells_are_in_the_same_order(models: dict[str, Model]) -> None:
    """Not a bit differs, since attention adds up the same cells in the same order."""
    rng = np.random.default_rng(2)
    paths, trees = both(models["llama"])
    with paths, trees, make(models["llama"], 0) as plain:
        tokens = text(rng, 20)
        for context in (paths, trees, plain):
            prefill(context, tokens)
        for _ in range(30):
            tree = along(rng, plain, 0, 12)
            path = verify(paths, tree)
            assert verify(trees, tree) == path
            assert np.array_equal(paths.logits(), trees.logits())
            prefill(plain, [tree.root, *path.tokens])


@pytest.mark.parametrize(("arch", "start", "rounds"), [("gemma2", 300, 40), ("gemma3", 300, 40), ("llama4", 8181, 12)])
def test_windows_keep_what_the_next_root_sees(models: dict[str, Model], arch: str, start: int, rounds: int) -> None:
    """Many rounds over a full window cache of 256 cells, most of a tree rejected; llama4's chunk ends among them."""
    rng = np.random.default_rng(3)
    params = {"n_ctx": start + 512, "n_seq_max": 1, "n_ubatch": 32}
    with make(models[arch], 12, **params) as paths, make(models[arch], 0, swa_full=True, **params) as plain:
        for context in (paths, plain):
            prefill(context, text(np.random.default_rng(4), start))
        for _ in range(rounds):
            tree = along(rng, plain, 0, 12)
            path = verify(paths, tree)
            rows = paths.logits()
            plain.decode(Batch([tree.root, *path.tokens], outputs=[1] * (1 + len(path.tokens))))
            np.testing.assert_allclose(rows[[0, *(1 + node for node in path.nodes)]], plain.logits(), atol=5e-3)
            assert paths.cells_used() == paths.n_past() == plain.n_past()
            assert paths.cells_used(window=True) <= (paths.n_past() if arch == "llama4" else 256)


def test_a_window_refuses_a_second_ubatch(models: dict[str, Model]) -> None:
    with make(models["gemma2"], LIMIT, n_ubatch=16) as context:
        prefill(context, [5, 6, 7])
        with pytest.raises(InputError, match=r"a step of 21 tokens over a sliding window.* 16 \(n_ubatch\)"):
            verify(context, random_tree(np.random.default_rng(5), 20, 250))
        assert context.cells_used() == context.n_past() == 3
        assert len(verify(context, random_tree(np.random.default_rng(5), 15, 250)).tokens) >= 0


def test_the_limit_on_leaves(models: dict[str, Model]) -> None:
    wide = DraftTree.from_lists(5, list(range(10, 16)), [-1] * 6)
    with make(models["llama"], 9) as context:
        for seq_id in range(2):
            prefill(context, [5, 6, 7], seq_id)
        with pytest.raises(
            InputError, match=r"trees with 12 leaves, the context verifies 9 paths at once.*--verify tree"
        ):
            verify_turns(context, [turn(0, wide), turn(1, wide)])
        assert context.cells_used() == 6
        assert [context.n_past(seq_id) for seq_id in range(2)] == [3, 3]
        verify_turns(context, [turn(0, wide), turn(1, DraftTree.from_lists(5, [1, 2, 3, 4, 9], [-1, -1, -1, 0, 1]))])
        assert context.cells_used() == context.n_past(0) + context.n_past(1)


@pytest.mark.parametrize(
    ("params", "match"),
    [
        ({"n_paths": -1}, "n_paths -1"),
        ({"n_paths": 253}, "n_paths 253 is not in .0, 252.*256 sequence ids"),
        ({"n_paths": 256}, "n_paths 256"),
        ({"n_paths": True}, "n_paths"),
        ({"n_paths": 8, "kv_unified": False}, "unified cache"),
    ],
)
def test_parameters(models: dict[str, Model], params: dict[str, Any], match: str) -> None:
    with pytest.raises(EagleError, match=match):
        make(models["llama"], **params)


def test_a_draft_verifies_nothing(tiny_pair: TinyPair) -> None:
    target = Model(tiny_pair.target.path)
    with Model(tiny_pair.path, target=target) as head, pytest.raises(EagleError, match="n_paths is for a target"):
        Context(head, n_ctx=256, n_paths=2)
    target.close()


def test_as_many_paths_as_there_are_ids(models: dict[str, Model]) -> None:
    """More sequences than a batch has outputs, which ends the process inside llama.cpp if it gets there."""
    with make(models["llama"], 252, n_batch=8) as context:
        prefill(context, [5, 6, 7])
        tree = DraftTree.from_lists(5, list(range(10, 17)), [-1] * 7)
        assert verify(context, tree).nodes is not None
        assert context.cells_used() == context.n_past()


def test_nothing_is_left_of_a_batch_that_does_not_fit(models: dict[str, Model]) -> None:
    with make(models["llama"], LIMIT, n_ctx=256) as context:
        for seq_id in range(2):
            prefill(context, text(np.random.default_rng(6), 120), seq_id)
        tree = random_tree(np.random.default_rng(6), 20, 250)
        with pytest.raises(ContextFullError, match="no free cells"):
            verify(context, tree)
        assert context.cells_used() == 240
        context.seq_rm(1, 0)
        assert verify(context, tree).next >= 0
        assert context.cells_used() == context.n_past()


def test_an_abort_in_the_middle_leaves_no_path_behind(models: dict[str, Model]) -> None:
    """Many ubatches a step: an abort finds some of them decoded already."""
    rng = np.random.default_rng(7)
    tokens, aborted = text(rng, 100), 0
    with make(models["llama"], 120, n_ubatch=2) as context, make(models["llama"], 120, n_ubatch=2) as calm:
        for seq_id in range(2):
            prefill(context, tokens, seq_id)
            prefill(calm, tokens, seq_id)
        for number in range(25):
            trees = [random_tree(np.random.default_rng([number, i]), 50, 250, depth=30) for i in range(2)]
            turns = [turn(i, tree) for i, tree in enumerate(trees)]
            thread = threading.Timer(0.0004 * (number % 12), context.abort)
            thread.start()
            try:
                verify_turns(context, turns)
            except AbortedError:
                aborted += 1
            thread.join()
            context.resume()
            assert context.cells_used() == context.n_past(0) + context.n_past(1)
            for seq_id in range(2):
                context.seq_rm(seq_id, 100)
        assert aborted > 3
        tree = random_tree(rng, 20, 250)
        assert verify(context, tree) == verify(calm, tree)
        np.testing.assert_allclose(context.logits(), calm.logits(), atol=1e-4)
