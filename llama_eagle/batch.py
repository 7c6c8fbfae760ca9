"""Batch: tokens for one decode, ordinary or nodes of a draft tree. Knows nothing of caches or positions."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from .checks import matrix, vector, whole
from .errors import InputError
from .ffi import C, ffi
from .tree import DraftTree

PLAIN: int = C.EAGLE_PLAIN  # parent of a token that is not a tree node


class Batch:
    """Tokens for one Context.decode().

    tokens: token ids, or a DraftTree (its root as an ordinary token, then its nodes, logits for all of them).
    embd: float32 [n, n_embd], a draft's features; row i belongs to tokens[i].
    seq_id: the sequence of all tokens.
    parents: int32 [n], PLAIN or the parent's node id (-1: the last committed token).
    outputs: bool [n], rows of logits wanted; the last token by default.
    """

    def __init__(
        self,
        tokens: Sequence[int] | np.ndarray | DraftTree,
        embd: np.ndarray | None = None,
        *,
        seq_id: int = 0,
        parents: Sequence[int] | np.ndarray | None = None,
        outputs: Sequence[bool] | np.ndarray | None = None,
    ) -> None:
        if isinstance(tokens, DraftTree):
            parents = np.concatenate(([PLAIN], tokens.parents)).astype(np.int32)
            tokens = np.concatenate(([tokens.root], tokens.tokens)).astype(np.int32)
            outputs = np.ones(len(tokens), dtype=np.int8) if outputs is None else outputs
        self.tokens = vector("tokens", tokens, np.int32)
        n = len(self.tokens)
        self.parents = None if parents is None else vector("parents", parents, np.int32)
        self.outputs = None if outputs is None else vector("outputs", outputs, np.int8)
        self.seq_ids = np.full(n, seq_id, dtype=np.int32) if whole("seq_id", seq_id) else None
        self.embd = None if embd is None else matrix("embd", embd)
        self.single = False  # computed as single tokens, whatever their outputs are
        for name in ("parents", "outputs", "embd"):
            value = getattr(self, name)
            if value is not None and len(value) != n:
                raise InputError(f"{name} has {len(value)} rows for {n} tokens")

    def __len__(self) -> int:
        return len(self.tokens)

    @staticmethod
    def join(batches: Sequence["Batch"]) -> "Batch":
        """One batch of several, in order: different sequences decoded together."""
        if not isinstance(batches, Sequence) or not batches or not all(isinstance(b, Batch) for b in batches):
            raise InputError(f"join takes batches, got {batches!r}")
        res = Batch(np.concatenate([b.tokens for b in batches]))
        res.seq_ids = np.concatenate([b._seq_ids() for b in batches])
        res.parents = np.concatenate([b._parents() for b in batches])
        res.outputs = np.concatenate([b._outputs() for b in batches])
        with_embd = [b.embd for b in batches if b.embd is not None]
        if with_embd and len(with_embd) != len(batches):
            raise InputError(f"{len(with_embd)} of {len(batches)} batches have embd: all or none must")
        if len({embd.shape[1] for embd in with_embd}) > 1:
            raise InputError(f"embd rows have different widths: {[embd.shape[1] for embd in with_embd]}")
        res.embd = np.concatenate(with_embd) if with_embd else None
        return res

    def _seq_ids(self) -> np.ndarray:
        return np.zeros(len(self), dtype=np.int32) if self.seq_ids is None else self.seq_ids

    def _parents(self) -> np.ndarray:
        return np.full(len(self), PLAIN, dtype=np.int32) if self.parents is None else self.parents

    def _outputs(self) -> np.ndarray:
        if self.outputs is not None:
            return self.outputs
        last = np.zeros(len(self), dtype=np.int8)
        last[-1:] = 1
        return last

    def ends(self) -> dict[int, tuple[int, int]]:
        """Sequences whose last token here is an ordinary one with logits: that token and its output row."""
        outputs = self._outputs() != 0
        rows = (np.cumsum(outputs) - 1).tolist()
        res: dict[int, tuple[int, int]] = {}
        ordinary = ((self._parents() == PLAIN) & outputs).tolist()
        for i, seq_id in enumerate(self._seq_ids().tolist()):
            res.pop(seq_id, None)
            if ordinary[i]:
                res[seq_id] = (int(self.tokens[i]), rows[i])
        return res

    def native(self) -> Any:
        """The struct for the shim; it points into this batch, which must outlive it."""
        raw = ffi.new("eagle_batch *")
        raw.n_tokens = len(self.tokens)
        raw.rows = C.EAGLE_ROWS_SINGLE if self.single else C.EAGLE_ROWS_BY_OUTPUTS
        raw.tokens = _pointer("int32_t *", self.tokens)
        raw.embd = _pointer("float *", self.embd)
        raw.seq_ids = _pointer("int32_t *", self.seq_ids)
        raw.parents = _pointer("int32_t *", self.parents)
        raw.outputs = _pointer("int8_t *", self.outputs)
        return raw


def _pointer(kind: str, array: np.ndarray | None) -> Any:
    return ffi.NULL if array is None else ffi.cast(kind, array.ctypes.data)
