"""Acceptance: follows the target's choices down a draft tree. Pure arithmetic; knows no model and no cache."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from .errors import InputError
from .tree import DraftTree


class HasTemperature(Protocol):
    """The part of the sampling parameters that acceptance reads."""

    @property
    def temperature(self) -> float:
        """0 is greedy."""


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
    params: HasTemperature | None = None,
    rng: np.random.Generator | None = None,
) -> Path:
    """Greedy acceptance: the path along the argmax of each row, the lowest id winning ties.

    logits float32[n + 1, n_vocab]: row 0 belongs to the root, row i + 1 to node i. rng is for temperatures above 0,
    which are refused so far. Raises InputError for those, for other shapes and for NaN.
    """
    del rng
    if params is not None and params.temperature != 0:
        raise InputError(f"temperature {params.temperature!r}: only greedy acceptance works so far, use temperature 0")
    rows = np.asarray(logits)
    if rows.ndim != 2 or len(rows) != len(tree) + 1 or not rows.shape[1]:
        raise InputError(f"logits must have shape [{len(tree) + 1}, n_vocab] for this tree, got {rows.shape}")
    choices = rows.argmax(axis=1)
    # argmax stops at a NaN, so looking at the maxima finds every row that has one
    if np.isnan(rows[np.arange(len(rows)), choices]).any():
        raise InputError("logits hold NaN: the target's decode went wrong")
    return accept_tokens(tree, choices)
