"""The form of trees whose tokens are drawn."""

import pytest

from llama_eagle.drawn_tree import DrawnTree, drawn
from llama_eagle.static_tree import StaticTree
from llama_eagle.tree import TreeShape


def paths(tree: StaticTree) -> set[tuple[int, ...]]:
    found: list[tuple[int, ...]] = []
    for parent, rank in zip(tree.parents, tree.ranks, strict=True):
        found.append((*(found[parent] if parent >= 0 else ()), rank))
    return set(found)


def test_a_static_tree_and_a_chain_keep_their_form() -> None:
    static = StaticTree.parse("eagle1")
    assert (drawn(static).parents, drawn(static).ranks) == (static.parents, static.ranks)
    assert drawn(TreeShape.chain(4)) == DrawnTree((-1, 0, 1, 2), (0, 0, 0, 0))


def test_limits_stand_for_the_likeliest_nodes() -> None:
    """Each child half as likely as the one before: 1/2, twice 1/4, four times 1/8."""
    assert paths(drawn(TreeShape(7, 5, 4))) == {(0,), (1,), (0, 0), (2,), (0, 1), (1, 0), (0, 0, 0)}
    assert paths(drawn(TreeShape(7, 2, 2))) == {(0,), (1,), (0, 0), (0, 1), (1, 0), (1, 1)}


@pytest.mark.parametrize("limits", [(16, 5, 4), (1, 1, 1), (256, 64, 64), (40, 2, 64), (256, 8, 2), (9, 64, 1)])
def test_limits_are_kept(limits: tuple[int, int, int]) -> None:
    nodes, depth, top_k = limits
    tree = drawn(TreeShape(*limits))
    assert tree.nodes == nodes
    assert tree.depth <= depth
    assert tree.top_k <= top_k


def test_a_cut_one_is_drawn_too() -> None:
    tree = drawn(TreeShape(16, 5, 4))
    assert isinstance(tree.within(2, 5), DrawnTree)
    assert tree.within(5, 16) is tree
    assert drawn(TreeShape(16, 5, 4)) is tree
