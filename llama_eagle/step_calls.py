"""The parts of a step in one native call each: draft a tree, verify it and keep a path. The loop's fast path.

What happens is defined by grow(), grow_static(), accept_tokens() and Context's encode, decode, features and commit.
Behind a decode that streamed all weights every Python line runs from cold caches, so this does as little as it can.
"""

from typing import Any

import numpy as np

from .acceptance import Path
from .context import Context
from .errors import InputError
from .ffi import C, check, ffi
from .sampler import Sampler
from .static_tree import StaticTree
from .tree import DraftTree


def draft(context: Context, tokens: list[int], features: np.ndarray, shape: tuple[int, int, int]) -> DraftTree:
    """Decodes pairs of sequence 0 and grows a tree behind the last token, its root. shape: (nodes, depth, top_k).

    features: float32 [n, n_features * n_embd_target], n at most n_ubatch; row i is that of the token before tokens[i].
    """
    pairs, _kept = _pairs(context, tokens, features)
    arrays, tree = _room(max(shape[0], 1))
    with context.lock:
        context.ends = {}
        check(C.eagle_draft(context.handle, 0, pairs, ffi.new("eagle_tree_shape *", shape), tree), context.handle)
    return _drafted(tokens[-1], tree.n, arrays)


def draft_static(context: Context, tokens: list[int], features: np.ndarray, shape: StaticTree) -> DraftTree:
    """As draft(), with the nodes of a static tree: what grow_static() defines."""
    pairs, _kept = _pairs(context, tokens, features)
    arrays, tree = _room(shape.nodes)
    parents, ranks = shape.arrays
    nodes = ffi.new("eagle_static_shape *", (shape.nodes, _int32(parents), _int32(ranks)))
    with context.lock:
        context.ends = {}
        check(C.eagle_draft_static(context.handle, 0, pairs, nodes, tree), context.handle)
    return _drafted(tokens[-1], tree.n, arrays)


def _pairs(context: Context, tokens: list[int], features: np.ndarray) -> tuple[Any, Any]:
    """The struct of what a draft still has to see, and the ids that it points to."""
    n = len(tokens)
    if features.shape != (n, context.feature_width) or not n or not features.flags.c_contiguous:
        raise InputError(f"{n} tokens need features of shape [{n}, {context.feature_width}], got {features.shape}")
    ids = ffi.new("int32_t[]", tokens)
    return ffi.new("eagle_pairs *", (n, ids, ffi.from_buffer("float[]", features))), ids


def _room(nodes: int) -> tuple[np.ndarray, Any]:
    """int32 [4, nodes] for tokens, parents, depths and scores (bits of float32), and the struct of its rows."""
    arrays = np.empty((4, nodes), np.int32)
    start = ffi.from_buffer("int32_t[]", arrays)
    scores = ffi.cast("float *", start + 3 * nodes)
    return arrays, ffi.new("eagle_tree *", (0, start, start + nodes, start + 2 * nodes, scores))


def _drafted(root: int, n: int, arrays: np.ndarray) -> DraftTree:
    return DraftTree(root, arrays[0, :n], arrays[1, :n], arrays[2, :n], arrays[3, :n].view(np.float32))


def verify(context: Context, tree: DraftTree, sampler: Sampler | None = None) -> tuple[Path, np.ndarray]:
    """Decodes a root and its tree in sequence 0 and commits the path along the sampler's tokens, else the argmaxes.

    The path is accept_tokens()'s. A sampler is asked for its tokens only, and goes no further than an end token.
    Returns the path and the features of its root and nodes, float32 [1 + len(path.nodes), n_features * n_embd].
    """
    n = len(tree)
    depth = tree.depth
    features = np.empty((1 + depth, context.feature_width), dtype=np.float32)
    numbers = ffi.new("int32_t[]", 2 * depth)
    raw = ffi.new("eagle_tree *", (n, _int32(tree.tokens), _int32(tree.parents), ffi.NULL, ffi.NULL))
    path = ffi.new("eagle_path *", (depth, numbers, numbers + depth, 0, ffi.from_buffer("float[]", features)))
    with context.lock:
        context.ends = {}
        chooser = ffi.NULL if sampler is None else sampler.handle
        check(C.eagle_verify(context.handle, 0, tree.root, raw, chooser, path), context.handle)
    count = path.n
    found = ffi.unpack(numbers, depth + count) if depth else []
    return Path(tuple(found[:count]), tuple(found[depth:]), path.next), features[: 1 + count]


def _int32(array: np.ndarray) -> Any:
    if array.dtype != np.int32 or not array.flags.c_contiguous:
        array = np.ascontiguousarray(array, dtype=np.int32)
    return ffi.from_buffer("int32_t[]", array)
