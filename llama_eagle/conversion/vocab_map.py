"""VocabMap: the target id of every draft id, read from a checkpoint's `d2t` and checked.

Stored are offsets, target id = draft id + offset (SafeAILab eagle/model/cnets.py); GGUF files hold the ids themselves.
"""

import numpy as np
import numpy.typing as npt

from ..errors import CheckpointError
from .checkpoint import Checkpoint
from .spec import HeadSpec

Ids = npt.NDArray[np.int64]


def read_map(checkpoint: Checkpoint, spec: HeadSpec) -> Ids | None:
    """int64[draft_vocab], ascending where the producer sorted; None where draft ids are target ids.

    Raises CheckpointError for a map that is missing, too short, has doubles or leaves the target's vocabulary.
    """
    if "d2t" not in checkpoint:
        if spec.draft_vocab != spec.vocab:
            raise CheckpointError(
                f"tensor d2t is missing: {spec.draft_vocab} draft tokens cannot be mapped to {spec.vocab}"
            )
        return None
    offsets = checkpoint.integers("d2t")
    if offsets.shape != (spec.draft_vocab,):
        raise CheckpointError(f"tensor d2t is {list(offsets.shape)}; config.json calls for [{spec.draft_vocab}]")
    if spec.draft_vocab == spec.vocab and not offsets.any():
        return None
    ids: Ids = offsets + np.arange(spec.draft_vocab)
    outside = np.flatnonzero((ids < 0) | (ids >= spec.vocab))
    if outside.size:
        first = int(outside[0])
        raise CheckpointError(f"d2t[{first}] points at token {ids[first]}, outside the target's {spec.vocab} tokens")
    values, counts = np.unique(ids, return_counts=True)
    if values.size != ids.size:
        raise CheckpointError(
            f"d2t maps {int(counts.max())} draft tokens to the same target token {values[counts.argmax()]}"
        )
    return ids


def inverse_agrees(checkpoint: Checkpoint, ids: Ids | None, vocab: int) -> bool:
    """Whether `t2d`, the mask over the target's vocabulary, tells the same; True where there is none."""
    if "t2d" not in checkpoint or ids is None:
        return True
    kept = checkpoint.booleans("t2d")
    return kept is not None and kept.shape == (vocab,) and np.array_equal(np.flatnonzero(kept), np.sort(ids))
