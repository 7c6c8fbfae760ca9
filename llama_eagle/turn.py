"""Turn: what one sequence does in a step, as the native library reads it. Buffers are kept from step to step.

Behind a decode that streamed all weights every Python line runs from cold caches, so a step does as little as it can.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from .acceptance import Path
from .drawn_tree import DrawnTree
from .errors import InputError, NativeError
from .ffi import C, ffi
from .logprob import TokenLogprob
from .sampler import Sampler
from .static_tree import Shape, StaticTree
from .tree import DraftTree


class Drafted(NamedTuple):
    """A draft and what became of it.

    levels: that were drafted, those without a node in the tree included. nodes: that were verified. promised: accepted
    tokens that the draft expected, the sum of its nodes' probabilities.
    """

    levels: int
    nodes: int
    promised: float
    accepted: int


class Turn:
    """Tokens to decode, a tree behind them, and who chooses what follows."""

    def __init__(self, seq_id: int) -> None:
        self.raw = ffi.new("eagle_turn *", {"seq_id": seq_id})
        self.alone = ffi.new("eagle_turn *[1]", [self.raw])  # a step of this turn only
        self._root = ffi.new("int32_t[1]")
        self._shape: Shape | None = None
        self._kept: Any = None  # what raw.shape or raw.nodes points to
        self._room = -1
        self._scored: tuple[int | None, int] = (None, 0)  # how many of the likeliest, and rows there is room for
        self._reserve(0)

    def _reserve(self, nodes: int) -> None:
        """Makes room for a tree and for a path as long as the tree is large."""
        if nodes <= self._room:
            return
        self._room = nodes
        self._arrays = np.empty((6, max(nodes, 1)), np.int32)
        rows = [ffi.cast("int32_t *", row.ctypes.data) for row in self._arrays]
        raw = self.raw
        raw.tree.tokens, raw.tree.parents, raw.tree.depths = rows[:3]
        raw.tree.scores = ffi.cast("float *", rows[3])
        raw.path.nodes, raw.path.tokens = rows[4:]

    def piece(self, tokens: Sequence[int], *, last: bool) -> None:
        """A piece of a prompt; a token is chosen behind the last one only."""
        self._tokens = ffi.new("int32_t[]", list(tokens))
        self.raw.n_tokens, self.raw.tokens, self.raw.chooses, self.raw.prompt = len(tokens), self._tokens, int(last), 1
        self.draft(None)

    def root(self, token: int) -> None:
        """The root of a tree, or a plain step."""
        self._root[0] = token
        self.raw.n_tokens, self.raw.tokens, self.raw.chooses, self.raw.prompt = 1, self._root, 1, 0

    def draft(self, shape: Shape | None) -> None:
        """The tree that is to be drafted; None: a plain step."""
        self.raw.tree.n = self.raw.tree.n_levels = 0
        if shape is self._shape:
            return
        self._shape = shape
        self.raw.drawn = isinstance(shape, DrawnTree)
        self.raw.shape = self.raw.nodes = ffi.NULL
        if isinstance(shape, StaticTree):
            parents, ranks = (np.ascontiguousarray(array, np.int32) for array in shape.arrays)
            struct = (shape.nodes, ffi.from_buffer("int32_t[]", parents), ffi.from_buffer("int32_t[]", ranks))
            self._kept = ffi.new("eagle_static_shape *", struct), parents, ranks
            self.raw.nodes = self._kept[0]
        elif shape is not None:
            prices = ffi.NULL if shape.prices is None else ffi.new("float[]", shape.prices.nodes)
            level = 0.0 if shape.prices is None else shape.prices.level
            limits = (shape.nodes, shape.depth, shape.top_k, prices, level)
            self._kept = ffi.new("eagle_tree_shape *", limits), prices
            self.raw.shape = self._kept[0]
        self._reserve(0 if shape is None else shape.nodes)

    def give(self, tree: DraftTree) -> None:
        """A tree that is there already, with its root."""
        self.root(tree.root)
        self.draft(None)
        self._reserve(len(tree))
        n = self.raw.tree.n = len(tree)
        self._arrays[:3, :n] = tree.tokens, tree.parents, tree.depths
        self._arrays[3, :n] = tree.scores.astype(np.float32).view(np.int32)

    def chosen_by(self, sampler: Sampler | None) -> None:
        """Who chooses tokens, and whether their log probabilities are wanted; None: the argmax, and no."""
        self.raw.sampler = ffi.NULL if sampler is None else sampler.handle
        self._score(None if sampler is None else sampler.params.logprobs)

    def _score(self, k: int | None) -> None:
        wanted = k, self._room + 1
        if wanted == self._scored:
            return
        self._scored = wanted
        self.raw.scores = ffi.NULL
        if k is not None:
            logp, top_logp = (np.empty((wanted[1], width), np.float32) for width in (1, k))
            self._score_arrays = logp, np.empty((wanted[1], k), np.int32), top_logp
            types = "float *", "int32_t *", "float *"
            rows = [ffi.cast(kind, array.ctypes.data) for kind, array in zip(types, self._score_arrays, strict=True)]
            self._scores = self.raw.scores = ffi.new("eagle_scores *", (k, *rows))

    def observed(self, by_draft: bool) -> None:
        """Whether the draft is to see what is decoded."""
        self.raw.observed = by_draft

    def tree(self) -> DraftTree:
        """The tree that was drafted (a copy)."""
        rows = self._arrays[:, : self.raw.tree.n].copy()
        return DraftTree(self.raw.tokens[self.raw.n_tokens - 1], rows[0], rows[1], rows[2], rows[3].view(np.float32))

    def outcome(self) -> tuple[list[int], int, int, int]:
        """Tokens of the accepted path, the token behind it, and the tree's nodes and depth."""
        raw = self.raw
        path, tree = raw.path, raw.tree
        n = tree.n
        return ffi.unpack(path.tokens, path.n), path.next, n, tree.depths[n - 1] if n else 0

    def drafted(self) -> Drafted:
        """What became of its draft."""
        tree = self.raw.tree
        return Drafted(tree.n_levels, tree.n, tree.promised, self.raw.path.n)

    def accepted(self) -> list[int]:
        """Tokens of the accepted path."""
        return ffi.unpack(self.raw.path.tokens, self.raw.path.n)

    def graphs(self) -> tuple[int, int]:
        """Graphs that the step built, and those it used again, of all its turns."""
        return self.raw.n_built, self.raw.n_reused

    def logprobs(self) -> tuple[TokenLogprob, ...]:
        """Of the accepted path and the token behind it; empty unless the sampler's parameters ask for them."""
        if self._scored[0] is None:
            return ()
        tokens = *self.accepted(), self.raw.path.next
        logp, top, top_logp = (array[: len(tokens)].tolist() for array in self._score_arrays)
        return tuple(
            TokenLogprob(token, own[0], tuple(pair for pair in zip(ids, values, strict=True) if pair[0] >= 0))
            for token, own, ids, values in zip(tokens, logp, top, top_logp, strict=True)
        )

    def path(self) -> Path:
        """The accepted path and the next root. Raises what failed() holds."""
        error = self.failed()
        if error is not None:
            raise error
        path = self.raw.path
        return Path(tuple(ffi.unpack(path.nodes, path.n)), tuple(self.accepted()), path.next)

    def failed(self) -> InputError | NativeError | None:
        """Why no token could be chosen for this sequence, if so."""
        if self.raw.code == C.EAGLE_OK:
            return None
        text = ffi.string(self.raw.error).decode("utf-8", "replace")
        return (InputError if self.raw.code == C.EAGLE_INVALID else NativeError)(text)
