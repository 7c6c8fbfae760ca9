"""Measuring a pair leaves it as it was, and the choice follows from the timings."""

from collections.abc import Callable
from dataclasses import replace
from math import inf
from pathlib import Path

import pytest

from llama_eagle import Batch, Context, Drafter, Model, TreeShape
from llama_eagle.calibrate import Costs, measure, measure_plain
from llama_eagle.generate import Fixed
from loops import Single
from tiny import TinyPair, eagle3_shape, random_draft

pytestmark = pytest.mark.native


@pytest.fixture
def loop(tiny_good_pair: TinyPair) -> Single:
    model = Model(tiny_good_pair.target.path)
    head = Model(tiny_good_pair.path, target=model)
    target = Context(model, head.info.features, n_ctx=256, n_threads=1)
    return Single(target, Drafter(Context(head, n_ctx=1280, n_threads=1)), Fixed(TreeShape(8, 3, 3)))


TOKENS = list(range(20, 32))


def test_measuring_empties_both_contexts(loop: Single) -> None:
    assert loop.drafter is not None
    costs = measure(loop.target, loop.drafter, TOKENS)
    assert min(costs.plain, costs.four, costs.nine) > 0
    assert min(costs.draft_chain, costs.draft_tree) >= 0
    for context in (loop.target, loop.drafter.context):
        assert context.n_past() == context.n_nodes() == context.cells_used() == 0


def test_a_measured_pair_generates_what_a_fresh_one_does(loop: Single, tiny_good_pair: TinyPair) -> None:
    assert loop.drafter is not None
    measure(loop.target, loop.drafter, TOKENS)
    tokens = [t for step in loop.steps(loop.start([5, 6, 7]), 30) for t in step.tokens]
    with Context(Model(tiny_good_pair.target.path), n_ctx=256, n_threads=1) as plain:
        plain.decode(Batch([5, 6, 7]))
        expected = [int(plain.argmax()[0])]
        while len(expected) < 30:
            plain.decode(Batch(expected[-1:]))
            expected.append(int(plain.argmax()[0]))
    assert tokens == expected


def test_where_there_are_no_trees_chains_alone_are_measured(hybrid: Callable[[str], Model], tmp_path: Path) -> None:
    model = hybrid("lfm2")
    shape = eagle3_shape(n_vocab=model.info.n_vocab, features=(0, 1, 3))
    head = Model(random_draft(shape).write(tmp_path / "h.gguf"), target=model)
    with (
        Context(model, head.info.features, n_ctx=256, n_threads=1, n_rollback=3) as target,
        Context(head, n_ctx=1280, n_threads=1) as draft,
    ):
        costs = measure(target, Drafter(draft), TOKENS)
        assert target.n_past() == draft.n_past() == 0
        assert measure_plain(target, TOKENS) > 0
        assert target.n_past() == 0
    assert (costs.nine, costs.draft_tree) == (inf, inf)
    assert "takes no trees" in costs.explain()
    for plain, shape in ((1e-9, None), (1e9, TreeShape.chain(3))):
        assert replace(costs, plain=plain).choose() == shape


def test_measuring_plain_decoding(loop: Single) -> None:
    assert measure_plain(loop.target, TOKENS) > 0
    assert loop.target.n_past() == loop.target.cells_used() == 0


@pytest.mark.parametrize(
    ("costs", "shape"),
    [
        (Costs(1.0, 4.0, 9.0, 0.5, 1.0), None),  # every token costs the same: nothing to gain
        (Costs(1.0, 1.1, 1.2, 0.1, 0.2), TreeShape(8, 4, 3)),  # a batch costs as much as a token
        (Costs(1.0, 1.1, 3.0, 0.1, 0.2), TreeShape.chain(3)),  # up to four tokens are cheap
        (Costs(1.0, 1.1, 1.2, 5.0, 5.0), None),  # a slow draft
    ],
)
def test_the_choice(costs: Costs, shape: TreeShape | None) -> None:
    assert costs.choose() == shape
    assert (costs.loss() > 0) == (shape is None)


def test_the_loss_is_a_share_of_plain_speed() -> None:
    even = 1.9 / 1.15 - 0.1  # a step takes 15% more than what is measured of it
    assert Costs(1.0, even, 9.0, 0.1, 1.0).loss() == pytest.approx(0.0)
    assert Costs(1.0, 2 * even + 0.1, 90.0, 0.1, 1.0).loss() == pytest.approx(0.5)


def test_the_explanation_names_what_was_measured() -> None:
    line = Costs(0.0123, 0.0345, 0.0789, 0.0041, 0.0062).explain()
    assert "\n" not in line
    for number in ("12.3", "34.5", "78.9", "4.1", "6.2"):
        assert number in line
