"""DraftTree, a drafted tree of tokens behind a root, and Growth, the arithmetic that picks its nodes.

Plain data and pure arithmetic on small arrays: knows no model, no cache and no sampling.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import repeat
from operator import itemgetter
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .errors import InputError

Ints = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float32]

_ROUNDING = 1e-3  # log probabilities up to this far above zero count as zero


@dataclass(frozen=True, eq=False)
class DraftTree:
    """Nodes in level order, the root not among them; len() is their number n.

    root: id of the last accepted token. tokens int32[n]. parents int32[n]: index of the parent node, -1 = the root.
    depths int32[n]: 1 = child of the root. scores float32[n]: log probability of the path from the root.
    The constructor takes arrays as they are; from_lists() checks them.
    """

    root: int
    tokens: Ints
    parents: Ints
    depths: Ints
    scores: Floats

    @staticmethod
    def from_lists(
        root: int, tokens: Sequence[int], parents: Sequence[int], scores: Sequence[float] | None = None
    ) -> "DraftTree":
        """A checked tree; depths follow from the parents, scores default to zeros.

        Raises InputError for unequal lengths, wrong ids, nodes out of level order, siblings with equal tokens and NaN.
        """
        if scores is None:
            scores = [0.0] * len(tokens)
        if not len(tokens) == len(parents) == len(scores):
            raise InputError(
                f"a tree needs as many parents and scores as tokens, got {len(tokens)}, {len(parents)}, {len(scores)}"
            )
        if not _is_id(root):
            raise InputError(f"root must be a token id, got {root!r}")
        depths = _checked_depths(tokens, parents)
        as_floats = np.array(scores, dtype=np.float32)
        if np.isnan(as_floats).any():
            raise InputError("scores of a tree must be log probabilities, got NaN")
        return DraftTree(int(root), _ints(tokens), _ints(parents), _ints(depths), as_floats)

    @staticmethod
    def chain(root: int, tokens: Sequence[int], scores: Sequence[float] | None = None) -> "DraftTree":
        """The tree of width one: each token is the child of the one before. scores: cumulative log probabilities."""
        return DraftTree.from_lists(root, tokens, range(-1, len(tokens) - 1), scores)

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def depth(self) -> int:
        """Depth of the deepest node, 0 without nodes."""
        return int(self.depths[-1]) if len(self.depths) else 0

    def ancestor_mask(self) -> npt.NDArray[np.bool_]:
        """bool[n, n]: row i is true at node i and at its ancestors; the root, which every node sees, has no column."""
        mask = np.eye(len(self), dtype=np.bool_)
        for node, parent in enumerate(self.parents.tolist()):
            if parent >= 0:
                mask[node] |= mask[parent]
        return mask

    def paths(self) -> list[list[int]]:
        """One list of nodes per leaf, from the root's child down to the leaf, leaves in level order."""
        parents = self.parents.tolist()
        inner = set(parents)
        return [self._path_to(leaf, parents) for leaf in range(len(self)) if leaf not in inner]

    @staticmethod
    def _path_to(node: int, parents: list[int]) -> list[int]:
        path = []
        while node >= 0:
            path.append(node)
            node = parents[node]
        return path[::-1]

    def children(self, node: int) -> list[int]:
        """Nodes whose parent is `node` (-1: the root), in level order. Raises InputError when there is no such node."""
        if not -1 <= node < len(self):
            raise InputError(f"node {node} is not in [-1, {len(self)})")
        return [child for child, parent in enumerate(self.parents.tolist()) if parent == node]


@dataclass(frozen=True)
class Prices:
    """What drafting costs, counted in accepted tokens.

    nodes: of the best 1, 2, ... nodes of a tree together, for verifying them; a tree keeps as many as gain most over
    that. level: least log probability of a node whose children are drafted.
    """

    nodes: tuple[float, ...]
    level: float

    def worthwhile(self, scores: Sequence[float]) -> int:
        """How many of the best nodes to keep; scores: their log probabilities, best first."""
        gains = np.cumsum(np.exp(np.array(scores, np.float64))) - np.array(self.nodes[: len(scores)], np.float32)
        return int(gains.argmax()) + 1 if len(gains) and gains.max() > 0.0 else 0


@dataclass(frozen=True)
class TreeShape:
    """Limits of a dynamic draft tree: nodes without the root, depth, and children per node. top_k 1 is a chain.

    prices: of at least `nodes` nodes; None: nodes and levels cost nothing.
    """

    nodes: int = 16
    depth: int = 5
    top_k: int = 4
    prices: Prices | None = None

    def __post_init__(self) -> None:
        if self.prices is not None and len(self.prices.nodes) < self.nodes:
            raise InputError(f"a tree of {self.nodes} nodes needs a price for each, got {len(self.prices.nodes)}")

    @staticmethod
    def chain(length: int) -> "TreeShape":
        """A chain of the given length."""
        return TreeShape(nodes=length, depth=length, top_k=1)

    def within(self, depth: int, nodes: int) -> "TreeShape":
        """The same shape cut to what is left of context and answer."""
        if self.nodes <= nodes and self.depth <= depth:
            return self
        return replace(self, nodes=min(self.nodes, nodes), depth=min(self.depth, depth))


class Level(NamedTuple):
    """The beam to expand next, b nodes, best first: tokens int32[b] and their depth (1 = children of the root).

    beam_parents int32[b]: the parent's row in the previous beam, -1 at depth 1.
    """

    tokens: Ints
    beam_parents: Ints
    depth: int


class Growth:
    """Grows one dynamic draft tree level by level: EAGLE-2 (arXiv 2406.16858, section 4) and EAGLE-3 alike.

    Of every expanded node the top_k most probable children become candidates. Each level's beam is the top_k candidates
    of that level, and tree() takes the `nodes` best candidates of all levels. Scores are cumulative log probabilities
    in float32; ties go to the smaller candidate index, so a node never comes without its parent. With prices a beam has
    only candidates that pay for their children, and the tree only nodes that pay for themselves.
    A candidate's index counts levels in order, in a level the beam's rows in order, in a row the children best first.
    """

    def __init__(self, root: int, top_k: int, max_depth: int, nodes: int, prices: Prices | None = None) -> None:
        if min(top_k, max_depth, nodes) < 1:
            raise InputError(f"top_k, max_depth and nodes must be at least 1, got {top_k}, {max_depth}, {nodes}")
        self.root, self.top_k, self.max_depth, self.nodes, self.prices = root, top_k, max_depth, nodes, prices
        self.depth = 0
        self._tokens: list[Ints] = []  # each level's candidates
        self._beams: list[npt.NDArray[np.intp]] = []  # each level's beam: indices in the level, best first
        self._widths: list[int] = []  # each level's candidates per row
        self._costs = np.zeros(1, dtype=np.float32)  # the beam's negated scores: what sorts upwards needs no key
        self._best: list[tuple[float, int, int]] = []  # (cost, level, index in it), best first, at most `nodes`

    def first(self, ids: npt.ArrayLike, logp: npt.ArrayLike) -> Level:
        """The first beam, from the root's children: token ids int32[m] best first and log probabilities float32[m]."""
        if self.depth:
            raise InputError("first() was called before: expand() takes the following levels")
        return self._add(np.asarray(ids, dtype=np.int32)[None], np.asarray(logp, dtype=np.float32)[None])

    def expand(self, ids: npt.ArrayLike, logp: npt.ArrayLike) -> Level:
        """The next beam, from the last one's children, int32[b, m] and float32[b, m]: row j belongs to beam node j."""
        if not 0 < self.depth < self.max_depth:
            raise InputError(
                f"depth {self.depth} of {self.max_depth} cannot be expanded: first() comes before expand()"
            )
        return self._add(np.asarray(ids, dtype=np.int32), np.asarray(logp, dtype=np.float32))

    def _add(self, ids: Ints, logp: Floats) -> Level:
        rows = len(self._costs)
        if ids.ndim != 2 or ids.shape != logp.shape or len(ids) != rows or not ids.size:
            raise InputError(f"{rows} nodes need as many rows of ids and logp, got shapes {ids.shape}, {logp.shape}")
        width = ids.shape[1]
        if width > self.top_k:
            width = self.top_k
            ids, logp = ids[:, :width], logp[:, :width]
        if max(logp[:, 0].tolist()) > 0.0:
            logp = _clipped(logp)
        tokens, costs = ids.ravel(), (self._costs[:, None] - logp).ravel()
        order = costs.argsort(kind="stable")
        if np.isnan(costs[order[-1]]):  # NaN sorts last
            raise InputError(f"log probabilities must not be NaN, got {logp.tolist()}")
        order = order[: max(self.nodes, self.top_k)]
        ordered = costs[order]
        self._keep_best(order.tolist(), ordered.tolist())
        beam = order[: self.top_k]
        if self.prices is not None:
            beam = beam[ordered[: self.top_k] <= np.float32(-self.prices.level)]
        self._tokens.append(tokens)
        self._beams.append(beam)
        self._widths.append(width)
        self._costs = ordered[: len(beam)]
        self.depth += 1
        beam_parents = _row_of(rows, width)[beam] if self.depth > 1 else np.full(len(beam), -1, dtype=np.int32)
        return Level(tokens[beam], beam_parents, self.depth)

    def _keep_best(self, order: list[int], costs: list[float]) -> None:
        best = self._best
        if len(best) == self.nodes and costs[0] >= best[-1][0]:
            return
        best += zip(costs, repeat(self.depth), order)
        best.sort()
        del best[self.nodes :]

    def tree(self) -> DraftTree:
        """The tree of the levels so far: at most `nodes` of their candidates in their order, which is level order."""
        if not self.depth:
            raise InputError("nothing has grown: first() takes the root's children")
        kept = len(self._best)
        if self.prices is not None:
            kept = self.prices.worthwhile([-cost for cost, _, _ in self._best])
        chosen = sorted(self._best[:kept], key=_PLACE)
        node_of = {candidate[1:]: node for node, candidate in enumerate(chosen)}
        try:
            parents = [node_of[self._parent(level, index)] if level else -1 for _, level, index in chosen]
        except KeyError:
            raise InputError("log probabilities must be at most 0, and each row best first") from None
        tokens = [self._tokens[level][index] for _, level, index in chosen]
        depths = [level + 1 for _, level, _ in chosen]
        scores = np.array([-cost for cost, _, _ in chosen], dtype=np.float32)
        return DraftTree(int(self.root), _ints(tokens), _ints(parents), _ints(depths), scores)

    def _parent(self, level: int, index: int) -> tuple[int, int]:
        return level - 1, int(self._beams[level - 1][index // self._widths[level]])


_PLACE = itemgetter(1, 2)


@cache
def _row_of(rows: int, width: int) -> Ints:
    """int32[rows * width]: the row of each index of a flattened table."""
    return np.repeat(np.arange(rows, dtype=np.int32), width)


def _ints(values: Sequence[int]) -> Ints:
    return np.array(values, dtype=np.int32)


def _is_id(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and 0 <= int(value) < 1 << 31


def _checked_depths(tokens: Sequence[int], parents: Sequence[int]) -> list[int]:
    depths: list[int] = []
    seen: set[tuple[int, int]] = set()
    for node, (token, parent) in enumerate(zip(tokens, parents, strict=True)):
        if not _is_id(token):
            raise InputError(f"node {node}: {token!r} is not a token id")
        if not _is_id(parent + 1) or parent >= node:
            raise InputError(f"node {node}: parent {parent!r} must be -1 (the root) or an earlier node")
        depth = 1 if parent < 0 else depths[parent] + 1
        if depths and depth < depths[-1]:
            raise InputError(f"node {node} has depth {depth} behind one of depth {depths[-1]}: use level order")
        if (parent, token) in seen:
            raise InputError(f"node {node}: its parent {parent} has two children with token {token}")
        seen.add((parent, token))
        depths.append(depth)
    return depths


def _clipped(logp: Floats) -> Floats:
    """A child above zero could come before its parent."""
    if logp.max() > _ROUNDING:
        raise InputError(f"log probabilities must be at most 0, got {logp.max()}")
    clipped: Floats = np.minimum(logp, np.float32(0.0))
    return clipped
