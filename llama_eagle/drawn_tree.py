"""DrawnTree: a static tree whose tokens are drawn from the draft's distribution. Knows no model.

What residual.py accepts, and the form that the limits of a dynamic tree stand for where tokens are drawn.
"""

from dataclasses import replace
from functools import lru_cache
from math import log

from .static_tree import Shape, StaticTree
from .tree import TreeShape


class DrawnTree(StaticTree):
    """The i-th child of a node is the i-th token drawn behind it, without replacement; `ranks` only order siblings.

    Which nodes there are must not depend on what is drawn, so a form is given in advance.
    """


@lru_cache(maxsize=256)
def drawn(shape: Shape) -> DrawnTree:
    """The form of a shape: a static tree's own, and of limits the nodes that are most likely to be accepted.

    For want of better knowledge the first child's chance counts as 1/2, each further one's as half of that before.
    """
    tree = StaticTree.from_paths(_worthwhile(shape)) if isinstance(shape, TreeShape) else shape
    return DrawnTree(tree.parents, tree.ranks)


def _worthwhile(limits: TreeShape) -> list[tuple[int, ...]]:
    """The paths that pay for themselves; one at least, for a form has a node."""
    prices = limits.prices
    if prices is None:
        return _paths(limits)
    deepest = 1 + int(max(prices.level / log(0.5), 0.0))
    paths = _paths(replace(limits, depth=min(deepest, limits.depth), prices=None))
    return paths[: max(prices.worthwhile([-log(2.0) * _cost(path) for path in paths]), 1)]


def _cost(path: tuple[int, ...]) -> int:
    return sum(path) + len(path)


def _paths(limits: TreeShape) -> list[tuple[int, ...]]:
    """Paths of ranks by falling chance: a path's is 2 to the power of -cost, a child of rank r costs r + 1."""
    by_cost: list[list[tuple[int, ...]]] = [[()]]
    found: list[tuple[int, ...]] = []
    deepest = limits.depth * limits.top_k  # the cost of the last path that the limits allow
    while len(found) < limits.nodes and len(by_cost) <= deepest:
        cost = len(by_cost)
        level = [
            (*path, rank)
            for rank in range(min(limits.top_k, cost))
            for path in by_cost[cost - 1 - rank]
            if len(path) < limits.depth
        ]
        by_cost.append(level[: limits.nodes])
        found += level
    return found[: limits.nodes]
