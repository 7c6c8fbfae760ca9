"""Turns that C would trip over: refused, and nothing is written where it does not belong."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from heads import Head, load, rows
from llama_eagle import Context, Drafter, DraftTree, InputError, Sampler, SamplingParams, TreeShape
from llama_eagle.step_calls import draft_trees, step, verify_turns
from llama_eagle.turn import Turn
from tiny import HeadShape

pytestmark = pytest.mark.native


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Head:
    return load(tmp_path_factory.mktemp("good"), HeadShape(seed=2, n_head_kv=4, n_draft_vocab=240), good=True)


def target(head: Head, features: tuple[int, ...] = (1, 2)) -> Context:
    return Context(head.model.target, features, n_ctx=256)  # type: ignore[arg-type]


def turn_of(tree: DraftTree) -> Turn:
    turn = Turn(0)
    turn.give(tree)
    return turn


WRONG: dict[str, tuple[Callable[[Any], None], str]] = {
    "no token": (lambda raw: setattr(raw, "n_tokens", 0), "at least one token"),
    "negative nodes": (lambda raw: setattr(raw.tree, "n", -1), "at least one token"),
    "too many nodes": (lambda raw: setattr(raw.tree, "n", 2**31 - 1), "at least one token"),
    "a parent behind": (lambda raw: raw.tree.parents.__setitem__(0, 1), "parent 1 of node 0"),
    "a parent far off": (lambda raw: raw.tree.parents.__setitem__(1, 10**9), "parent 1000000000 of node 1"),
    "a parent below": (lambda raw: raw.tree.parents.__setitem__(1, -2), "parent -2"),
    "no sequence": (lambda raw: setattr(raw, "seq_id", 9), "sequence id 9"),
}


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("grammar", [None, "root ::= [a-z]+"])
def test_verifying(good: Head, name: str, grammar: str | None) -> None:
    change, words = WRONG[name]
    with target(good) as context, Sampler(context.model, SamplingParams(seed=1, grammar=grammar)) as sampler:
        turn = turn_of(DraftTree.from_lists(65, [97, 98], [-1, 0]))
        turn.chosen_by(sampler)
        change(turn.raw)
        with pytest.raises(InputError, match=words):
            verify_turns(context, [turn])
        assert context.n_past() == context.n_nodes() == 0


def test_drafting_without_a_root(good: Head) -> None:
    tokens, features = rows(good, 9)
    with good.context() as context:
        Drafter(context).observe(tokens.tolist(), features)
        for count in (0, -5, -(2**31)):
            turn = Turn(0)
            turn.root(5)
            turn.draft(TreeShape(4, 2, 2))
            turn.raw.n_tokens = count
            with pytest.raises(InputError, match="no token"):
                draft_trees(context, [turn])


@pytest.mark.parametrize("features", [(), (1,), (0, 1, 2, 3, 4, 5)])
def test_a_target_with_other_features(good: Head, features: tuple[int, ...]) -> None:
    with target(good, features) as context, good.context() as draft:
        turn = turn_of(DraftTree.from_lists(65, [], []))
        turn.observed(True)
        with pytest.raises(InputError, match="the draft reads"):
            step(context, draft, [turn])


def test_two_turns_of_a_sequence(good: Head) -> None:
    with target(good) as context, pytest.raises(InputError, match="two turns"):
        verify_turns(context, [turn_of(DraftTree.from_lists(65, [], [])) for _ in range(2)])


def test_what_was_given_comes_back(good: Head) -> None:
    tree = DraftTree.from_lists(65, [97, 98, 99], [-1, -1, 1], [-0.5, -1.5, -2.0])
    found = turn_of(tree).tree()
    for name in ("root", "tokens", "parents", "depths", "scores"):
        np.testing.assert_array_equal(getattr(found, name), getattr(tree, name))
