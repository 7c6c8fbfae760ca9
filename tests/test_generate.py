"""The loop: whatever is drafted, the tokens are those of plain decoding, and limits are met exactly."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from llama_eagle import Batch, Context, ContextFullError, DraftTree, InputError, Model, TreeShape
from llama_eagle.acceptance import accept_tokens
from llama_eagle.generate import Step
from llama_eagle.slot import Slot
from loops import EXACT, SHAPES, Loaded, check_draft, load, prompt, run, text
from tiny import HeadShape, TinyPair, TinyTarget, random_head, target_shape, write_head_gguf, write_target

pytestmark = pytest.mark.native


@pytest.fixture(scope="module")
def good(tiny_good_pair: TinyPair) -> Loaded:
    return load(tiny_good_pair)


@pytest.fixture(scope="module")
def poor(tiny_pair: TinyPair) -> Loaded:
    return load(tiny_pair)


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


def test_a_tree_larger_than_the_batch_is_cut(good: Loaded) -> None:
    loop = good.loop(TreeShape(60, 4, 6), n_batch=32, n_ubatch=32)
    steps = run(loop, prompt(10), 20)
    assert text(steps) == text(run(good.plain(), prompt(10), 20))
    assert max(step.drafted for step in steps) <= 31


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 9, 30])
@pytest.mark.parametrize("shape", ["tree16", "chain12", "wide"])
def test_the_limit_is_met_exactly(good: Loaded, shape: str, limit: int) -> None:
    loop, plain = good.loop(SHAPES[shape]), good.plain()
    tokens = text(run(loop, prompt(20), limit))
    assert tokens == text(run(plain, prompt(20), limit))
    assert len(tokens) == limit


@pytest.mark.parametrize("count", [200, 240, 250, 253, 254, 255, 256])
@pytest.mark.parametrize("shape", ["tree16", "tree40", "chain12", "one"])
def test_a_full_context_ends_where_plain_decoding_does(good: Loaded, shape: str, count: int) -> None:
    loop, plain = good.loop(SHAPES[shape], n_ctx=256), good.plain(n_ctx=256)
    tokens = text(run(loop, prompt(count), 1000))
    assert tokens == text(run(plain, prompt(count), 1000))
    assert len(tokens) == 256 - count + 1
    assert loop.target.n_past() == loop.target.cells_used() == 256
    assert loop.room(loop.slot) == 0


def test_a_prompt_that_does_not_fit(good: Loaded) -> None:
    loop = good.loop(SHAPES["tree16"], n_ctx=256)
    with pytest.raises(ContextFullError):
        loop.start(prompt(257))
    with pytest.raises(InputError, match="no tokens"):
        loop.start([])
    with pytest.raises(InputError, match="token id"):
        loop.start([5, 9999])
    assert text(run(loop, prompt(20), 20)) == text(run(good.plain(), prompt(20), 20))


@pytest.mark.parametrize("shape", ["tree16", "chain4"])
def test_the_draft_follows_step_by_step(good: Loaded, shape: str) -> None:
    loop = good.loop(SHAPES[shape])
    for i, _ in enumerate(loop.steps(loop.start(prompt(30)), 25)):
        assert loop.tokens[:30] == prompt(30)
        assert loop.target.n_past() == len(loop.tokens)
        if i % 3 == 2:
            check_draft(loop)


def test_steps_add_up_in_the_terms_of_acceptance(good: Loaded) -> None:
    """Every step's tokens are the path that the target's own choices take through the tree."""
    loop = good.loop(SHAPES["tree16"])
    trees: list[DraftTree] = []
    call = loop._call

    def recorded(slots: Sequence[Slot]) -> tuple[float, float]:
        seconds = call(slots)
        trees.append(slots[0].turn.tree())
        return seconds

    loop._call = recorded  # type: ignore[method-assign]
    steps = run(loop, prompt(30), 40)[1:]
    trees = trees[1:]  # the prompt's is empty
    tokens = prompt(30)
    with Context(good.model, n_ctx=512, **EXACT) as context:
        context.decode(Batch(tokens))
        for tree, step in zip(trees, steps, strict=True):
            context.decode(Batch(tree))
            path = accept_tokens(tree, context.argmax())
            assert (*path.tokens, path.next) == step.tokens
            assert step.depth == tree.depths.max()
            assert step.drafted == len(tree)
            context.commit(path)


def test_a_target_of_another_architecture(tmp_path: Path, tiny_target: Callable[..., TinyTarget]) -> None:
    """qwen2 and deepseek2 with random heads: other ropes, other rows in the cache."""
    for arch, layers in (("qwen2", (1, 3, 6)), ("deepseek2", (0, 2, 3)), ("gemma2", (1, 2, 6))):
        target = write_target(tmp_path / f"{arch}.gguf", target_shape(arch))
        shape = HeadShape(layers=layers)
        model = Model(target.path)
        pair = Loaded(
            model, Model(write_head_gguf(tmp_path / f"{arch}-head.gguf", shape, random_head(shape)), target=model)
        )
        assert text(run(pair.loop(SHAPES["tree16"]), prompt(30), 40)) == text(run(pair.plain(), prompt(30), 40))
