"""Drafter: runs an EAGLE head and grows draft trees from the target's features.

Owns the draft's context and the pairs it still has to see; knows nothing of verification or of when drafting pays.
The pairing follows EAGLE: cell i of the draft holds (feature of position i, token at position i + 1).
"""

from dataclasses import dataclass

import numpy as np

from . import step_calls
from .batch import Batch
from .checks import whole
from .context import Context
from .errors import InputError
from .static_tree import StaticTree
from .tree import DraftTree, Growth


@dataclass(frozen=True)
class TreeShape:
    """Limits of a dynamic draft tree: nodes without the root, depth, and children per node. top_k 1 is a chain."""

    nodes: int = 16
    depth: int = 5
    top_k: int = 4

    @staticmethod
    def chain(length: int) -> "TreeShape":
        """A chain of the given length."""
        return TreeShape(nodes=length, depth=length, top_k=1)

    def within(self, depth: int, nodes: int) -> "TreeShape":
        """The same shape cut to what is left of context and answer."""
        if self.nodes <= nodes and self.depth <= depth:
            return self
        return TreeShape(min(self.nodes, nodes), min(self.depth, depth), self.top_k)


Shape = TreeShape | StaticTree


def grow(draft: Context, nodes: int = 16, depth: int = 5, top_k: int = 4, seq_id: int = 0) -> DraftTree:
    """Grows a dynamic draft tree behind the last token that the draft decoded, which becomes the root.

    EAGLE-2's algorithm (arXiv 2406.16858, section 4): each level expands the top_k most probable candidates, and the
    `nodes` most probable ones of all levels form the tree. The draft's uncommitted nodes stay until rollback().
    """
    for name, value in (("nodes", nodes), ("depth", depth), ("top_k", top_k)):
        whole(name, value, 1)
    root, row = _end(draft, seq_id)
    growth = Growth(root, top_k, depth, nodes)
    ids, logp = draft.top_k(top_k)
    level = growth.first(ids[row], logp[row])
    hidden = np.repeat(draft.hidden()[row : row + 1], len(level.tokens), axis=0)
    node_ids = np.full(len(level.tokens), -1, dtype=np.int32)
    first_id = 0
    while level.depth < depth:
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
    """A draft that follows one sequence of a target.

    observe() what the target decoded, grow() a tree behind the next root.
    """

    def __init__(self, context: Context) -> None:
        if not context.model.info.is_draft:
            raise InputError(f"{context.model.path.name} is no draft head")
        self.context = context
        self._features: list[np.ndarray] = []  # rows of the tokens observed since the last tree
        self._tokens: list[int] = []  # those that follow them: one fewer, for the last row's is not known yet

    def observe(self, tokens: list[int], features: np.ndarray) -> None:
        """Takes tokens the target decoded and their features, float32 [len(tokens), width]."""
        if not len(tokens) == len(features) > 0:
            raise InputError(f"{len(tokens)} tokens and {len(features)} rows of features: one row a token is needed")
        self._tokens.extend(tokens if self._features else tokens[1:])
        self._features.append(features)

    def catch_up(self) -> None:
        """Decodes every pair that is complete: true features only, never a draft's own."""
        if not self._tokens:
            return
        features = self._rows()
        for first in range(0, len(self._tokens), self.context.n_batch):
            tokens = self._tokens[first : first + self.context.n_batch]
            part = self.context.encode(features[first : first + len(tokens)])
            self.context.decode(Batch(tokens, embd=part))
        self._features, self._tokens = [features[-1:]], []

    def _rows(self) -> np.ndarray:
        return self._features[0] if len(self._features) == 1 else np.concatenate(self._features)

    def grow(self, root: int, shape: Shape) -> DraftTree:
        """A draft tree behind `root`, the token that follows all that was observed. The cache keeps no node of it."""
        if not self._features:
            raise InputError("nothing was observed since the last tree: observe() what the target decoded")
        if len(self._tokens) >= self.context.n_ubatch:
            self.catch_up()
        tokens, features = [*self._tokens, root], self._rows()
        self._features, self._tokens = [], []
        if isinstance(shape, StaticTree):
            return step_calls.draft_static(self.context, tokens, features, shape)
        return step_calls.draft(self.context, tokens, features, (shape.nodes, shape.depth, shape.top_k))

    def rewind(self, length: int) -> None:
        """Forgets everything behind the first `length` pairs."""
        self._features, self._tokens = [], []
        if self.context.n_nodes():
            self.context.rollback()
        if length < self.context.n_past():
            self.context.seq_rm(0, length)
