"""Acceptance: follows the target's choices down a draft tree. Pure arithmetic; knows no model and no cache."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from .distribution import GREEDY, Filters, choose, distribution
from .errors import InputError
from .tree import DraftTree


class HasRandom(Protocol):
    """A source of uniform numbers, such as Uniforms or a numpy generator."""

    def random(self) -> float:
        """The next number in [0, 1)."""


class Path(NamedTuple):
    """Accepted nodes from the root's child downwards, their tokens, and `next`, the token that is the next root."""

    nodes: tuple[int, ...]
    tokens: tuple[int, ...]
    next: int

    @property
    def rows(self) -> tuple[int, ...]:
        """Rows of the verified batch that were accepted: 0 for the root, i + 1 for node i."""
        return (0, *(node + 1 for node in self.nodes))


def accept_tokens(tree: DraftTree, choices: npt.NDArray[Any] | Sequence[int]) -> Path:
    """The path along the target's own tokens, int[n + 1]: choices[0] follows the root, choices[i + 1] follows node i.

    Descends while a child carries the chosen token; the first choice that no child carries is the next root. When every
    choice is drawn from the target's distribution this keeps that distribution exactly ("sample and match"; greedy when
    the choices are argmaxes). Raises InputError when the number of choices does not fit.
    """
    wanted = choices.tolist() if isinstance(choices, np.ndarray) else choices
    if not isinstance(wanted, Sequence) or len(wanted) != len(tree) + 1:
        raise InputError(f"a tree of {len(tree)} nodes needs {len(tree) + 1} choices, got {np.shape(choices)}")
    nodes: list[int] = []
    tokens: list[int] = []
    current, choice = -1, wanted[0]
    # level order: the children of a node come behind it, so one pass finds the whole path
    for node, parent in enumerate(tree.parents.tolist()):
        if parent == current and tree.tokens[node] == choice:
            nodes.append(node)
            tokens.append(choice)
            current, choice = node, wanted[node + 1]
    return Path(tuple(nodes), tuple(tokens), choice)


def accept(
    tree: DraftTree,
    logits: npt.NDArray[np.float32],
    params: Filters | None = None,
    rng: HasRandom | None = None,
) -> Path:
    """The path along tokens drawn from the target's distribution; by default along the argmaxes ("greedy").

    logits float32[n + 1, n_vocab]: row 0 belongs to the root, row i + 1 to node i. params: temperature, top-k, top-p,
    min-p and biases; rng: gives one number in [0, 1) for each emitted token, Uniforms(seed) those of the engine. Raises
    InputError for other shapes, for NaN, for parameters that need a history, and for temperatures without rng.
    """
    rows = np.asarray(logits)
    if rows.ndim != 2 or len(rows) != len(tree) + 1 or not rows.shape[1]:
        raise InputError(f"logits must have shape [{len(tree) + 1}, n_vocab] for this tree, got {rows.shape}")
    # argmax stops at a NaN, so looking at the maxima finds every row that has one
    best = rows.argmax(axis=1)
    if np.isnan(rows[np.arange(len(rows)), best]).any():
        raise InputError("logits hold NaN: the target's decode went wrong")
    if params is None:
        return accept_tokens(tree, best)
    if params.temperature >= GREEDY and rng is None:
        raise InputError(f"temperature {params.temperature!r} needs random numbers: give rng=Uniforms(seed)")
    return _walk(tree, lambda row: choose(distribution(rows[row], params), rng.random() if rng else 0.0))


def _walk(tree: DraftTree, token_behind: Callable[[int], int]) -> Path:
    """As accept_tokens(), asking only for the rows that the path comes to."""
    nodes: list[int] = []
    choice = token_behind(0)
    for node, parent in enumerate(tree.parents.tolist()):
        if parent == (nodes[-1] if nodes else -1) and tree.tokens[node] == choice:
            nodes.append(node)
            choice = token_behind(node + 1)
    return Path(tuple(nodes), tuple(int(tree.tokens[node]) for node in nodes), choice)
