"""Sizes of the tiny models: TargetShape and HeadShape, plain data.

Knows which sizes fit together; does not know weights or file formats.
"""

from dataclasses import dataclass
from typing import Any

TIED = ("gemma2", "gemma3")  # architectures written without an output matrix of their own
DTYPES = ("f32", "f16", "q4_1", "q8_0")


@dataclass(frozen=True)
class TargetShape:
    """Sizes of a tiny target. `window` and `swa_pattern` (True = windowed, one a layer): gemma2 and gemma3 only.

    `bigram` in 0..1 mixes "the next token is a fixed function of the current one" into the output matrix: 0 = a purely
    random model, 0.5 = a model that a good head can guess. `layer_gain` scales what each layer adds to the residual.
    """

    arch: str = "llama"
    n_embd: int = 64
    n_layer: int = 6
    n_head: int = 4
    n_head_kv: int = 2
    head_dim: int = 16
    n_ff: int = 96
    n_vocab: int = 272
    n_ctx_train: int = 512
    window: int = 16
    swa_pattern: tuple[bool, ...] | None = None
    rope_base: float = 10000.0
    eps: float = 1e-5
    bigram: float = 0.0
    layer_gain: float = 1.0
    dtype: str = "f32"
    seed: int = 0

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise ValueError(f"dtype {self.dtype!r} is none of {DTYPES}")
        if self.bigram and self.arch in TIED:
            raise ValueError(f"{self.arch} ties its output to the embeddings: bigram must be 0, not {self.bigram}")
        if self.arch == "qwen2" and self.n_head * self.head_dim != self.n_embd:
            raise ValueError(
                f"qwen2 wants n_head * head_dim == n_embd, not {self.n_head} * {self.head_dim} != {self.n_embd}"
            )
        if self.swa_pattern is not None and len(self.swa_pattern) != self.n_layer:
            raise ValueError(f"swa_pattern has {len(self.swa_pattern)} entries for {self.n_layer} layers")


@dataclass(frozen=True)
class HeadShape:
    """Sizes of a tiny EAGLE-3 head. `layers`: the target layers whose *inputs* feed fc (n = the last layer's output).

    `n_draft_vocab` == `n_vocab` writes no d2t. `own_embeddings` is forced by n_embd != n_embd_target.
    """

    n_embd: int = 64
    n_embd_target: int = 64
    n_head: int = 4
    n_head_kv: int = 2
    head_dim: int = 16
    n_ff: int = 96
    n_vocab: int = 272
    n_draft_vocab: int = 192
    layers: tuple[int, int, int] = (2, 3, 5)
    own_embeddings: bool = False
    norm_before_residual: bool = False
    norm_before_fc: bool = False
    rope_base: float = 10000.0
    eps: float = 1e-5
    n_ctx_train: int = 512
    seed: int = 0

    def __post_init__(self) -> None:
        if self.n_embd != self.n_embd_target and not self.own_embeddings:
            raise ValueError(
                f"a head of width {self.n_embd} on a target of {self.n_embd_target} needs own_embeddings=True"
            )
        if self.n_draft_vocab > self.n_vocab:
            raise ValueError(f"n_draft_vocab {self.n_draft_vocab} exceeds n_vocab {self.n_vocab}")


PRESETS: dict[str, dict[str, Any]] = {
    "llama": {},
    "qwen2": {},
    "gemma2": {},
    "gemma3": {},
    "llama4": {"n_layer": 4, "n_ff": 64},
    "deepseek2": {"n_layer": 4, "n_head_kv": 1},
}


def target_shape(arch: str, **changes: Any) -> TargetShape:
    """The default shape of `arch` (a key of PRESETS) with `changes` applied."""
    if arch not in PRESETS:
        raise ValueError(f"no tiny {arch!r}: choose one of {sorted(PRESETS)}")
    return TargetShape(arch=arch, **{**PRESETS[arch], **changes})
