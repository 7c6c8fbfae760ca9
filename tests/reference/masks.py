"""Who sees whom: boolean attention masks [query, key] for sequences and trees. Pure index arithmetic."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Mask = npt.NDArray[np.bool_]
Positions = npt.NDArray[np.int64]


def causal_mask(positions: npt.ArrayLike) -> Mask:
    """Each row sees the rows whose position is not larger, bool[n, n]."""
    at = np.asarray(positions)
    return at[None, :] <= at[:, None]


def window_mask(positions: npt.ArrayLike, window: int) -> Mask:
    """Rows within `window` positions, bool[n, n]: p - q < window. Combine by & with a causal or tree mask."""
    at = np.asarray(positions)
    near: Mask = at[:, None] - at[None, :] < window
    return near


def chunk_mask(positions: npt.ArrayLike, chunk: int) -> Mask:
    """Rows of the same chunk of `chunk` positions, bool[n, n]."""
    at = np.asarray(positions) // chunk
    same: Mask = at[:, None] == at[None, :]
    return same


def tree_mask(n_prefix: int, parents: Sequence[int] | npt.NDArray[np.int32]) -> Mask:
    """Mask of a prefix followed by tree nodes, bool[n_prefix + n, n_prefix + n].

    The root is the last row of the prefix; parents[i] is the index of node i's parent among the nodes, -1 = the root.
    """
    size = n_prefix + len(parents)
    mask = np.zeros((size, size), dtype=np.bool_)
    mask[:n_prefix, :n_prefix] = np.tril(np.ones((n_prefix, n_prefix), dtype=np.bool_))
    for i, parent in enumerate(parents):
        row = n_prefix + i
        mask[row] = mask[n_prefix + parent] if parent >= 0 else mask[n_prefix - 1]
        mask[row, row] = True
    return mask


def tree_positions(n_prefix: int, parents: Sequence[int] | npt.NDArray[np.int32]) -> Positions:
    """Positions of a prefix (0..n_prefix-1) and the nodes after it (parent + 1), int64[n_prefix + n]."""
    at = list(range(n_prefix))
    for parent in parents:
        at.append((at[n_prefix + parent] if parent >= 0 else n_prefix - 1) + 1)
    return np.array(at, dtype=np.int64)
