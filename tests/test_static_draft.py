"""Static trees on tiny heads: the native call equals its definition, one decode a level, and texts stay plain's."""

from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from heads import HEADS, Head, rows
from heads import load as load_head
from llama_eagle import (
    Batch,
    Context,
    DraftTree,
    InputError,
    SamplingParams,
    StaticTree,
    TreeShape,
    grow_static,
    step_calls,
)
from llama_eagle.draft import Drafter
from llama_eagle.generate import Loop
from llama_eagle.policy import Fixed
from llama_eagle.sampler import Sampler
from loops import Loaded, check_draft, load, prompt, run, text
from reference.growth import log_softmax
from tiny import HeadShape, TinyPair

pytestmark = pytest.mark.native

TREES = {
    "eagle1": StaticTree.parse("eagle1"),
    "44": StaticTree.parse("4,2,2,1"),
    "wide": StaticTree.parse("64"),
    "chain": StaticTree.parse("1,1,1,1,1"),
    "gaps": StaticTree.from_paths([[1], [3], [3, 2], [3, 0], [3, 2, 5], [1, 0], [1, 0, 0], [1, 0, 0, 1]]),
}


@pytest.fixture(scope="module", params=["d2t", "everything"])
def head(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Head:
    return load_head(tmp_path_factory.mktemp("head"), HeadShape(seed=3, **HEADS[request.param]))


@pytest.fixture(scope="module")
def good(tiny_good_pair: TinyPair) -> Loaded:
    return load(tiny_good_pair)


def draft(context: Context, tokens: np.ndarray, features: np.ndarray, shape: StaticTree) -> DraftTree:
    """Sees the pairs that the draft has not seen, and grows a tree behind the last one."""
    drafter, first = Drafter(context), context.n_past()
    drafter.observe(tokens[first:-1].tolist(), features[first : len(tokens) - 1])
    return drafter.grow(int(tokens[-1]), shape)


def check_equal(found: DraftTree, expected: DraftTree) -> None:
    assert found.root == expected.root
    for name in ("tokens", "parents", "depths"):
        assert getattr(found, name).tolist() == getattr(expected, name).tolist()
    np.testing.assert_allclose(found.scores, expected.scores, atol=1e-5)


@pytest.mark.parametrize("name", TREES)
def test_the_native_call_is_the_definition(head: Head, name: str) -> None:
    tokens, features = rows(head, 30)
    shape = TREES[name]
    with head.context() as context:
        context.decode(Batch(tokens[1:], embd=context.encode(features[:29])))
        before = context.stats().n_decode
        expected = grow_static(context, shape)
        assert context.stats().n_decode - before == shape.depth - 1
        assert context.n_nodes() == sum(map(len, shape.inner))
        context.clear()
        context.decode(Batch(tokens[1:20], embd=context.encode(features[:19])))
        before = context.stats()
        found = draft(context, tokens, features, shape)
        assert context.stats().n_decode - before.n_decode == shape.depth
        assert context.stats().n_tokens - before.n_tokens == 10 + sum(map(len, shape.inner))
        assert context.n_nodes() == 0
        assert context.n_past() == context.cells_used() == 29
    check_equal(found, expected)
    assert found.parents.tolist() == list(shape.parents)


def test_the_definition_against_numpy(head: Head) -> None:
    """Every node's token is that of its rank behind its path in an independent network."""
    tokens, features = rows(head, 9)
    net = head.reference()
    g = net.encode(features)
    shape = TREES["gaps"]
    with head.context() as context:
        context.decode(Batch(tokens, embd=g.astype(np.float32)))
        tree = grow_static(context, shape)
    for node in range(len(tree)):
        path = [node]
        while shape.parents[path[0]] >= 0:
            path.insert(0, shape.parents[path[0]])
        net = head.reference()
        hidden, logits = net.decode(tokens, g, np.arange(9))
        score = 0.0
        for step, at in enumerate(path):
            logp = log_softmax(logits)[-1]
            best = int(np.argsort(-logp, kind="stable")[shape.ranks[at]])
            assert tree.tokens[at] == net.target_ids[best]
            score += float(logp[best])
            hidden, logits = net.decode([int(tree.tokens[at])], hidden[-1:], [9 + step])
        np.testing.assert_allclose(tree.scores[node], score, rtol=1e-3, atol=1e-3)


def test_nothing_to_grow_from(head: Head) -> None:
    with head.context() as context, pytest.raises(InputError, match="nothing to grow from"):
        grow_static(context, TREES["44"])


@pytest.mark.parametrize(
    ("parents", "ranks", "words"),
    [
        ((), (), "at least 1"),
        ((0,), (0,), "neither -1 nor an earlier node"),
        ((-2,), (0,), "neither -1"),
        ((-1,), (-1,), "rank -1 is not in"),
        ((-1,), (100000,), "rank 100000 is not in"),
        ((-1, 0, -1), (0, 0, 1), "use level order"),
        ((-1, -1), (2, 2), "two children of rank 2"),
    ],
)
def test_the_native_call_refuses_what_is_no_tree(head: Head, parents: Any, ranks: Any, words: str) -> None:
    tokens, features = rows(head, 4)
    with head.context() as context:
        with pytest.raises(InputError, match=words):
            draft(context, tokens, features, StaticTree(parents, ranks))
        assert context.n_past() == context.n_nodes() == 0


def test_a_target_grows_no_tree(good: Loaded) -> None:
    with pytest.raises(InputError, match="this is a target"):
        step_calls.draft(good.plain().target, 5, TREES["44"])


@pytest.mark.parametrize("name", TREES)
def test_greedy_text_is_plains(good: Loaded, name: str) -> None:
    loop, plain = good.loop(TREES[name]), good.plain()
    for seed, count in ((1, 1), (2, 50)):
        steps = run(loop, prompt(count, seed), 40)
        assert text(steps) == text(run(plain, prompt(count, seed), 40))
        assert max(step.drafted for step in steps) == TREES[name].nodes
    if name in ("eagle1", "44"):
        assert len(steps) < 30, "a good head saves steps"
    check_draft(loop)


class Turns(Fixed):
    """Shapes in turn: drafting goes on and off, and changes its kind, in the middle of a text."""

    def __init__(self) -> None:
        super().__init__(None)
        shapes = [TREES["eagle1"], None, TreeShape(16, 4, 4), None, None, TreeShape.chain(4), TREES["gaps"]]
        object.__setattr__(self, "values", cycle(shapes))

    def shapes(self, texts: Any) -> Any:
        return [next(self.values) for _ in texts]


def sampled(loop: Loop, seed: int) -> list[int]:
    with Sampler(loop.target.model, SamplingParams(temperature=0.8, seed=seed, ignore_eos=True)) as sampler:
        return text(list(loop.steps(loop.start(prompt(20, seed), sampler), 60)))


@pytest.mark.parametrize("name", [*TREES, "turns"])
def test_sampled_text_is_that_of_the_seed(good: Loaded, name: str) -> None:
    loop, plain = good.loop(TREES.get(name)), good.plain()
    if name == "turns":
        loop.policy = Turns()
    for seed in range(4):
        assert sampled(loop, seed) == sampled(plain, seed)
    check_draft(loop)


def test_drafting_on_and_off_in_the_middle_of_a_text(good: Loaded) -> None:
    loop = good.loop(None)
    loop.policy = Turns()
    steps = run(loop, prompt(30), 120)
    assert text(steps) == text(run(good.plain(), prompt(30), 120))
    assert {0, 4, 8, 16, 25} <= {step.drafted for step in steps}
    check_draft(loop)


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 9])
def test_the_limit_is_met_exactly(good: Loaded, limit: int) -> None:
    steps = run(good.loop(TREES["eagle1"]), prompt(20), limit)
    assert text(steps) == text(run(good.plain(), prompt(20), limit))
    left = limit - 1
    for step in steps[1:]:
        assert step.depth == min(5, left - 1)
        left -= len(step.tokens)


@pytest.mark.parametrize("count", [240, 252, 254, 255, 256])
def test_a_full_context(good: Loaded, count: int) -> None:
    loop, plain = good.loop(TREES["44"], n_ctx=256), good.plain(n_ctx=256)
    tokens = text(run(loop, prompt(count), 1000))
    assert tokens == text(run(plain, prompt(count), 1000))
    assert len(tokens) == 256 - count + 1
    assert loop.target.n_past() == loop.target.cells_used() == 256


@pytest.mark.parametrize("n_batch", [32, 5, 2, 1])
def test_small_batches(good: Loaded, n_batch: int, tmp_path: Path) -> None:
    loop = good.loop(TREES["eagle1"], n_batch=n_batch, n_ubatch=n_batch)
    steps = run(loop, prompt(10), 20)
    assert text(steps) == text(run(good.plain(), prompt(10), 20))
    assert max(step.drafted for step in steps) == min(25, n_batch - 1)
