"""VocabMap: the target id of every draft id, read from a checkpoint's `d2t` and checked.

Stored are offsets, target id = draft id + offset (SafeAILab eagle/model/cnets.py); GGUF files hold the ids themselves.
"""

import numpy as np
import numpy.typing as npt

from ..errors import CheckpointError
from ..vocabulary import map_problems
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
    problems = map_problems(ids, spec.vocab)
    if problems:
        raise CheckpointError(problems[0])
    return ids


def inverse_agrees(checkpoint: Checkpoint, ids: Ids | None, vocab: int) -> bool:
    """Whether `t2d`, the mask over the target's vocabulary, tells the same; True where there is none."""
    if "t2d" not in checkpoint or ids is None:
        return True
    kept = checkpoint.booleans("t2d")
    return kept is not None and kept.shape == (vocab,) and np.array_equal(np.flatnonzero(kept), np.sort(ids))
