"""Static trees as data: every way to write one, every way to get it wrong, and what is left at an edge."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from llama_eagle import InputError, StaticTree

# the paths of EAGLE-1's tree as papers and ports list them
EAGLE_1 = [
    [0], [1], [2], [3], [0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [2, 0], [2, 1], [3, 0], [0, 0, 0], [0, 0, 1], [0, 0, 2],
    [0, 1, 0], [0, 1, 1], [0, 2, 0], [0, 2, 1], [1, 0, 0], [0, 0, 0, 0], [0, 0, 0, 1], [0, 0, 0, 2], [0, 0, 0, 0, 0],
    [0, 0, 0, 0, 1],
]  # fmt: skip


def paths(tree: StaticTree) -> list[list[int]]:
    """The paths of ranks, node by node."""
    found: list[list[int]] = []
    for parent, rank in zip(tree.parents, tree.ranks, strict=True):
        found.append([*(found[parent] if parent >= 0 else []), rank])
    return found


def test_eagle_1_by_name() -> None:
    tree = StaticTree.parse(" eagle1 ")
    assert paths(tree) == EAGLE_1
    assert (tree.nodes, tree.depth, tree.top_k) == (25, 5, 4)
    assert [len(level) for level in tree.inner] == [4, 4, 1, 1]


def test_children_by_level() -> None:
    tree = StaticTree.parse("4, 2,2 ,1")
    assert tree.depths.tolist() == [1] * 4 + [2] * 8 + [3] * 16 + [4] * 16
    assert tree.ranks[:12] == (0, 1, 2, 3, 0, 1, 0, 1, 0, 1, 0, 1)
    assert tree.parents[:12] == (-1, -1, -1, -1, 0, 0, 1, 1, 2, 2, 3, 3)
    assert (tree.nodes, tree.depth, tree.top_k) == (44, 4, 4)
    assert StaticTree.parse("3").inner == []
    assert StaticTree.parse("3").depth == 1
    assert StaticTree.parse("1,1,1") == StaticTree((-1, 0, 1), (0, 0, 0))


def test_limits_are_included() -> None:
    assert StaticTree.parse("64,3").nodes == 256
    assert StaticTree.parse(",".join("1" * 64)).depth == 64
    assert StaticTree.from_paths([[63]]).top_k == 64


def test_a_file_of_paths_in_any_order(tmp_path: Path) -> None:
    file = tmp_path / "shape.json"
    shuffled = random.Random(1).sample(EAGLE_1, len(EAGLE_1))
    file.write_text(json.dumps(shuffled), encoding="utf-8")
    assert StaticTree.parse(str(file)) == StaticTree.parse("eagle1")
    file.write_text("[[5], [0], [5, 7]]", encoding="utf-8-sig")
    assert paths(StaticTree.parse(str(file))) == [[0], [5], [5, 7]]


def test_a_file_of_one_line(tmp_path: Path) -> None:
    file = tmp_path / "shape.txt"
    file.write_text("4,2,2,1\n", encoding="utf-8")
    assert StaticTree.parse(str(file)) == StaticTree.parse("4,2,2,1")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("4,0", "1 to 64 children, got 0"),
        ("65", "1 to 64 children, got 65"),
        ("4,4,4,4", "at most 256 nodes, got more at level 4"),
        ("64,4", "at most 256 nodes, got more at level 2"),
        (",".join("1" * 65), "1 to 64 levels, got 65"),
        ("eagle9", "neither a shape nor a file: give children by level such as 4,2,2,1, a name (eagle1) or a file"),
        ("", "neither a shape"),
        ("4,,2", "neither a shape"),
        ("-1", "neither a shape"),
        ("9" * 5000, "give children by level"),
        ("a\0b", "neither a shape"),
        (".", "neither a shape"),
        (None, "got None"),
        ([4, 2], "got [4, 2]"),
    ],
)
def test_texts_that_are_none(text: Any, words: str) -> None:
    with pytest.raises(InputError) as caught:
        StaticTree.parse(text)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("[]", "1 to 256 paths, got 0"),
        (json.dumps([[i, j] for i in range(20) for j in range(20)]), "1 to 256 paths, got 400"),
        ("{}", "a list of 1 to 256 paths, got {}"),
        ("null", "got None"),
        ("[[]]", "a list of 1 to 64 ranks, got []"),
        ("[0]", "a list of 1 to 64 ranks, got 0"),
        (json.dumps([[0] * 65]), "a list of 1 to 64 ranks, got [0"),
        ("[[64]]", "from 0 to 63, got 64"),
        ("[[-1]]", "from 0 to 63, got -1"),
        ("[[true]]", "from 0 to 63, got True"),
        ("[[0.0]]", "from 0 to 63, got 0.0"),
        ('[["0"]]', "from 0 to 63, got '0'"),
        ("[[0], [1], [0]]", "path [0] is there twice"),
        ("[[0], [1, 0]]", "path [1, 0] has no parent: add [1]"),
        ("[[0], [0, 0, 0]]", "path [0, 0, 0] has no parent: add [0, 0]"),
        ("4,0", "1 to 64 children, got 0"),
        ("", "neither a JSON list"),
        ("[[0]", "neither a JSON list"),
        ("[" * 100000, "neither a JSON list"),
        ("__import__('os')", "neither a JSON list"),
        (f"[[{'9' * 5000}]]", ""),
        ("\udcff", "neither a JSON list"),
    ],
)
def test_files_that_hold_none(tmp_path: Path, content: str, words: str) -> None:
    file = tmp_path / "shape.json"
    file.write_bytes(content.encode("utf-8", "surrogateescape"))
    with pytest.raises(InputError) as caught:
        StaticTree.parse(str(file))
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(("depth", "nodes"), [(1, 99), (2, 99), (4, 99), (5, 25), (9, 7), (3, 6), (1, 1)])
def test_an_edge_keeps_the_nodes_that_fit(depth: int, nodes: int) -> None:
    cut = StaticTree.parse("eagle1").within(depth, nodes)
    assert paths(cut) == [path for path in EAGLE_1 if len(path) <= depth][:nodes]


def test_what_fits_stays_the_same_tree() -> None:
    tree = StaticTree.parse("eagle1")
    assert tree.within(5, 25) is tree.within(64, 256) is tree
