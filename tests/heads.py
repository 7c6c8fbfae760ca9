"""Tiny EAGLE-3 heads loaded next to their numpy twins, for tests of drafting."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import loops
from llama_eagle import Context, DraftTree, Model
from reference import Eagle3
from tiny import HeadShape, TinyTarget, good_head, random_head, target_shape, write_head_gguf, write_target

TOLERANCE = 1e-3  # relative to the largest entry
EXACT: dict[str, Any] = {"n_ctx": 512, **loops.EXACT}
HEADS: dict[str, dict[str, Any]] = {
    "d2t": {},
    "whole_vocabulary": {"n_draft_vocab": 272},
    "own_embeddings_other_width": {"n_embd": 96, "n_head": 6, "own_embeddings": True},
    "norm_before_residual": {"norm_before_residual": True},
    "norm_before_fc": {"norm_before_fc": True},
    "everything": {
        "n_embd": 32,
        "n_head": 2,
        "n_head_kv": 1,
        "own_embeddings": True,
        "norm_before_residual": True,
        "norm_before_fc": True,
    },
}


@dataclass
class Head:
    """A loaded head, its numpy twin (fresh K/V each) and its target."""

    target: TinyTarget
    shape: HeadShape
    state: dict[str, Any]
    model: Model

    def reference(self) -> Eagle3:
        return Eagle3(self.state, self.shape, self.target.tensors["token_embd.weight"])

    def context(self, **params: Any) -> Context:
        return Context(self.model, **{**EXACT, **params})


def load(folder: Path, shape: HeadShape, good: bool = False) -> Head:
    changes = {"bigram": 0.5, "layer_gain": 0.3} if good else {}
    target = write_target(folder / "target.gguf", target_shape("llama", seed=shape.seed, **changes))
    state = good_head(shape, target) if good else random_head(shape)
    model = Model(write_head_gguf(folder / "head.gguf", shape, state), target=Model(target.path))
    return Head(target, shape, state, model)


def rows(head: Head, count: int, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Random target tokens and features of their predecessors."""
    rng = np.random.default_rng(seed)
    tokens = rng.integers(3, head.shape.n_vocab, count).astype(np.int32)
    return tokens, rng.standard_normal((count, 3 * head.shape.n_embd_target)).astype(np.float32)


def error(got: np.ndarray, expected: np.ndarray) -> float:
    return float(np.abs(got - expected).max() / np.abs(expected).max())


def check_tree(head: Head, tree: DraftTree, root: int, expected: Any) -> None:
    assert tree.root == root
    np.testing.assert_array_equal(tree.tokens, head.reference().target_ids[expected.ids])
    np.testing.assert_array_equal(tree.parents, expected.parents)
    np.testing.assert_array_equal(tree.depths, expected.depths)
    np.testing.assert_allclose(tree.scores, expected.scores, rtol=1e-3, atol=1e-3)
