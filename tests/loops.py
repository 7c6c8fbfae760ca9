"""Loops over tiny pairs and what must be true of their caches, for tests of generation."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from llama_eagle import Batch, Context, Drafter, Model, TreeShape
from llama_eagle.generate import Fixed, Loop, Step
from tiny import TinyPair

EXACT: dict[str, Any] = {"n_threads": 1, "type_k": "f32", "type_v": "f32", "flash_attn": "off"}
SHAPES = {
    "tree16": TreeShape(16, 4, 4),
    "tree40": TreeShape(40, 6, 5),
    "one": TreeShape(1, 1, 1),
    "wide": TreeShape(6, 1, 6),
    "chain1": TreeShape.chain(1),
    "chain4": TreeShape.chain(4),
    "chain12": TreeShape.chain(12),
}


@dataclass
class Loaded:
    """Models of a pair; loops() gives each test contexts of its own."""

    model: Model
    head: Model

    def plain(self, n_ctx: int = 512) -> Loop:
        return Loop(Context(self.model, n_ctx=n_ctx, **EXACT))

    def loop(self, shape: TreeShape | None, n_ctx: int = 512, **params: Any) -> Loop:
        target = Context(self.model, self.head.info.features, n_ctx=n_ctx, **{**EXACT, **params})
        draft = Context(self.head, n_ctx=target.n_ctx + 1024, **{**EXACT, **params})
        return Loop(target, Drafter(draft), Fixed(shape))


def load(pair: TinyPair) -> Loaded:
    model = Model(pair.target.path)
    return Loaded(model, Model(pair.path, target=model))


def prompt(count: int, seed: int = 0) -> list[int]:
    return [int(t) for t in np.random.default_rng(seed).integers(3, 250, count)]


def run(loop: Loop, tokens: list[int], limit: int) -> list[Step]:
    return list(loop.steps(loop.prefill(tokens), limit))


def text(steps: list[Step]) -> list[int]:
    return [t for step in steps for t in step.tokens]


def check_draft(loop: Loop) -> None:
    """After everything observed was caught up on, the draft's cache is that of a fresh prefill of the text."""
    assert loop.drafter is not None
    used = loop.drafter.context
    loop.drafter.catch_up()
    assert used.n_past() == used.cells_used() == len(loop.tokens) - 1
    features = Context(loop.target.model, used.model.info.features, n_ctx=512, **EXACT)
    features.decode(Batch(loop.tokens))
    fresh = Context(used.model, n_ctx=512, **EXACT)
    g = fresh.encode(features.features())
    fresh.decode(Batch([*loop.tokens[1:], 77], embd=g))
    used.decode(Batch([77], embd=g[-1:]))
    np.testing.assert_allclose(used.logits(), fresh.logits(), atol=1e-3)
    used.seq_rm(0, len(loop.tokens) - 1)
    fresh.close()
    features.close()


def check_target(loop: Loop, pair: Loaded) -> None:
    """The target's logits behind its text are those of a context that was given the text at once."""
    with Context(pair.model, n_ctx=1024, n_batch=1024, n_ubatch=1024, **EXACT) as fresh:
        fresh.decode(Batch([*loop.tokens, 77]))
        loop.target.decode(Batch([77]))
        np.testing.assert_allclose(loop.target.logits(), fresh.logits(), atol=1e-2)
