"""The dynamic draft tree of EAGLE-2 and EAGLE-3 (Li et al. 2024; `topK_genrate` of the authors' code), brute and plain.

A first forward gives the top_k children of the root; `depth` - 1 further forwards expand a beam of top_k nodes, all
their top_k children being candidates; the `nodes` best candidates make the tree. Ties go to the smaller flat index
(candidates numbered in order of creation) and, within one row of scores, to the smaller draft id.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .draft import DraftNet
from .eagle3 import Eagle3
from .layers import Array


@dataclass(frozen=True)
class Limits:
    """nodes: size of the tree without its root. depth: deepest level = draft forwards. top_k: children and beam."""

    nodes: int
    depth: int
    top_k: int


@dataclass(frozen=True)
class ReferenceTree:
    """Nodes in level order: draft ids, parents (-1 = root), depths (1 = its children), cumulative log probabilities."""

    ids: npt.NDArray[np.int64]
    parents: npt.NDArray[np.int64]
    depths: npt.NDArray[np.int64]
    scores: Array


@dataclass
class Candidate:
    """A node that may enter the tree; `parent` is a flat index, -1 = the root."""

    token: int
    parent: int
    depth: int
    score: float


# rows to expand (flat indices) and all candidates so far -> log probabilities [rows, vocabulary]
Expand = Callable[[list[int], list[Candidate]], Array]


def grow_scores(first: Array, expand: Expand, limits: Limits) -> ReferenceTree:
    """Grow a tree from the root's log probabilities first [vocabulary] and a function for every later row."""
    pool: list[Candidate] = []
    beam = _add_children(pool, -1, first, limits.top_k)
    for _ in range(limits.depth - 1):
        made: list[int] = []
        for flat, row in zip(beam, expand(beam, pool), strict=True):
            made += _add_children(pool, flat, row, limits.top_k)
        beam = _best(pool, made, limits.top_k)
    kept = sorted(_best(pool, list(range(len(pool))), limits.nodes))
    place = {flat: i for i, flat in enumerate(kept)} | {-1: -1}
    chosen = [pool[flat] for flat in kept]
    return ReferenceTree(
        np.array([c.token for c in chosen], dtype=np.int64),
        np.array([place[c.parent] for c in chosen], dtype=np.int64),
        np.array([c.depth for c in chosen], dtype=np.int64),
        np.array([c.score for c in chosen], dtype=np.float64),
    )


def grow_reference(
    net: Eagle3 | DraftNet, tokens: npt.ArrayLike, g: npt.ArrayLike, start: int, limits: Limits
) -> ReferenceTree:
    """Catch up on true rows, then grow a tree with `net`; the K/V afterwards holds the true rows only.

    tokens [n]: the token that follows each feature row g [n, n_embd] (encoded), the last one being the root; rows sit
    at positions start, start + 1, ... Map ids through `net.target_ids` for target tokens.
    """
    count = len(np.asarray(tokens))
    hidden, logits = net.decode(tokens, g, start + np.arange(count))
    stable = net.length
    outputs = {-1: hidden[-1]}  # flat index -> the hidden its children are fed with
    row_of: dict[int, int] = {}  # flat index -> row of the K/V

    def expand(beam: list[int], pool: list[Candidate]) -> Array:
        mask = np.zeros((len(beam), net.length + len(beam)), dtype=np.bool_)
        mask[:, :stable] = True
        for i, flat in enumerate(beam):
            row_of[flat] = net.length + i
            node = flat
            while node >= 0:
                mask[i, row_of[node]] = True
                node = pool[node].parent
        ids = net.target_ids[[pool[flat].token for flat in beam]]
        fed = np.stack([outputs[pool[flat].parent] for flat in beam])
        at = start + count - 1 + np.array([pool[flat].depth for flat in beam])
        prenorm, scores = net.decode(ids, fed, at, mask)
        outputs.update(zip(beam, prenorm, strict=True))
        return log_softmax(scores)

    tree = grow_scores(log_softmax(logits[-1:])[0], expand, limits)
    net.truncate(stable)
    return tree


def log_softmax(logits: Array) -> Array:
    """Row-wise, [n, vocabulary]."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    result: Array = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return result


def _add_children(pool: list[Candidate], parent: int, logp: Array, top_k: int) -> list[int]:
    base, depth = (pool[parent].score, pool[parent].depth + 1) if parent >= 0 else (0.0, 1)
    order = np.argsort(-logp, kind="stable")[:top_k]
    pool += [Candidate(int(t), parent, depth, base + float(logp[t])) for t in order]
    return list(range(len(pool) - len(order), len(pool)))


def _best(pool: list[Candidate], among: list[int], count: int) -> list[int]:
    return sorted(among, key=lambda flat: (-pool[flat].score, flat))[:count]
