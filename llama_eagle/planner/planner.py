"""Planner: before each step the draft tree with the most expected tokens a second, or none where plain decoding wins.

Knows costs and gains as numbers; decodes nothing. One planner serves all texts of an engine, so a new one starts from
what earlier ones taught.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..tree import TreeShape
from ..turn import Turn
from .acceptance import Acceptance, Depths, Scores
from .gains import Gains
from .step_costs import StepCosts

MARGIN = 1.02  # drafts must beat plain decoding by this
REPLAN = 8  # steps between two choices
LEARN = 3  # drafted steps between two that are looked at closely: a step costs milliseconds, and this is Python
LARGER = 32  # drafted steps between two trees that are larger than the best, to learn what they would give
FIRST_PROBE, LAST_PROBE = 16, 512  # plain steps between two drafts
NODES = (1, 2, 3, 4, 5, 6, 7, 8, 11, 12, 15, 16, 23, 24, 31, 32, 47, 48, 63)
DEPTHS = (1, 2, 3, 4, 5, 6, 7, 8)
WIDTHS = (1, 2, 4, 8)


@dataclass(frozen=True)
class Limits:
    """What a draft may be at most; a top_k of 1 allows chains only."""

    nodes: int = 63
    depth: int = 8
    top_k: int = 8


class Planner:
    """Chooses shapes; is told what became of them.

    costs: measures or remembers them; called when they are first needed.
    """

    def __init__(self, costs: Callable[[], StepCosts], limits: Limits) -> None:
        self._find_costs = costs
        self._costs: StepCosts | None = None
        self.acceptance = Acceptance()
        self.gains = Gains()
        self._shapes = candidates(limits)
        self._nodes, self._depth, self._top_k = np.array([(s.nodes, s.depth, s.top_k) for s in self._shapes]).T
        self._age = 0  # steps since the last choice
        self._best: TreeShape | None = None
        self._drafted = 0
        self._plain = 0  # steps since the last draft
        self._probe = FIRST_PROBE

    @property
    def costs(self) -> StepCosts:
        """What steps cost."""
        self.prepare()
        assert self._costs is not None
        return self._costs

    def prepare(self) -> float:
        """Finds the costs, unless they are known. Returns the seconds that this took."""
        if self._costs is not None:
            return 0.0
        start = time.perf_counter()
        self._costs = self._find_costs()
        return time.perf_counter() - start

    def plain_rate(self) -> float | None:
        """Tokens a second of one sequence decoded plainly, as far as that is known."""
        return None if self._costs is None else 1.0 / float(self._costs.verify(np.array(1)))

    def shape(self, count: int = 1) -> TreeShape | None:
        """For each of `count` sequences that are verified together; None: a plain step."""
        if self._age % REPLAN == 0:
            self._best = self.choose(count)
        self._age += 1
        if self._best is not None:
            return self._larger(self._best) if self._drafted % LARGER == LARGER - 1 else self._best
        self._plain += 1
        if self._plain < self._probe:
            return None
        self._plain, self._probe = 0, min(2 * self._probe, LAST_PROBE)
        return self._shapes[int(self.rates(count).argmax())]

    def choose(self, count: int = 1) -> TreeShape | None:
        """The best shape, where it beats plain decoding."""
        rates = self.rates(count)
        best = int(rates.argmax())
        if self.loss(count) > 1.0 - MARGIN:
            return None
        self._probe = FIRST_PROBE
        return self._shapes[best]

    def loss(self, count: int = 1) -> float:
        """What the best draft would cost: 0.12 means 12% slower than plain, a negative number faster."""
        plain = count / float(self.costs.verify(np.array(count)))
        return 1.0 - float(self.rates(count).max()) / plain

    def explain(self) -> str:
        """What the choice comes from, in one line."""
        best = self._shapes[int(self.rates().argmax())]
        sizes = ", ".join(f"{n} {1000 * self.costs.verify(np.array(n)):.1f}" for n in (1, 2, 4, 9, 17))
        draft = 1000 * float(self.costs.draft(np.array(best.depth), np.array(best.top_k)))
        kind = f"a chain of {best.nodes}" if best.top_k == 1 else f"a tree of {best.nodes}, {best.depth} deep,"
        gain = float(self._gain()[self._shapes.index(best)])
        return (
            f"ms to decode n tokens: {sizes}; best: {kind} takes {draft:.1f} and gains {gain:.1f} tokens a step"
        )

    def rates(self, count: int = 1) -> npt.NDArray[np.float64]:
        """Expected tokens a second of `count` sequences together, for each shape."""
        seconds = self.costs.verify(count * (1 + self._nodes)) + self.costs.draft(self._depth, count * self._top_k)
        rates: npt.NDArray[np.float64] = count * (1.0 + self._gain()) / seconds
        return rates

    def _gain(self) -> npt.NDArray[np.float64]:
        """Expected accepted tokens of each shape."""
        chains, trees = self.gains.chains(), self.gains.trees()
        return np.where(self._top_k == 1, chains[self._depth - 1], trees[self._depth - 1, self._nodes - 1])

    def _larger(self, best: TreeShape) -> TreeShape:
        """The next larger shape, a tree: what it teaches holds for chains, too."""
        larger = [one for one in self._shapes if one.nodes > best.nodes and one.depth >= best.depth and one.top_k > 1]
        return min(larger, key=lambda one: (one.nodes, one.depth, one.top_k), default=best)

    def saw(self, turns: Sequence[Turn], drafting: float, verifying: float) -> None:
        """Takes in a step: what was drafted and accepted, and the seconds of both parts."""
        nodes = [turn.n_nodes for turn in turns]
        self.costs.saw_verify(len(turns) + sum(nodes), verifying)
        if not any(nodes):
            return
        self._drafted += 1
        width = sum(turn.top_k for turn in turns)
        self.costs.saw_draft(max(turn.depth for turn in turns), width, drafting)
        if self._drafted % LEARN == 0:
            for turn in turns:
                if turn.n_nodes:
                    self._learn(*turn.verified())

    def _learn(self, depths: Depths, scores: Scores, accepted: npt.NDArray[np.bool_]) -> None:
        self.acceptance.saw(depths, scores, accepted)
        self.gains.saw(depths, scores, self.acceptance)


def candidates(limits: Limits) -> list[TreeShape]:
    """Shapes worth comparing within the limits: chains, and trees with more nodes than levels."""
    chains = [TreeShape.chain(depth) for depth in DEPTHS if depth <= min(limits.depth, limits.nodes)]
    trees = [
        TreeShape(nodes, depth, top_k)
        for top_k in WIDTHS[1:]
        for depth in DEPTHS
        for nodes in NODES
        if depth < nodes <= 2 * depth * top_k
    ]
    fits = [shape for shape in trees if shape.nodes <= limits.nodes and shape.depth <= limits.depth]
    return chains + [shape for shape in fits if shape.top_k <= limits.top_k]
