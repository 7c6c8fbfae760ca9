"""Steps of drawn trees in the native library against residual.py, number by number, and what they make impossible."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from llama_eagle import Batch, Context, DraftTree, InputError, SamplingParams, TreeShape
from llama_eagle.acceptance import Path
from llama_eagle.distribution import choose
from llama_eagle.drawn_tree import drawn
from llama_eagle.residual import accept_residual, draw_children, proposal
from llama_eagle.sampler import Sampler
from llama_eagle.static_tree import StaticTree
from llama_eagle.step_calls import verify_turns
from llama_eagle.turn import Turn
from llama_eagle.uniforms import ACCEPT, DRAFT, step_uniform, uniform
from loops import EXACT, Loaded, check_draft, load, prompt
from tiny import TinyPair

pytestmark = pytest.mark.native

SETTINGS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "hot": {"temperature": 1.5, "top_k": 0, "top_p": 1.0, "min_p": 0.0},
    "cold": {"temperature": 0.5, "repeat_penalty": 1.3, "presence_penalty": 0.2},
    "grammar": {"temperature": 1.2, "grammar": "root ::= [a-z]{400}", "ignore_eos": False},
}
SHAPES = {
    "chain": drawn(TreeShape.chain(4)),
    "tree": drawn(TreeShape(16, 5, 4)),
    "wide": drawn(StaticTree.by_level([6])),
    "ranks": drawn(StaticTree((-1, -1, 0, 1, 0), (3, 1, 0, 2, 5))),  # siblings apart, their ranks with gaps
}


@pytest.fixture(scope="module")
def good(tiny_good_pair: TinyPair) -> Loaded:
    return load(tiny_good_pair)


class Definition:
    """The same steps with residual.py, on contexts of their own."""

    def __init__(self, pair: Loaded, params: SamplingParams) -> None:
        self.target = Context(pair.model, pair.head.info.features, n_ctx=512, **EXACT)
        self.draft = Context(pair.head, n_ctx=1024, **EXACT)
        ids = pair.head.draft_map()
        self.ids = np.arange(pair.model.info.n_vocab) if ids is None else ids
        self.sampler, self.seed = Sampler(pair.model, params), params.seed or 0

    def start(self, tokens: list[int]) -> int:
        self.sampler.prompt(tokens)
        self.target.decode(Batch(tokens))
        root = self.sampler.sample(self.target)
        self.draft.decode(Batch([*tokens[1:], root], embd=self.draft.encode(self.target.features())))
        return root

    def step(self, root: int, shape: StaticTree) -> Path:
        tree, q = self._grow(root, shape)
        self.target.decode(Batch(tree))
        p = np.stack([self._law(row, words) for row, words in zip(self.target.logits(), prefixes(tree), strict=True)])
        path = accept_residual(tree, p, q, self._decider())
        features = self.target.features(list(path.rows))
        self.target.commit(path)
        for token in (*path.tokens, path.next):
            self.sampler.accept(token)
        self.draft.decode(Batch([*path.tokens, path.next], embd=self.draft.encode(features)))
        return path

    def _law(self, row: np.ndarray, words: list[int]) -> np.ndarray:
        with self.sampler.clone() as sampler:
            try:
                for word in words:
                    sampler.accept(word)
            except InputError:  # a node that the grammar forbids: nobody comes there
                return np.zeros_like(row, np.float64)
            return sampler.distribution(row)

    def _decider(self) -> Any:
        emitted, coins, accepted = self.sampler.emitted, 0, 0

        def decide(weights: np.ndarray) -> int:
            nonlocal coins, accepted
            if len(weights) != 2:
                return choose(weights, uniform(self.seed, emitted + accepted))
            coins += 1
            chosen = choose(weights, step_uniform(self.seed, ACCEPT, emitted, coins - 1))
            accepted += chosen == 0
            return chosen

        return decide

    def _grow(self, root: int, shape: StaticTree) -> tuple[DraftTree, np.ndarray]:
        """Tokens, and the law of each row over the target's vocabulary."""
        past, emitted = self.draft.n_past(), self.sampler.emitted
        start = self.draft.logits()[-1].copy(), self.draft.hidden()[-1:].copy()
        tokens = [0] * shape.nodes
        q = np.zeros((shape.nodes + 1, self.target.model.info.n_vocab))
        for parent in (-1, *range(shape.nodes)):
            children = [node for node in range(shape.nodes) if shape.parents[node] == parent]
            if children:
                law = self._draft_law(self._path(parent, tokens, shape), start)
                numbers = (step_uniform(self.seed, DRAFT, emitted, node) for node in children)
                found = draw_children(law, len(children), lambda left, numbers=numbers: choose(left, next(numbers)))
                for node, token in zip(children, found, strict=True):
                    tokens[node] = int(self.ids[token])
                q[parent + 1, self.ids] = law
            self.draft.seq_rm(0, past)
        return DraftTree.from_lists(root, tokens, shape.parents), q

    def _path(self, node: int, tokens: list[int], shape: StaticTree) -> list[int]:
        return [] if node < 0 else [*self._path(shape.parents[node], tokens, shape), tokens[node]]

    def _draft_law(self, words: list[int], start: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
        logits, hidden = start
        for word in words:
            self.draft.decode(Batch([word], embd=hidden))
            logits, hidden = self.draft.logits()[-1], self.draft.hidden()[-1:].copy()
        given = self.sampler.params
        filters = {name: getattr(given, name) for name in ("temperature", "top_k", "top_p", "min_p")}
        return proposal(logits, SamplingParams(**filters))


def prefixes(tree: DraftTree) -> Iterator[list[int]]:
    """The drafted tokens up to each row."""
    words: list[list[int]] = []
    yield []
    for token, parent in zip(tree.tokens.tolist(), tree.parents.tolist(), strict=True):
        words.append([*(words[parent] if parent >= 0 else []), token])
        yield words[-1]


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("kind", SHAPES)
def test_steps_are_those_of_the_definition(good: Loaded, kind: str, setting: str) -> None:
    params = SamplingParams(**{"seed": 7, "ignore_eos": True, **SETTINGS[setting]})
    by_hand, loop = Definition(good, params), good.loop(SHAPES[kind])
    with Sampler(good.model, params) as sampler:
        root, lengths = loop.start(prompt(20), sampler), []
        assert by_hand.start(prompt(20)) == root
        for _ in range(14):
            path = by_hand.step(root, SHAPES[kind])
            step = loop.next(40)
            assert loop.slot.turn.path() == path
            assert step.tokens == (*path.tokens, path.next)
            assert sampler.draws == sampler.emitted == by_hand.sampler.emitted
            root = path.next
            lengths.append(len(path.nodes))
    assert sum(lengths) >= 3
    check_draft(loop)


def test_the_walk_stops_at_an_end_token(good: Loaded) -> None:
    """The target wants nothing else, and some trees have one with more behind it."""
    ends = {token: 50.0 for token in range(good.model.info.n_vocab) if good.model.is_eog(token)}
    loop, found = good.loop(drawn(StaticTree.by_level([50, 3]))), 0
    for seed in range(20):
        params = SamplingParams(seed=seed, logit_bias=ends, **SETTINGS["hot"])
        with Sampler(good.model, params) as sampler:
            loop.start(prompt(20), sampler)
            step = loop.next(9)
            assert len(step.tokens) == 1 == sampler.emitted - 1
            assert good.model.is_eog(step.tokens[0])
        found += step.tokens[0] in loop.slot.turn.tree().tokens[:50]
    assert found > 2


def test_a_tree_that_was_not_drawn_is_refused(good: Loaded) -> None:
    """Nor is one that was drawn for other numbers, or for no temperature."""
    loop = good.loop(SHAPES["chain"])
    with Sampler(good.model, SamplingParams(seed=1, ignore_eos=True)) as sampler:
        loop.start(prompt(20), sampler)
        loop.next(9)
        turn = Turn(0)
        turn.give(DraftTree.chain(loop.slot.waiting[0], [1, 2]))
        turn.raw.drawn = 1
        turn.chosen_by(sampler)
        verify_turns(loop.target, [turn])
        with pytest.raises(InputError, match="not the one whose tokens were drawn"):
            turn.path()
    loop = good.loop(SHAPES["chain"])
    with Sampler(good.model, SamplingParams(temperature=0)) as greedy:
        loop.start(prompt(20), greedy)
        with pytest.raises(InputError, match="none above 0"):
            loop.next(9)


def test_a_dynamic_tree_cannot_be_drawn(good: Loaded) -> None:
    loop = good.loop(TreeShape(8, 3, 3))
    with Sampler(good.model, SamplingParams(seed=1)) as sampler:
        loop.start(prompt(20), sampler)
        loop.next(9)
        loop.slot.turn.raw.drawn = 1
        with pytest.raises(InputError, match="the tree is a dynamic one"):
            loop.next(9)
