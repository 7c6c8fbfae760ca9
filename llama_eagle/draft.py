"""Drafter: runs an EAGLE head and grows draft trees from the target's features.

Owns the draft's context and the pairs it still has to see; knows nothing of verification or of when drafting pays.
The pairing follows EAGLE: cell i of the draft holds (feature of position i, token at position i + 1).
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from . import step_calls
from .batch import Batch
from .checks import matrix, vector, whole
from .context import Context
from .errors import InputError
from .ffi import C, check, ffi
from .static_tree import Shape, StaticTree
from .tree import DraftTree, Growth, Prices


def grow(
    draft: Context,
    nodes: int = 16,
    depth: int = 5,
    top_k: int = 4,
    seq_id: int = 0,
    prices: Prices | None = None,
) -> DraftTree:
    """Grows a dynamic draft tree behind the last token that the draft decoded, which becomes the root.

    EAGLE-2's algorithm (arXiv 2406.16858, section 4): each level expands the top_k most probable candidates, and the
    `nodes` most probable ones of all levels form the tree, fewer where prices say so. The draft's uncommitted nodes
    stay until rollback().
    """
    for name, value in (("nodes", nodes), ("depth", depth), ("top_k", top_k)):
        whole(name, value, 1)
    root, row = _end(draft, seq_id)
    growth = Growth(root, top_k, depth, nodes, prices)
    ids, logp = draft.top_k(top_k)
    level = growth.first(ids[row], logp[row])
    hidden = np.repeat(draft.hidden()[row : row + 1], len(level.tokens), axis=0)
    node_ids = np.full(len(level.tokens), -1, dtype=np.int32)
    first_id = 0
    while level.depth < depth and len(level.tokens):
        count = len(level.tokens)
        draft.decode(Batch(level.tokens, embd=hidden, seq_id=seq_id, parents=node_ids, outputs=np.ones(count, np.int8)))
        states = draft.hidden()
        level = growth.expand(*draft.top_k(top_k))
        hidden = states[level.beam_parents]
        node_ids = (first_id + level.beam_parents).astype(np.int32)
        first_id += count
    return growth.tree()


def grow_static(draft: Context, shape: StaticTree, seq_id: int = 0) -> DraftTree:
    """Fills in the tokens of a static tree behind the last token that the draft decoded, which becomes the root.

    A node takes the token of its rank behind its parent (EAGLE-1, arXiv 2401.15077); nodes that have children are
    decoded, one decode a level. The draft's uncommitted nodes stay until rollback().
    """
    root, row = _end(draft, seq_id)
    parents = shape.parents
    row_of, id_of = {-1: row}, {-1: -1}  # of expanded nodes: row of the last decode, the draft's number
    scores = {-1: np.float32(0.0)}
    tokens: list[int] = []
    first_id = 0
    for level in [*shape.inner, []]:
        ids, logp = draft.top_k(shape.top_k)
        hidden = draft.hidden()
        while len(tokens) < shape.nodes and parents[len(tokens)] in row_of:
            node, parent = len(tokens), parents[len(tokens)]
            place = row_of[parent], shape.ranks[node]
            scores[node] = scores[parent] + min(logp[place], np.float32(0.0))
            tokens.append(int(ids[place]))
        if level:
            states = hidden[[row_of[parents[node]] for node in level]]
            ancestors = [id_of[parents[node]] for node in level]
            ones = np.ones(len(level), np.int8)
            words = [tokens[node] for node in level]
            draft.decode(Batch(words, embd=states, seq_id=seq_id, parents=ancestors, outputs=ones))
        row_of = {node: row for row, node in enumerate(level)}
        id_of = {node: first_id + row for node, row in row_of.items()}
        first_id += len(level)
    return DraftTree.from_lists(root, tokens, parents, [scores[node] for node in range(shape.nodes)])


def _end(draft: Context, seq_id: int) -> tuple[int, int]:
    """The last token that a draft decoded of a sequence, and its row of outputs."""
    if not isinstance(draft, Context) or not draft.model.info.is_draft or seq_id not in draft.ends:
        raise InputError(
            f"nothing to grow from in sequence {seq_id!r}: the draft decoded no token of it last, with logits"
        )
    return draft.ends[seq_id]


class Drafter:
    """A draft that follows sequences of a target.

    observe() what the target decoded, grow() a tree behind the next root. What it has not seen yet waits natively.
    """

    def __init__(self, context: Context) -> None:
        if not context.model.info.is_draft:
            raise InputError(f"{context.model.path.name} is no draft head")
        self.context = context

    def observe(self, tokens: Sequence[int], features: np.ndarray, seq_id: int = 0) -> None:
        """Takes tokens the target decoded and their features, float32 [len(tokens), width]."""
        rows = matrix("features", features)
        if rows.shape != (len(tokens), self.context.feature_width) or not len(tokens):
            raise InputError(
                f"{len(tokens)} tokens and features of shape {rows.shape}: one row of {self.context.feature_width} a "
                "token is needed"
            )
        ids = vector("tokens", tokens, np.int32)
        self._call(
            C.eagle_observe, seq_id, ffi.from_buffer("int32_t[]", ids), ffi.from_buffer("float[]", rows), len(ids)
        )

    def catch_up(self, seq_id: int = 0) -> None:
        """Decodes every pair that is complete: true features only, never a draft's own."""
        self._call(C.eagle_catch_up, seq_id)

    def pending(self, seq_id: int = 0) -> int:
        """Observed tokens whose features the draft has not decoded yet."""
        with self.context.lock:
            return int(C.eagle_n_pending(self.context.handle, seq_id))

    def pending_rows(self, seq_id: int = 0) -> tuple[list[int], np.ndarray]:
        """What waits: features float32 [n, width], and the tokens behind them, one fewer."""
        n = self.pending(seq_id)
        tokens, rows = np.empty(n, np.int32), np.empty((n, self.context.feature_width), np.float32)
        pointers = ffi.cast("int32_t *", tokens.ctypes.data), ffi.cast("float *", rows.ctypes.data)
        with self.context.lock:
            known = C.eagle_pending_read(self.context.handle, seq_id, *pointers)
        return tokens[:known].tolist(), rows

    def follows(self, length: int, seq_id: int = 0) -> bool:
        """Whether it has seen, or has waiting, every token of a sequence of that length."""
        return self.context.n_past(seq_id) + self.pending(seq_id) == length

    def grow(self, root: int, shape: Shape, seq_id: int = 0) -> DraftTree:
        """A draft tree behind `root`, the token that follows all that was observed. The cache keeps no node of it."""
        if not self.pending(seq_id):
            raise InputError("nothing was observed since the last tree: observe() what the target decoded")
        return step_calls.draft(self.context, root, shape, seq_id)

    def rewind(self, length: int, seq_id: int = 0) -> None:
        """Forgets everything behind the first `length` pairs."""
        self._call(C.eagle_forget, seq_id)
        if self.context.n_nodes(seq_id):
            self.context.rollback(seq_id)
        if length < self.context.n_past(seq_id):
            self.context.seq_rm(seq_id, length)

    def shift(self, keep: int, discard: int, seq_id: int = 0) -> None:
        """Follows a shift of the target: the pairs at [keep, keep + discard) are dropped, later ones move down.

        It must have caught up, so that what waits lies behind them.
        The pair in front of the gap keeps the token that it had, which lowers no more than the quality of a draft.
        """
        if keep + discard < self.context.n_past(seq_id):
            self.context.shift(keep, discard, seq_id)

    def _call(self, function: Any, *args: Any) -> None:
        with self.context.lock:
            self.context.ends = {}
            check(function(self.context.handle, *args), self.context.handle)
