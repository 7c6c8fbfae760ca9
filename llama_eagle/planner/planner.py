"""Planner: before each step what drafting may cost, so that tokens a second are the most, or none where plain wins.

A draft is worth its tokens, and a second is worth the tokens that are decoded in it meanwhile: a node is verified where
the chance of its acceptance pays for its share of the step, a level is drafted where its best node's pays for a decode
of the draft, and a text is drafted for where its drafts pay on the whole. Knows costs and chances as numbers; decodes
nothing. What one text taught is where the next one starts.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import exp, log

from ..tree import Prices, TreeShape
from ..turn import Drafted, Turn
from .record import Record
from .step_costs import StepCosts
from .text_plan import TextPlan

GOES_ON = 0.65  # chance of the best child of an accepted node
WIDTH = 2  # nodes of a usual level
SURE = 0.9  # a draft verifies its root's best child from this chance on, whatever it costs: costs are learned by doing
LATE = 10.0  # usual drafts: more than that is no catching up, something came between
LEARN = 4  # steps that are learned from at once: Python behind a decode runs from cold caches


class Planner:
    """Chooses shapes; is told what became of them.

    costs: measures or remembers them; called when they are first needed. limits: of all trees; a top_k of 1: chains.
    """

    def __init__(self, costs: Callable[[], StepCosts], limits: TreeShape) -> None:
        self._find_costs = costs
        self._limits = limits
        self._costs: StepCosts | None = None
        self._all: Record | None = None
        self._steps: list[tuple[Sequence[TextPlan], list[Drafted], float, float]] = []  # that nothing was learned from
        self._drafted = False  # in the last step that was learned from

    @property
    def costs(self) -> StepCosts:
        """What steps cost."""
        self.prepare()
        assert self._costs is not None
        return self._costs

    @property
    def record(self) -> Record:
        """What drafts gave in all texts."""
        if self._all is None:
            one = self.costs.verify(1)
            self._all = Record.usual(self.costs.verify(2) / one - 1.0, self.costs.draft(1, WIDTH) / one)
        return self._all

    def prepare(self) -> float:
        """Finds the costs, unless they are known. Returns the seconds that this took."""
        if self._costs is not None:
            return 0.0
        start = time.perf_counter()
        self._costs = self._find_costs()
        return time.perf_counter() - start

    def begin(self) -> TextPlan:
        """The plan of a new text."""
        return TextPlan(self.record.of_text())

    def plain_rate(self) -> float | None:
        """Tokens a second of one sequence decoded plainly, as far as that is known."""
        return None if self._costs is None else 1.0 / self.costs.verify(1)

    def shapes(self, texts: Sequence[TextPlan]) -> list[TreeShape | None]:
        """The next drafts of texts that are verified together; None: a plain step."""
        drafting = [text for text in texts if text.drafts()]
        for text in drafting:
            if text.is_stale:
                text.shape = self._priced(text, drafting, len(texts))
        return [text.shape if text in drafting else None for text in texts]

    def saw(self, texts: Sequence[TextPlan], turns: Sequence[Turn], drafting: float, verifying: float) -> None:
        """Takes in a step: what was drafted and accepted of each text, and the seconds of both parts."""
        self._steps.append((texts, [turn.drafted() for turn in turns], drafting, verifying))
        if len(self._steps) == LEARN:
            for step in self._steps:
                self._learn(*step)
            self._steps.clear()

    def _learn(self, texts: Sequence[TextPlan], drafts: Sequence[Drafted], drafting: float, verifying: float) -> None:
        self.costs.saw_verify(len(drafts) + sum([one.nodes for one in drafts]), verifying)
        drafted = [one.levels for one in drafts if one.levels]
        late = 0.0  # seconds in which a draft caught up on plain steps or a prompt
        if drafted and self._drafted:
            self.costs.saw_draft(max(drafted), WIDTH * len(drafted), drafting)
        elif drafted:
            usual = self.costs.draft(max(drafted), WIDTH * len(drafted))
            late = min(max(drafting - usual, 0.0), LATE * usual)
        self._drafted = bool(drafted)
        for text, one in zip(texts, drafts, strict=True):
            if one.levels:
                extra = self._extra(one, drafts)
                text.record.saw(one, extra)
                self.record.saw(one, extra)
                text.gained(text.record.trust * one.promised - extra, late / self.costs.verify(len(drafts)))

    def _extra(self, one: Drafted, drafts: Sequence[Drafted]) -> float:
        """What one of the drafts of a step adds to it, in tokens that plain decoding of all texts gives meanwhile."""
        count, costs = len(drafts), self.costs
        drafted = sum([other.levels > 0 for other in drafts])
        tokens = count + sum([other.nodes for other in drafts])
        verifying = costs.verify(tokens) - costs.verify(tokens - one.nodes)
        return (costs.draft(one.levels, WIDTH * drafted) / drafted + verifying) * count / costs.verify(count)

    def draft_rate(self) -> float:
        """Tokens a second of one text that drafts, as far as can be told."""
        return (1.0 - self.loss()) / self.costs.verify(1)

    def loss(self) -> float:
        """What drafting would cost: 0.12 means 12% slower than plain, a negative number faster."""
        return 1.0 - (1.0 + self.record.gain) / (1.0 + self.record.extra)

    def explain(self) -> str:
        """What the choices come from, in one line."""
        known, prices = self.record, self._priced(self.begin(), [self.begin()], 1).prices
        assert prices is not None
        sizes = ", ".join(f"{n} {1000 * self.costs.verify(n):.1f}" for n in (1, 2, 4, 9, 17))
        first, further = 1000 * self.costs.draft(1, WIDTH), 1000 * self.costs.level(WIDTH)
        node, level = known.trust * prices.nodes[0], known.trust * exp(prices.level)
        return (
            f"ms to decode n tokens: {sizes}; to draft a level {first:.1f}, each further one {further:.1f}; nodes are "
            f"verified from a chance of {node:.0%}, levels drafted from {level:.0%}; a draft gains {known.gain:.2f} "
            f"tokens and takes {1000 * known.extra * self.costs.verify(1):.1f} ms"
        )

    def _priced(self, text: TextPlan, drafting: Sequence[TextPlan], count: int) -> TreeShape:
        """All nodes of a step have one price: that of tokens on top of what the other texts are likely to draft."""
        costs, record = self.costs, text.record
        gain = sum([other.record.gain for other in drafting]) / count
        extra = sum([other.record.extra for other in drafting]) / count
        worth = max((1.0 + gain) / (1.0 + extra), 1.0) * count / costs.verify(count)  # tokens a second
        second = worth / record.trust  # in promised tokens
        others = count + sum([other.record.nodes for other in drafting]) - record.nodes
        nodes = [second * seconds for seconds in costs.added(others, self._limits.nodes)]
        nodes[0] = min(nodes[0], SURE)
        level = second * costs.level(WIDTH * len(drafting)) / len(drafting) / GOES_ON + nodes[0]
        return replace(self._limits, prices=Prices(tuple(nodes), log(max(level, 1e-9))))
