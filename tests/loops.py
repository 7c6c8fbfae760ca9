"""Loops over tiny pairs and what must be true of their caches, for tests of generation."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from llama_eagle import Batch, Context, Drafter, Model, Sampler, TreeShape
from llama_eagle.generate import Loop, Step
from llama_eagle.policy import Fixed
from llama_eagle.slot import Slot
from llama_eagle.static_tree import Shape
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


class Single(Loop):
    """A loop of one sequence."""

    @property
    def slot(self) -> Slot:
        return self.slots[0]

    @property
    def tokens(self) -> list[int]:
        return self.slot.tokens

    def start(self, tokens: list[int], sampler: Sampler | None = None) -> int:
        """Decodes a prompt and returns the first root."""
        if sampler is not None:
            sampler.prompt(tokens)
        self.begin(self.slot, tokens, sampler)
        while not (step := self.prefill(self.slot)).tokens:
            self.raise_failure()
        return step.tokens[0]

    def raise_failure(self) -> None:
        if self.slot.failure is not None:
            raise self.slot.failure

    def steps(self, root: int, limit: int) -> Iterator[Step]:
        """Emits `root` and then steps until `limit` tokens were emitted, or the context is full."""
        assert self.slot.waiting == [root]
        self.slot.left = limit - 1
        yield Step((root,), 0, 0, 0)
        while self.slot.left > 0 and self.room(self.slot) > 0:
            yield self.next(self.slot.left)

    def next(self, limit: int) -> Step:
        """One step that emits at most `limit` tokens."""
        self.slot.left = limit
        step = self.step([self.slot])[0]
        self.raise_failure()
        return step


@dataclass
class Loaded:
    """Models of a pair; loops() gives each test contexts of its own."""

    model: Model
    head: Model

    def plain(self, n_ctx: int = 512) -> Single:
        return Single(Context(self.model, n_ctx=n_ctx, **EXACT))

    def loop(self, shape: Shape | None, n_ctx: int = 512, **params: Any) -> Single:
        target = Context(self.model, self.head.info.features, n_ctx=n_ctx, **{**EXACT, **params})
        draft = Context(self.head, n_ctx=target.n_ctx + 1024, **{**EXACT, **params})
        return Single(target, Drafter(draft), Fixed(shape))


def load(pair: TinyPair) -> Loaded:
    model = Model(pair.target.path)
    return Loaded(model, Model(pair.path, target=model))


def prompt(count: int, seed: int = 0) -> list[int]:
    return [int(t) for t in np.random.default_rng(seed).integers(3, 250, count)]


def run(loop: Single, tokens: list[int], limit: int) -> list[Step]:
    return list(loop.steps(loop.start(tokens), limit))


def text(steps: list[Step]) -> list[int]:
    return [t for step in steps for t in step.tokens]


def check_draft(loop: Single) -> None:
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


def check_target(loop: Single, pair: Loaded) -> None:
    """The target's logits behind its text are those of a context that was given the text at once."""
    with Context(pair.model, n_ctx=1024, n_batch=1024, n_ubatch=1024, **EXACT) as fresh:
        fresh.decode(Batch([*loop.tokens, 77]))
        loop.target.decode(Batch([77]))
        np.testing.assert_allclose(loop.target.logits(), fresh.logits(), atol=1e-2)
