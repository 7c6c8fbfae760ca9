"""StaticTree: a draft tree whose nodes are given in advance, as a text, in a file or by name. Knows no model.

A node is its parent and its rank among the draft's guesses behind that parent: 0 is the best one.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from .errors import InputError
from .tree import Ints, TreeShape

MAX_NODES = 256
MAX_DEPTH = 64
MAX_RANK = 63

# paths of ranks from the root, a digit each: the tree of EAGLE-1 (arXiv 2401.15077), there mc_sim_7b_63
_EAGLE_1 = "0 1 2 3 00 01 02 10 11 20 21 30 000 001 002 010 011 020 021 100 0000 0001 0002 00000 00001"
NAMES = {"eagle1": _EAGLE_1}
_FORMS = f"children by level such as 4,2,2,1, a name ({', '.join(NAMES)}) or a file"
_NO_TREE = "the file is neither a JSON list of paths such as [[0], [1], [0, 0]] nor a line such as 4,2,2,1"
_BY_LEVEL = re.compile(r"\d{1,9}(\s*,\s*\d{1,9})*", re.ASCII)
_FILE_SIZE = 1 << 20  # bytes; the largest tree needs less


@dataclass(frozen=True)
class StaticTree:
    """Nodes in level order, the root not among them. parents: index of the parent, -1 = the root. ranks: from 0.

    The constructor takes both as they are; parse(), by_level() and from_paths() check.
    """

    parents: tuple[int, ...]
    ranks: tuple[int, ...]

    @staticmethod
    def parse(text: str) -> "StaticTree":
        """A tree from "4,2,2,1" (children of every node by level), a name of NAMES, or a file.

        A file has either that line or a JSON list of paths, as in [[0], [1], [0, 0]]. Raises InputError.
        """
        if not isinstance(text, str):
            raise InputError(f"a static tree must be {_FORMS}, got {text!r}")
        given = text.strip()
        if given in NAMES:
            return StaticTree.from_paths([[int(rank) for rank in path] for path in NAMES[given].split()])
        return _from_line(given) or _from_file(text)

    @staticmethod
    def by_level(children: Sequence[int]) -> "StaticTree":
        """Every node of level i has children[i] children, the root being level 0."""
        if not 1 <= len(children) <= MAX_DEPTH:
            raise InputError(f"a tree must have 1 to {MAX_DEPTH} levels, got {len(children)}")
        paths: list[tuple[int, ...]] = []
        level: list[tuple[int, ...]] = [()]
        for count in children:
            if not 1 <= count <= MAX_RANK + 1:
                raise InputError(f"a node must have 1 to {MAX_RANK + 1} children, got {count}")
            if len(paths) + len(level) * count > MAX_NODES:
                raise InputError(f"a tree must have at most {MAX_NODES} nodes, got more at level {len(level[0]) + 1}")
            level = [(*path, rank) for path in level for rank in range(count)]
            paths += level
        return StaticTree.from_paths(paths)

    @staticmethod
    def from_paths(paths: Sequence[Sequence[int]]) -> "StaticTree":
        """One path of ranks from the root for each node, in any order. Raises InputError for what is no tree."""
        if not _is_list(paths) or not 1 <= len(paths) <= MAX_NODES:
            got = f"{len(paths)}" if _is_list(paths) else _short(paths)
            raise InputError(f"a tree must be a list of 1 to {MAX_NODES} paths, got {got}")
        ordered = sorted((_checked_path(path) for path in paths), key=lambda path: (len(path), path))
        node_of: dict[tuple[int, ...], int] = {(): -1}
        for node, path in enumerate(ordered):
            if path in node_of:
                raise InputError(f"path {list(path)} is there twice: leave one out")
            if path[:-1] not in node_of:
                raise InputError(f"path {list(path)} has no parent: add {list(path[:-1])}")
            node_of[path] = node
        return StaticTree(tuple(node_of[path[:-1]] for path in ordered), tuple(path[-1] for path in ordered))

    def within(self, depth: int, nodes: int) -> "StaticTree":
        """The first `nodes` nodes that are at most so deep, both at least 1: in level order they are a tree again."""
        count = min(int(np.searchsorted(self.depths, depth, side="right")), nodes)
        return self if count == self.nodes else type(self)(self.parents[:count], self.ranks[:count])

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return len(self.parents)

    @property
    def depth(self) -> int:
        """Depth of the deepest node; a child of the root has 1."""
        return int(self.depths[-1])

    @property
    def top_k(self) -> int:
        """How many guesses behind a node are looked at."""
        return max(self.ranks) + 1

    @cached_property
    def depths(self) -> Ints:
        """int32 [nodes]."""
        depths = np.ones(self.nodes, dtype=np.int32)
        for node, parent in enumerate(self.parents):
            if parent >= 0:
                depths[node] = depths[parent] + 1
        return depths

    @cached_property
    def arrays(self) -> tuple[Ints, Ints]:
        """Parents and ranks, int32 [nodes] each."""
        return np.array(self.parents, dtype=np.int32), np.array(self.ranks, dtype=np.int32)

    @cached_property
    def inner(self) -> list[list[int]]:
        """The nodes that have children, one list for each level that has any: what the draft decodes."""
        nodes = sorted(set(self.parents) - {-1})
        return [[node for node in nodes if self.depths[node] == level] for level in range(1, self.depth)]


Shape = TreeShape | StaticTree


def _from_line(line: str) -> StaticTree | None:
    return StaticTree.by_level([int(count) for count in line.split(",")]) if _BY_LEVEL.fullmatch(line) else None


def _from_file(name: str) -> StaticTree:
    text = _read(name)
    return _from_line(text) or StaticTree.from_paths(_paths(text))


def _read(name: str) -> str:
    path = Path(name)
    try:
        if path.is_file():
            with path.open("rb") as file:
                return file.read(_FILE_SIZE).decode("utf-8-sig").strip()
    except UnicodeDecodeError:
        raise InputError(_NO_TREE) from None
    except OSError as error:
        raise InputError(f"cannot be read ({error.strerror}): give {_FORMS}") from None
    raise InputError(f"neither a shape nor a file: give {_FORMS}")


def _paths(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise InputError(_NO_TREE) from None


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)


def _checked_path(path: Any) -> tuple[int, ...]:
    if not _is_list(path) or not 1 <= len(path) <= MAX_DEPTH:
        raise InputError(f"a path must be a list of 1 to {MAX_DEPTH} ranks, got {_short(path)}")
    for rank in path:
        if isinstance(rank, bool) or not isinstance(rank, int) or not 0 <= rank <= MAX_RANK:
            raise InputError(f"a rank must be a whole number from 0 to {MAX_RANK}, got {_short(rank)}")
    return tuple(path)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
