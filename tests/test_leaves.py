"""Leaves of shapes, against those of the trees themselves."""

import numpy as np
import pytest

from llama_eagle import StaticTree, TreeShape
from llama_eagle.leaves import most_leaves, within_leaves
from trees import random_tree

SHAPES = [
    *(StaticTree.parse(text) for text in ("eagle1", "4,2,2,1", "1,1,1", "7")),
    *(
        StaticTree(tuple(tree.parents.tolist()), (0,) * len(tree))
        for tree in (random_tree(np.random.default_rng(seed), 40, 200) for seed in range(5))
    ),
]


def leaves(shape: StaticTree) -> int:
    return len(set(range(shape.nodes)) - set(shape.parents))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("most", [1, 2, 3, 9, 100])
def test_the_largest_static_tree_of_so_many_leaves(shape: StaticTree, most: int) -> None:
    cut = within_leaves(shape, most)
    assert isinstance(cut, StaticTree)
    assert most_leaves(shape) == leaves(shape)
    assert leaves(cut) == min(most, leaves(shape))
    assert cut.parents == shape.parents[: cut.nodes]
    assert cut.nodes == shape.nodes or leaves(shape.within(shape.depth, cut.nodes + 1)) > most


def test_a_dynamic_tree_may_be_all_leaves_and_a_chain_has_one() -> None:
    assert most_leaves(TreeShape(16, 5, 4)) == 16
    assert within_leaves(TreeShape(16, 5, 4), 7) == TreeShape(7, 5, 4)
    assert within_leaves(TreeShape(16, 5, 4), 16) == TreeShape(16, 5, 4)
    assert most_leaves(TreeShape.chain(9)) == 1
    assert within_leaves(TreeShape.chain(9), 1) == TreeShape.chain(9)
