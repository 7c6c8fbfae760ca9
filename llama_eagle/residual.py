"""Rejection sampling with the residual, for drafts whose tokens were drawn from the draft's own distribution.

Pure arithmetic on probabilities; knows no model. It keeps the target's distribution, but not one text for a seed: what
is drafted decides, too. The definition of the native library's eagle_sampled.cpp and eagle_residual.cpp.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from .acceptance import HasRandom, Path
from .distribution import Filters, Row, choose, distribution
from .errors import InputError
from .tree import DraftTree

Probabilities = npt.NDArray[np.float64]
Choose = Callable[[Probabilities], int]  # an index, with the probability that its weight has


def chooser(rng: HasRandom) -> Choose:
    """Decides by one uniform number each."""
    return lambda weights: choose(weights, rng.random())


def proposal(row: Row, params: Filters) -> Probabilities:
    """float64[n]: what a draft's tokens are drawn from, for its row of logits, float32[n].

    Any distribution would do; the closer it is to the target's, the more is accepted. So it is the row at the target's
    temperature, and what the target's top-k, top-p and min-p would drop weighs a millionth: once the others are drawn
    there is one more token to draw.
    """
    weights = np.exp((row.astype(np.float64) - row.max()) / params.temperature)
    weights[distribution(row, params) == 0.0] *= 1e-6
    return np.asarray(weights / weights.sum())


def draw_children(draft: Probabilities, count: int, decide: Choose) -> list[int]:
    """At most `count` different tokens, each drawn from what the earlier ones left of float64[n_vocab]."""
    left = np.array(draft)
    tokens: list[int] = []
    while len(tokens) < count and left.any():
        tokens.append(decide(left))
        left[tokens[-1]] = 0.0
    return tokens


def accept_residual(tree: DraftTree, target: npt.NDArray[Any], draft: npt.NDArray[Any], decide: Choose) -> Path:
    """The accepted path of a drawn tree, and the next root. target, draft: float64[n + 1, n_vocab].

    Row 0 belongs to the root, row i + 1 to node i: the target's processed distribution, and the one that the node's
    children were drawn from with draw_children(), in the order of their nodes (a leaf's row is not read). Multi-round
    rejection: a child x is accepted with min(1, p(x) / q(x)); after a rejection p becomes the positive part of p - q,
    and q what remains of it without x (SpecInfer, arXiv 2305.09781; EAGLE, arXiv 2401.15077). Raises InputError for
    other shapes and for a child that its draft could not have drawn.
    """
    for name, rows in (("target", target), ("draft", draft)):
        if np.ndim(rows) != 2 or len(rows) != len(tree) + 1:
            raise InputError(f"{name} must have shape [{len(tree) + 1}, n_vocab] for this tree, got {np.shape(rows)}")
    parents = tree.parents
    nodes: list[int] = []
    while True:
        row = nodes[-1] + 1 if nodes else 0
        children = np.flatnonzero(parents == row - 1).tolist()
        accepted, left = _try_children(tree, children, target[row], draft[row], decide)
        if accepted is None:
            break
        nodes.append(accepted)
    return Path(tuple(nodes), tuple(int(tree.tokens[node]) for node in nodes), decide(left))


def _try_children(
    tree: DraftTree, children: list[int], target: Probabilities, draft: Probabilities, decide: Choose
) -> tuple[int | None, Probabilities]:
    """The first accepted child; without one, what the next token is to be drawn from."""
    p, q = np.array(target), np.array(draft)
    for node in children:
        token = int(tree.tokens[node])
        q /= q.sum() or 1.0
        if q[token] <= 0:
            raise InputError(f"node {node} has token {token}, which its draft could not have drawn")
        ratio = min(1.0, p[token] / q[token])
        if decide(np.array([ratio, 1.0 - ratio])) == 0:
            return node, p
        residual = np.maximum(p - q, 0.0)
        if residual.any():  # nothing is left by rounding only: p was q
            p = residual / residual.sum()
        q[token] = 0.0
    return None, p
