"""A tiny target together with a head for it, both written as GGUF."""

from dataclasses import dataclass
from pathlib import Path

from .head import State, good_head, random_head
from .head_gguf import write_head_gguf
from .shapes import HeadShape, TargetShape, target_shape
from .target import TinyTarget, write_target


@dataclass(frozen=True)
class TinyPair:
    """Target, head shape, head weights (SpecForge names) and the head's GGUF file."""

    target: TinyTarget
    head: HeadShape
    state: State
    path: Path


def random_pair(folder: Path, seed: int = 0, shape: TargetShape | None = None) -> TinyPair:
    """A random target (llama unless `shape` is given) and a random head, whose drafts are accepted only by luck."""
    shape = shape or target_shape("llama", seed=seed)
    target = write_target(folder / "target.gguf", shape)
    head = HeadShape(seed=seed, n_embd_target=shape.n_embd, n_vocab=shape.n_vocab)
    state = random_head(head)
    return TinyPair(target, head, state, write_head_gguf(folder / "head.gguf", head, state))


def good_pair(folder: Path, seed: int = 0) -> TinyPair:
    """A llama target with a strong bigram and a head that guesses it more often than not."""
    shape = target_shape("llama", seed=seed, bigram=0.5, layer_gain=0.3)
    target = write_target(folder / "target.gguf", shape)
    head = HeadShape(seed=seed, n_head_kv=4, n_draft_vocab=240)
    state = good_head(head, target)
    return TinyPair(target, head, state, write_head_gguf(folder / "head.gguf", head, state))
