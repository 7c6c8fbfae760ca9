"""The planner's choices with given costs, and how they follow what is seen."""

from math import exp
from typing import Any

import pytest

from llama_eagle import TreeShape
from llama_eagle.planner.planner import SURE, Planner
from llama_eagle.planner.step_costs import StepCosts
from llama_eagle.tree import Prices
from llama_eagle.turn import Drafted

MOST = TreeShape(63, 8, 8)


class Seen:
    """A turn as the planner reads it."""

    def __init__(self, levels: int, nodes: int, promised: float, accepted: int) -> None:
        self._drafted = Drafted(levels, nodes, promised, accepted)

    def drafted(self) -> Drafted:
        return self._drafted


def planner(per_token: float, per_level: float = 0.1, limits: TreeShape = MOST) -> Planner:
    """A token alone takes 10 ms, each further one `per_token`, each level of a draft `per_level`."""
    verify = {n: 10.0 + per_token * (n - 1) for n in (1, 2, 4, 8, 16, 32, 64)}
    costs = StepCosts(verify, per_level, {1: per_level, 8: per_level})
    return Planner(lambda: costs, limits)


def prices(one: Planner, count: int = 1, plain: int = 0) -> Prices:
    """Of a new text among `count` that draft and some that do not."""
    texts = [one.begin() for _ in range(count + plain)]
    for text in texts[count:]:
        text.account = -1.0
    shape = one.shapes(texts)[0]
    assert shape is not None
    assert shape.prices is not None
    return shape.prices


def steps(one: Planner, count: int, seen: Any) -> list[TreeShape | None]:
    """The shapes of a new text's steps; seen: the turn of one that drafts, and its seconds."""
    text, found = one.begin(), []
    for _ in range(count):
        (shape,) = one.shapes([text])
        found.append(shape)
        plain: Any = (Seen(0, 0, 0.0, 0), 0.0, 10.0)
        turn, drafting, verifying = plain if shape is None else seen
        one.saw([text], [turn], drafting, verifying)
    return found


def test_where_a_batch_costs_what_its_tokens_cost_only_sure_nodes_are_verified() -> None:
    one = planner(10.0)
    assert prices(one).nodes[0] == SURE
    assert prices(one).nodes[1] > 1.9
    assert one.loss() > 0.0
    found = steps(one, 600, (Seen(1, 0, 0.0, 0), 0.1, 10.0))
    assert found[-100:].count(None) > 40  # a level that costs next to nothing may be tried often


def test_where_a_batch_is_free_so_are_nodes() -> None:
    found = prices(planner(0.0, 0.01))
    assert max(found.nodes) == 0.0
    assert exp(found.level) < 0.01


def test_dearer_tokens_and_levels_have_higher_prices() -> None:
    by_token = [prices(planner(cost)) for cost in (0.1, 0.5, 2.0)]
    assert by_token[0].nodes[0] < by_token[1].nodes[0] < by_token[2].nodes[0]
    by_level = [prices(planner(0.1, cost)) for cost in (0.1, 1.0, 2.0)]
    assert by_level[0].level < by_level[1].level < by_level[2].level


def test_a_node_costs_the_tokens_of_its_time() -> None:
    one = planner(1.0, 0.5)
    rate = 1.0 - one.loss()  # in tokens of plain decoding
    assert prices(one).nodes[:3] == pytest.approx([0.1 * rate, 0.2 * rate, 0.3 * rate])


def test_a_boundary_of_a_kernel_shows_in_the_prices() -> None:
    verify = {1: 10.0, 8: 10.5, 9: 20.0, 16: 20.5, 17: 40.0, 64: 80.0}
    found = prices(Planner(lambda: StepCosts(verify, 0.1, {1: 0.1, 8: 0.1}), MOST)).nodes
    assert found[7] - found[6] > 10 * (found[6] - found[0])


def test_limits_hold() -> None:
    one = planner(0.5, limits=TreeShape(5, 3, 2))
    (shape,) = one.shapes([one.begin()])
    assert shape is not None
    assert (shape.nodes, shape.depth, shape.top_k) == (5, 3, 2)


def test_many_sequences_share_one_budget() -> None:
    verify = {1: 10.0, 8: 10.0, 16: 20.0, 64: 80.0}  # eight cost what one costs
    one = Planner(lambda: StepCosts(verify, 0.1, {1: 0.1, 8: 0.1}), MOST)
    assert prices(one, 1).nodes[:7] == (0.0,) * 7
    assert prices(one, 8).nodes[0] > 0.5
    assert [cost > 0.0 for cost in prices(one, 4).nodes[:2]] == [False, True]  # three others want a node each


def test_a_text_pays_for_nothing_that_plain_ones_do_not_draft() -> None:
    one = planner(1.0)
    one.costs.verify(1)
    assert prices(one, 1, plain=3).nodes == pytest.approx(tuple(4 / 13 * n for n in range(1, 64)), rel=0.5)
    steep = Planner(lambda: StepCosts({1: 10.0, 4: 10.0, 8: 20.0, 64: 300.0}, 0.1, {1: 0.1, 8: 0.1}), MOST)
    assert prices(steep, 1, plain=3).nodes[4] < prices(steep, 4).nodes[4]


def test_what_a_draft_adds_is_charged_to_its_text() -> None:
    """Of two texts in one step, the one whose draft promises nothing goes on plainly; the other one drafts on."""
    one = planner(1.0, 0.5)
    texts = [one.begin(), one.begin()]
    for _ in range(200):
        shapes = one.shapes(texts)
        turns: Any = [
            Seen(0, 0, 0.0, 0) if shape is None else Seen(1, nodes, promised, nodes)
            for shape, nodes, promised in zip(shapes, (2, 0), (1.8, 0.0), strict=True)
        ]
        tokens = 2 + sum(turn.drafted().nodes for turn in turns)
        one.saw(texts, turns, 0.5 if any(shapes) else 0.0, 9.0 + tokens)
    assert texts[0].account > 1.0
    assert texts[1].account < 0.1


def test_catching_up_is_charged_to_a_further_try_and_is_no_cost_of_a_level() -> None:
    """On its prompt a text catches up once, whether its drafts pay or not."""
    accounts = []
    for seconds in ((0.1, 0.1), (0.5, 0.1), (0.1, 0.5)):  # of two drafts, each behind plain steps
        one = planner(1.0)
        text = one.begin()
        for drafting in seconds:
            for turn, took in ((Seen(1, 0, 0.0, 0), drafting), *[(Seen(0, 0, 0.0, 0), 0.0)] * 3):
                seen: Any = turn
                one.saw([text], [seen], took, 10.0)
        accounts.append(text.account)
        assert one.costs.draft(1, 2) == pytest.approx(0.1)
    assert accounts[0] == accounts[1]
    assert accounts[0] - accounts[2] == pytest.approx(0.4 / 10.0)


def test_a_slow_draft_is_noticed() -> None:
    one = planner(0.5)
    found = steps(one, 800, (Seen(3, 3, 1.2, 1), 50.0, 11.5))
    assert found[0] is not None
    assert found[-100:].count(None) > 80


def test_a_slow_verification_is_noticed() -> None:
    one = planner(0.5)
    found = steps(one, 400, (Seen(3, 3, 1.2, 1), 0.3, 30.0))
    assert found[-100:].count(None) > 80


def test_a_head_that_is_never_right_costs_few_steps() -> None:
    one = planner(2.0, 1.0)
    first = steps(one, 128, (Seen(1, 1, 0.7, 0), 1.0, 12.0))
    drafted = len(first) - first.count(None)
    assert drafted <= 24
    second = steps(one, 128, (Seen(1, 1, 0.7, 0), 1.0, 12.0))
    assert len(second) - second.count(None) <= drafted  # a new text starts from what the first one taught


def test_a_text_that_becomes_easy_is_drafted_for_again() -> None:
    one = planner(1.0, 0.5)
    text = one.begin()
    for promised, accepted, count in ((0.1, 0, 100), (2.0, 2, 400)):
        found = []
        for _ in range(count):
            (shape,) = one.shapes([text])
            found.append(shape)
            turn: Any = Seen(0, 0, 0.0, 0) if shape is None else Seen(3, 3, promised, accepted)
            one.saw([text], [turn], 0.0 if shape is None else 1.5, 10.0 if shape is None else 13.0)
    assert found[-50:].count(None) < 5


def test_better_drafts_make_time_dearer() -> None:
    one = planner(1.0, 0.5)
    before = prices(one).nodes[0]
    steps(one, 200, (Seen(3, 3, 2.5, 3), 1.5, 13.0))
    assert prices(one).nodes[0] > before


def test_costs_are_found_when_they_are_first_needed() -> None:
    found = []

    def costs() -> StepCosts:
        found.append(1)
        return StepCosts({1: 1.0, 2: 1.1}, 0.1, {1: 0.1})

    one = Planner(costs, MOST)
    assert one.plain_rate() is None
    assert not found
    assert one.prepare() > 0.0
    assert one.prepare() == 0.0
    assert found == [1]
    assert one.plain_rate() == pytest.approx(1.0)


def test_the_explanation_names_what_it_comes_from() -> None:
    text = planner(1.0).explain()
    assert "1 10000.0, 2 11000.0, 4 13000.0" in text
    assert "verified from a chance of" in text
