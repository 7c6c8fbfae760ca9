"""Leaves: how many paths a tree of a shape can have, and shapes cut to fewer. Plain arithmetic; knows no model."""

from .static_tree import Shape, StaticTree


def most_leaves(shape: Shape) -> int:
    """The most leaves that a tree of this shape can have. Those of a dynamic tree are not known before it has grown."""
    if isinstance(shape, StaticTree):
        return _leaves_so_far(shape)[-1]
    return 1 if shape.top_k == 1 else shape.nodes


def within_leaves(shape: Shape, most: int) -> Shape:
    """The same shape, cut so that no tree of it has more than `most` leaves, at least 1."""
    if most_leaves(shape) <= most:
        return shape
    if isinstance(shape, StaticTree):  # a node more is never a leaf less
        return shape.within(shape.depth, sum(count <= most for count in _leaves_so_far(shape)))
    return shape.within(shape.depth, most)


def _leaves_so_far(shape: StaticTree) -> list[int]:
    """Of each node the leaves of the tree that ends with it: one more, unless it stands on what was a leaf."""
    counts: list[int] = []
    inner = {-1}
    for parent in shape.parents:
        before = counts[-1] if counts else 0
        counts.append(before + (parent in inner))
        inner.add(parent)
    return counts
