"""The loop: whatever is drafted, the tokens are those of plain decoding, and no token is decoded twice."""

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny import HeadShape, TinyPair, TinyTarget, random_head, random_pair, target_shape, write_head_gguf, write_target

from llama_eagle import AbortedError, Batch, Context, ContextFullError, Drafter, DraftTree, InputError, Model, TreeShape
from llama_eagle.accept import accept_tokens
from llama_eagle.generate import Fixed, Loop, Step

pytestmark = pytest.mark.native

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


@pytest.fixture(scope="module")
def good(tiny_good_pair: TinyPair) -> Loaded:
    return load(tiny_good_pair)


@pytest.fixture(scope="module")
def poor(tiny_pair: TinyPair) -> Loaded:
    return load(tiny_pair)


@pytest.fixture(scope="module")
def windowed(tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    """gemma3, window of 16: the head gets nothing accepted but by luck."""
    return load(random_pair(tmp_path_factory.mktemp("window"), shape=target_shape("gemma3", n_ctx_train=1024)))


def prompt(count: int, seed: int = 0) -> list[int]:
    return [int(t) for t in np.random.default_rng(seed).integers(3, 250, count)]


def run(loop: Loop, tokens: list[int], limit: int) -> list[Step]:
    return list(loop.steps(loop.prefill(tokens), limit))


def text(steps: list[Step]) -> list[int]:
    return [t for step in steps for t in step.tokens]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", ["good", "poor"])
def test_tokens_are_those_of_plain_decoding(kind: str, shape: str, request: pytest.FixtureRequest) -> None:
    pair: Loaded = request.getfixturevalue(kind)
    loop, plain = pair.loop(SHAPES[shape]), pair.plain()
    for seed, count in ((1, 1), (2, 3), (3, 50)):
        steps = run(loop, prompt(count, seed), 40)
        assert text(steps) == text(run(plain, prompt(count, seed), 40))
        assert len(text(steps)) == 40
        check_counts(steps)
    if kind == "good" and shape in ("tree16", "chain4"):
        assert len(steps) < 30, "a good head saves steps"


def check_counts(steps: list[Step]) -> None:
    assert steps[0] == Step(steps[0].tokens[:1], 0, 0, 0)
    for step in steps[1:]:
        assert len(step.tokens) == step.accepted + 1
        assert step.accepted <= step.depth <= step.drafted


@pytest.mark.parametrize("n_ubatch", [512, 16])
def test_long_prompts_and_small_batches(good: Loaded, n_ubatch: int) -> None:
    loop, plain = good.loop(SHAPES["tree16"], n_ubatch=n_ubatch, n_batch=64), good.plain()
    assert text(run(loop, prompt(230), 40)) == text(run(plain, prompt(230), 40))
    check_draft(loop)


def test_a_tree_larger_than_the_batch_is_an_error_not_an_abort(good: Loaded) -> None:
    loop = good.loop(TreeShape(60, 4, 6), n_batch=32, n_ubatch=32)
    with pytest.raises(InputError, match="n_batch"):
        run(loop, prompt(10), 20)
    loop.policy = Fixed(SHAPES["tree16"])
    assert text(run(loop, prompt(10), 20)) == text(run(good.plain(), prompt(10), 20))


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 9, 30])
@pytest.mark.parametrize("shape", ["tree16", "chain12", "wide"])
def test_the_limit_is_met_exactly(good: Loaded, shape: str, limit: int) -> None:
    loop, plain = good.loop(SHAPES[shape]), good.plain()
    tokens = text(run(loop, prompt(20), limit))
    assert tokens == text(run(plain, prompt(20), limit)) and len(tokens) == limit


@pytest.mark.parametrize("count", [200, 240, 250, 253, 254, 255, 256])
@pytest.mark.parametrize("shape", ["tree16", "tree40", "chain12", "one"])
def test_a_full_context_ends_where_plain_decoding_does(good: Loaded, shape: str, count: int) -> None:
    loop, plain = good.loop(SHAPES[shape], n_ctx=256), good.plain(n_ctx=256)
    tokens = text(run(loop, prompt(count), 1000))
    assert tokens == text(run(plain, prompt(count), 1000))
    assert len(tokens) == 256 - count + 1
    assert loop.target.n_past() == loop.target.cells_used() == 256 and loop.room() == 0


def test_a_prompt_that_does_not_fit(good: Loaded) -> None:
    loop = good.loop(SHAPES["tree16"], n_ctx=256)
    with pytest.raises(ContextFullError):
        loop.prefill(prompt(257))
    with pytest.raises(InputError, match="no tokens"):
        loop.prefill([])
    with pytest.raises(InputError, match="token id"):
        loop.prefill([5, 9999])
    assert text(run(loop, prompt(20), 20)) == text(run(good.plain(), prompt(20), 20))


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


@pytest.mark.parametrize("shape", ["tree16", "chain4"])
def test_the_draft_follows_step_by_step(good: Loaded, shape: str) -> None:
    loop = good.loop(SHAPES[shape])
    for i, _ in enumerate(loop.steps(loop.prefill(prompt(30)), 25)):
        assert loop.tokens[:30] == prompt(30) and loop.target.n_past() == len(loop.tokens)
        if i % 3 == 2:
            saved = loop.drafter._open  # type: ignore[union-attr]
            check_draft(loop)
            loop.drafter._open = saved  # type: ignore[union-attr]


PROMPTS: dict[str, Callable[[list[int]], list[int]]] = {
    "the same": lambda t: t[:30],
    "a prefix": lambda t: t[:12],
    "a turn more": lambda t: [*t, *prompt(9, 5)],
    "a token more": lambda t: [*t, 5],
    "all of it": lambda t: t,
    "another end": lambda t: [*t[:25], *prompt(20, 6)],
    "in the answer": lambda t: [*t[:40], *prompt(20, 7)],
    "something else": lambda t: prompt(33, 8),
    "one token": lambda t: t[:1],
}


@pytest.mark.parametrize("then", PROMPTS)
@pytest.mark.parametrize("shape", ["tree16", "chain4", None])
def test_reusing_a_prefix_changes_nothing(good: Loaded, shape: str | None, then: str) -> None:
    loop = good.loop(SHAPES[shape] if shape else None)
    first = text(run(loop, prompt(30), 31))
    second = PROMPTS[then]([*prompt(30), *first[:-1]])
    again = text(run(loop, second, 30))
    assert again == text(run(good.plain(), second, 30))
    check_draft(loop)


def test_reuse_saves_decoding(good: Loaded) -> None:
    loop = good.loop(SHAPES["tree16"])
    run(loop, prompt(100), 1)
    before = loop.target.stats().n_tokens
    loop.prefill([*prompt(100), 5, 6])
    assert loop.target.stats().n_tokens - before == 3  # two new ones and the last one shared


def test_no_accepted_token_is_decoded_again(good: Loaded) -> None:
    """One target decode a step; its tokens are the root and the nodes of the tree, nothing else."""
    loop = good.loop(SHAPES["tree16"])
    root = loop.prefill(prompt(40))
    start = loop.target.stats()
    assert start.n_tokens == 40
    steps = list(loop.steps(root, 80))[1:]
    end = loop.target.stats()
    assert end.n_decode - start.n_decode == len(steps)
    assert end.n_tokens - start.n_tokens == sum(1 + step.drafted for step in steps)
    assert sum(step.accepted for step in steps) > len(steps)
    assert len(loop.tokens) == loop.target.n_past() == loop.target.cells_used() == 40 + 79
    drafted = loop.drafter.context.stats()  # type: ignore[union-attr]
    assert drafted.n_encode <= len(steps) + 1


def test_plain_steps_between_drafted_ones(good: Loaded) -> None:
    class Alternate:
        """Drafts every third step."""

        count = 0

        def shape(self) -> TreeShape | None:
            self.count += 1
            return SHAPES["tree16"] if self.count % 3 == 0 else None

    loop = good.loop(None)
    loop.policy = Alternate()
    assert text(run(loop, prompt(30), 60)) == text(run(good.plain(), prompt(30), 60))
    check_draft(loop)


def test_stopping_early_and_going_on(good: Loaded) -> None:
    loop = good.loop(SHAPES["tree16"])
    steps: Iterator[Step] = loop.steps(loop.prefill(prompt(30)), 50)
    for _ in range(4):
        next(steps)
    del steps
    assert text(run(loop, prompt(35), 30)) == text(run(good.plain(), prompt(35), 30))


class Wrecked:
    """A policy that fails at a given step, as Ctrl-C would."""

    def __init__(self, at: int) -> None:
        self.left = at

    def shape(self) -> TreeShape | None:
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt
        return SHAPES["tree16"]


@pytest.mark.parametrize("at", [0, 1, 5])
def test_an_interrupt_between_steps(good: Loaded, at: int) -> None:
    loop = good.loop(None)
    loop.policy = Wrecked(at)
    with pytest.raises(KeyboardInterrupt):
        run(loop, prompt(30), 50)
    loop.policy = Fixed(SHAPES["tree16"])
    longer = [*loop.tokens, 5]
    assert text(run(loop, longer, 30)) == text(run(good.plain(), longer, 30))
    check_draft(loop)


@pytest.mark.parametrize("call", ["argmax", "commit", "features", "decode"])
def test_an_interrupt_inside_a_step(good: Loaded, call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    loop = good.loop(SHAPES["tree16"])
    steps = loop.steps(loop.prefill(prompt(30)), 50)
    for _ in range(4):
        next(steps)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(loop.target, call, interrupt)
    with pytest.raises(KeyboardInterrupt):
        next(steps)
    monkeypatch.undo()
    longer = [*loop.tokens, 5]
    assert text(run(loop, longer, 30)) == text(run(good.plain(), longer, 30))
    check_draft(loop)


@pytest.mark.parametrize("who", ["target", "draft"])
def test_abort_and_resume(good: Loaded, who: str) -> None:
    loop = good.loop(SHAPES["tree16"])
    steps = loop.steps(loop.prefill(prompt(30)), 50)
    for _ in range(4):
        next(steps)
    context = loop.target if who == "target" else loop.drafter.context  # type: ignore[union-attr]
    context.abort()
    with pytest.raises(AbortedError):
        next(steps)
    context.resume()
    longer = [*loop.tokens, 5]
    assert text(run(loop, longer, 30)) == text(run(good.plain(), longer, 30))
    check_draft(loop)


def check_target(loop: Loop, pair: Loaded) -> None:
    """The target's logits behind its text are those of a context that was given the text at once."""
    with Context(pair.model, n_ctx=1024, n_batch=1024, n_ubatch=1024, **EXACT) as fresh:
        fresh.decode(Batch([*loop.tokens, 77]))
        loop.target.decode(Batch([77]))
        np.testing.assert_allclose(loop.target.logits(), fresh.logits(), atol=1e-2)


@pytest.mark.parametrize("shape", ["tree16", "tree40", "chain4", None])
def test_a_window_cache(windowed: Loaded, shape: str | None) -> None:
    loop, plain = windowed.loop(SHAPES[shape] if shape else None, n_ctx=1024), windowed.plain(n_ctx=1024)
    assert text(run(loop, prompt(280), 70)) == text(run(plain, prompt(280), 70))
    check_target(loop, windowed)


@pytest.mark.parametrize("back", [290, 200, 20, 299])
def test_a_rewind_in_a_window_cache(windowed: Loaded, back: int) -> None:
    """What the window forgot is decoded again, never missing."""
    loop = windowed.loop(SHAPES["tree16"], n_batch=64, n_ubatch=32)
    run(loop, prompt(350), 20)
    second = [*prompt(350)[:back], *prompt(30, 4)]
    assert text(run(loop, second, 30)) == text(run(windowed.plain(), second, 30))
    check_target(loop, windowed)


def test_an_aborted_prefill_of_a_window_cache(windowed: Loaded) -> None:
    """The batch overwrote what the window held; going on must not pretend that it is still there."""
    loop = windowed.loop(None, n_ctx=8192, n_batch=8192, n_ubatch=64)
    run(loop, prompt(300), 1)
    stopper = threading.Thread(target=lambda: (time.sleep(0.2), loop.target.abort()))
    stopper.start()
    with pytest.raises(AbortedError):
        loop.target.decode(Batch(prompt(7000, 3)))
    stopper.join()
    loop.target.resume()
    second = [*prompt(300), 5]
    assert text(run(loop, second, 20)) == text(run(windowed.plain(), second, 20))
    check_target(loop, windowed)


def test_steps_add_up_in_the_terms_of_acceptance(good: Loaded) -> None:
    """Every step's tokens are the path that the target's own choices take through the tree."""
    loop = good.loop(SHAPES["tree16"])
    trees: list[DraftTree] = []
    draft = loop._draft
    loop._draft = lambda root, limit: trees.append(draft(root, limit)) or trees[-1]  # type: ignore[assignment,func-returns-value]
    steps = run(loop, prompt(30), 40)[1:]
    tokens = prompt(30)
    with Context(good.model, n_ctx=512, **EXACT) as context:
        context.decode(Batch(tokens))
        for tree, step in zip(trees, steps, strict=True):
            context.decode(Batch(tree))
            path = accept_tokens(tree, context.argmax())
            assert (*path.tokens, path.next) == step.tokens
            assert step.depth == tree.depths.max() and step.drafted == len(tree)
            context.commit(path)


def test_a_target_of_another_architecture(tmp_path: Path, tiny_target: Callable[..., TinyTarget]) -> None:
    """qwen2 and deepseek2 with random heads: other ropes, other rows in the cache."""
    for arch, layers in (("qwen2", (1, 3, 6)), ("deepseek2", (0, 2, 3)), ("gemma2", (1, 2, 6))):
        target = write_target(tmp_path / f"{arch}.gguf", target_shape(arch))
        shape = HeadShape(layers=layers)
        model = Model(target.path)
        pair = Loaded(model, Model(write_head_gguf(tmp_path / f"{arch}-head.gguf", shape, random_head(shape)), target=model))
        assert text(run(pair.loop(SHAPES["tree16"]), prompt(30), 40)) == text(run(pair.plain(), prompt(30), 40))
