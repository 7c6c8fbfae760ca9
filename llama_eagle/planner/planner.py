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

MARGIN = 1.01  # drafts must beat plain decoding by this
GOES_ON = 0.65  # chance of the best child of an accepted node
WIDTH = 2  # nodes of a usual level
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
            self._all = Record.usual(self.costs.verify(2) / self.costs.verify(1) - 1.0)
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

    def shape(self, text: TextPlan, count: int = 1) -> TreeShape | None:
        """The next draft of a text of which `count` are verified together; None: a plain step."""
        if not text.drafts(self._surplus(text.record, count) > 0.0):
            return None
        if text.is_stale:
            text.shape = self._priced(text.record, count)
        return text.shape

    def saw(self, texts: Sequence[TextPlan], turns: Sequence[Turn], drafting: float, verifying: float) -> None:
        """Takes in a step: what was drafted and accepted of each text, and the seconds of both parts."""
        self._steps.append((texts, [turn.drafted() for turn in turns], drafting, verifying))
        if len(self._steps) == LEARN:
            for step in self._steps:
                self._learn(*step)
            self._steps.clear()

    def _learn(self, texts: Sequence[TextPlan], drafts: Sequence[Drafted], drafting: float, verifying: float) -> None:
        count, nodes = len(drafts), sum([one.nodes for one in drafts])
        self.costs.saw_verify(count + nodes, verifying)
        deepest = max([one.levels for one in drafts])
        if not deepest:
            return
        self.costs.saw_draft(deepest, WIDTH * sum([one.levels > 0 for one in drafts]), drafting)
        for text, one in zip(texts, drafts, strict=True):
            if one.levels:
                text.record.saw(one)
                self.record.saw(one)

    def draft_rate(self) -> float:
        """Tokens a second of one text that drafts, as far as can be told."""
        return self._rate(self.record, 1)

    def loss(self, count: int = 1) -> float:
        """What drafting would cost: 0.12 means 12% slower than plain, a negative number faster."""
        plain = count / self.costs.verify(count)
        return 1.0 - self._rate(self.record, count) / plain

    def explain(self) -> str:
        """What the choices come from, in one line."""
        known, prices = self.record, self._priced(self.record, 1).prices
        assert prices is not None
        sizes = ", ".join(f"{n} {1000 * self.costs.verify(n):.1f}" for n in (1, 2, 4, 9, 17))
        first, further = 1000 * self.costs.draft(1, WIDTH), 1000 * self.costs.level(WIDTH)
        node, level = known.trust * prices.nodes[0], known.trust * exp(prices.level)
        return (
            f"ms to decode n tokens: {sizes}; to draft a level {first:.1f}, each further one {further:.1f}; nodes are "
            f"verified from a chance of {node:.0%}, levels drafted from {level:.0%}; a draft gains {known.gain:.2f} "
            f"tokens and takes {1000 * self._extra(known, 1):.1f} ms"
        )

    def _surplus(self, record: Record, count: int) -> float:
        """Tokens that a draft gains over what plain decoding would have decoded meanwhile, with a margin."""
        plain = count / self.costs.verify(count)
        return record.gain - MARGIN * plain * self._extra(record, count) - (MARGIN - 1.0)

    def _extra(self, record: Record, count: int) -> float:
        """Seconds that a draft and its verification add to a plain step of `count` texts, for each of them."""
        verify = self.costs.verify(count * (1.0 + record.nodes)) - self.costs.verify(count)
        return (self.costs.draft(record.levels, WIDTH * count) + verify) / count

    def _rate(self, record: Record, count: int) -> float:
        """Tokens a second of `count` texts that draft."""
        return count * (1.0 + record.gain) / (self.costs.verify(count) + count * self._extra(record, count))

    def _priced(self, record: Record, count: int) -> TreeShape:
        limits = self._limits
        second = max(self._rate(record, count), count / self.costs.verify(count)) / record.trust  # in promised tokens
        plain = self.costs.verify(count)
        nodes = [second / count * (self.costs.verify(count * (1 + n)) - plain) for n in range(1, limits.nodes + 1)]
        level = second / count * self.costs.level(WIDTH * count) / GOES_ON + nodes[0]
        return replace(limits, prices=Prices(tuple(nodes), log(max(level, 1e-9))))
