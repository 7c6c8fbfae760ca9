"""Tree attention by equivalence: every node's logits equal those of its path decoded as a plain sequence.

One row of CASES a cache and attention variant; a skipped row says why. No case knows how the mask is made.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from llama_eagle import Batch, Context, DraftTree, InputError, Model
from tiny import target_shape, write_target
from trees import Plain, ancestors, random_tree, tree_rows

pytestmark = pytest.mark.native

SHAPES: dict[str, dict[str, Any]] = {
    "llama": {"head_dim": 32},
    "qwen2": {"n_head": 2, "n_head_kv": 1, "head_dim": 32},
    "gemma2": {"head_dim": 32},
    "gemma3": {"head_dim": 32},
    "llama4": {"n_layer": 4, "n_head": 1, "n_head_kv": 1, "head_dim": 64, "n_ctx_train": 16384},
    "deepseek2": {},
}


# relative: a last bit of K or V that falls the other way when it is stored; a visible sibling does over 0.1
ROUNDING = {"f32": 1e-4, "f16": 5e-4, "bf16": 4e-3, "q8_0": 1e-2, "q4_0": 8e-2}


@dataclass(frozen=True)
class Case:
    """One variant of model, cache and attention. `start`: tokens before the first tree."""

    arch: str
    unified: bool = True
    flash: str = "off"
    k: str = "f32"
    v: str = "f32"
    ubatch: int = 64
    start: int = 40
    params: dict[str, Any] = field(default_factory=dict)

    def floor(self) -> float:
        """With flash attention ggml adds V up in f16, where the order of cells counts; gemma's GELU is an f16 table."""
        return 2e-3 if self.flash == "on" else 5e-4 if self.arch.startswith("gemma") else 0.0

    def __str__(self) -> str:
        cache = "unified" if self.unified else "per-sequence"
        return f"{self.arch}-{cache}-fa_{self.flash}-{self.k}-{self.v}-ub{self.ubatch}-at{self.start}"


CASES = [
    Case(arch, unified, flash)
    for arch in ("llama", "qwen2", "gemma2", "gemma3", "deepseek2")
    for unified in (True, False)
    for flash in ("off", "on")
]
CASES += [Case("llama", k="f16", v="f16", flash=flash) for flash in ("off", "on")]
CASES += [Case("llama", k="bf16", v="bf16", flash="on"), Case("llama", k="q8_0", v="f16")]
CASES += [Case("llama", unified, "on", k, k) for k in ("q8_0", "q4_0") for unified in (True, False)]
CASES += [Case("gemma2", k="q8_0", v="q8_0", flash="on"), Case("gemma3", k="f16", v="f16", unified=False)]
CASES += [Case(arch, unified, ubatch=4) for arch in ("llama", "gemma2", "gemma3") for unified in (True, False)]
CASES += [Case("gemma2", start=start) for start in (12, 15, 17, 31)] + [
    Case("gemma3", start=300, unified=u, ubatch=32) for u in (True, False)
]
CASES += [Case("llama4", unified, ubatch=ubatch, start=8188) for unified, ubatch in ((True, 512), (False, 64))]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Model]:
    """One tiny model an architecture, loaded once."""
    folder = tmp_path_factory.mktemp("trees")
    return {
        arch: Model(write_target(folder / f"{arch}.gguf", target_shape(arch, seed=7, **shape)).path)
        for arch, shape in SHAPES.items()
    }


def make(model: Model, case: Case, sequences: int = 2) -> Context:
    """A context of the case; its size is per sequence."""
    size = case.start + 256
    return Context(
        model,
        n_ctx=size * sequences,
        n_batch=512,
        n_ubatch=case.ubatch,
        n_seq_max=sequences,
        n_threads=2,
        kv_unified=case.unified,
        flash_attn=case.flash,
        type_k=case.k,
        type_v=case.v,
    )


def prefill(context: Context, tokens: list[int], seq_id: int = 0) -> None:
    """Decodes a prompt in pieces of n_batch."""
    for first in range(0, len(tokens), context.n_batch):
        context.decode(Batch(tokens[first : first + context.n_batch], seq_id=seq_id))


def close(rows: np.ndarray, expected: np.ndarray, case: Case, single: Callable[[], np.ndarray]) -> bool:
    """Whether logits agree: within what rounding does, or twice what the batch shape alone does to plain decoding.

    `single` gives the rows of plain decoding one token at a time.
    """
    error = float(np.abs(rows - expected).max())
    floor = max(ROUNDING[case.k], ROUNDING[case.v], case.floor())
    return error <= floor * float(np.abs(expected).max()) or error <= 2 * float(np.abs(single() - expected).max())


def agrees(plain: Plain, prefix: list[int], tree: DraftTree, rows: np.ndarray, case: Case) -> bool:
    """Whether the rows of a decoded tree, root first, are those of its paths."""
    expected = tree_rows(plain, prefix, tree, step=512)
    return close(rows, expected, case, lambda: tree_rows(plain, prefix, tree, step=1))


def text(rng: np.random.Generator, model: Model, count: int) -> list[int]:
    """Random token ids."""
    return [int(t) for t in rng.integers(3, model.info.n_vocab, count)]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_trees_after_trees_equal_their_paths(case: Case, models: dict[str, Model]) -> None:
    model = models[case.arch]
    rng = np.random.default_rng(1)
    plain = Plain(make(model, case))
    with make(model, case) as context:
        prefix = text(rng, model, case.start)
        prefill(context, prefix)
        for nodes in (9, 16, 5):
            tree = random_tree(rng, nodes, model.info.n_vocab)
            context.decode(Batch(tree))
            assert agrees(plain, prefix, tree, context.logits(), case)
            path = ancestors(tree, int(rng.integers(nodes)))
            context.commit(path)
            prefix += [tree.root, *(int(tree.tokens[i]) for i in path)]
            assert context.n_nodes() == 0
            assert context.n_past() == context.cells_used() == len(prefix)
    plain.context.close()


@pytest.mark.parametrize("case", [c for c in CASES if c.start == 40 and c.k == "f32"], ids=str)
def test_two_sequences_with_unequal_trees(case: Case, models: dict[str, Model]) -> None:
    model = models[case.arch]
    rng = np.random.default_rng(2)
    plain = Plain(make(model, case))
    with make(model, case) as context:
        prefixes = [text(rng, model, case.start), text(rng, model, 7)]
        for seq_id, prefix in enumerate(prefixes):
            prefill(context, prefix, seq_id)
        for sizes in ((11, 3), (2, 13)):
            trees = [random_tree(rng, size, model.info.n_vocab) for size in sizes]
            batches = [Batch(tree, seq_id=seq_id) for seq_id, tree in enumerate(trees)]
            context.decode(Batch.join(batches))
            rows = np.split(context.logits(), [sizes[0] + 1])
            for seq_id, tree in enumerate(trees):
                assert agrees(plain, prefixes[seq_id], tree, rows[seq_id], case)
                path = ancestors(tree, int(rng.integers(len(tree))))
                context.commit(path, seq_id)
                prefixes[seq_id] += [tree.root, *(int(tree.tokens[i]) for i in path)]
    plain.context.close()


def levels(tree: DraftTree) -> list[list[int]]:
    """Node indices by depth."""
    return [[i for i in range(len(tree)) if tree.depths[i] == d] for d in range(1, int(tree.depths.max()) + 1)]


@pytest.mark.parametrize(
    "case", [Case("llama"), Case("gemma2"), Case("gemma3", unified=False), Case("llama", ubatch=4)], ids=str
)
def test_a_tree_grown_level_by_level(case: Case, models: dict[str, Model]) -> None:
    model = models[case.arch]
    rng = np.random.default_rng(3)
    plain = Plain(make(model, case))
    with make(model, case) as context:
        prefix = text(rng, model, case.start)
        prefill(context, prefix)
        tree = random_tree(rng, 14, model.info.n_vocab)
        context.decode(Batch([tree.root]))
        rows = [context.logits()]
        for level in levels(tree):
            context.decode(Batch(tree.tokens[level], parents=tree.parents[level], outputs=[1] * len(level)))
            rows.append(context.logits())
        assert agrees(plain, prefix, tree, np.concatenate(rows), case)
        context.rollback()
        assert context.cells_used() == context.n_past() == len(prefix) + 1
    plain.context.close()


def test_a_visible_sibling_would_be_noticed(models: dict[str, Model]) -> None:
    model = models["llama"]
    case = Case("llama")
    rng = np.random.default_rng(4)
    prefix = text(rng, model, case.start)
    tree = DraftTree.from_lists(5, [10, 20, 30], [-1, -1, 1], [0.0, 0.0, 0.0])
    wrong = DraftTree.from_lists(5, [10, 20, 30], [-1, 0, 1], [0.0, 0.0, 0.0])  # node 1 sees its sibling 0
    plain = Plain(make(model, case))
    assert agrees(plain, prefix, tree, tree_rows(plain, prefix, tree, step=512), case)
    assert not agrees(plain, prefix, tree, tree_rows(plain, prefix, wrong, step=512), case)
    plain.context.close()


def test_a_depth_beyond_the_mask_shortcut(models: dict[str, Model]) -> None:
    """Two branches of depth 50 in ubatches of 8: the first nodes lie further back than the mask's shortcut looks."""
    model = models["llama"]
    case = Case("llama", ubatch=8)
    rng = np.random.default_rng(5)
    prefix = text(rng, model, 10)
    parents = [-1, -1, *range(98)]
    tree = DraftTree.from_lists(5, list(range(3, 103)), parents, [0.0] * 100)
    plain = Plain(make(model, case))
    with make(model, case) as context:
        prefill(context, prefix)
        context.decode(Batch(tree))
        assert agrees(plain, prefix, tree, context.logits(), case)
    plain.context.close()


def test_window_keeps_what_the_next_root_sees(models: dict[str, Model]) -> None:
    """A window cache as small as it gets: 40 rounds of rejected trees never cost it a position."""
    model = models["gemma2"]
    case = Case("gemma2")
    rng = np.random.default_rng(6)
    plain = Plain(make(model, case))
    prefix = text(rng, model, 20)
    with Context(
        model, n_ctx=512, n_batch=32, n_ubatch=32, n_threads=1, type_k="f32", type_v="f32", flash_attn="off"
    ) as context:
        prefill(context, prefix)
        for _ in range(40):
            tree = random_tree(rng, 24, model.info.n_vocab, depth=12)
            context.decode(Batch(tree))
            context.commit([0])
            prefix += [tree.root, int(tree.tokens[0])]
        context.decode(Batch([9]))
        rows = context.logits()
        assert close(
            rows, plain.rows(prefix, [9], step=512), case, lambda: plain.rows(prefix[:90], [*prefix[90:], 9], 1)[-1:]
        )
    plain.context.close()


def test_commit_refuses_what_is_no_path(models: dict[str, Model]) -> None:
    model = models["llama"]
    with make(model, Case("llama")) as context:
        prefill(context, [5, 6, 7])
        context.decode(Batch(DraftTree.from_lists(8, [1, 2, 3], [-1, -1, 0], [0.0] * 3)))
        for path in ([1, 2], [2], [0, 1], [7], [-1]):
            with pytest.raises(InputError, match="does not continue the path"):
                context.commit(path)
        with pytest.raises(InputError, match="commit a path first"):
            context.decode(Batch([4]))
        with pytest.raises(InputError, match="uncommitted nodes"):
            context.seq_rm(0, 1)
        context.commit([0, 2])
        assert context.n_past() == context.cells_used() == 6
