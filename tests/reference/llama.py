"""Forward pass of tiny llama and qwen2 targets in numpy, whole sequences or trees, no cache.

Knows the GGUF tensor names and rope layout of both; knows nothing of llama.cpp's batches, cells or graphs.
"""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from .layers import Array, attention, gated_ffn, rms_norm, rope_halves, rope_pairs
from .masks import causal_mask

ROPE = {"llama": rope_pairs, "qwen2": rope_halves}


class Shape(Protocol):
    """What forward reads of a shape; `tiny.TargetShape` has it."""

    @property
    def arch(self) -> str: ...
    @property
    def n_layer(self) -> int: ...
    @property
    def head_dim(self) -> int: ...
    @property
    def rope_base(self) -> float: ...
    @property
    def eps(self) -> float: ...


@dataclass(frozen=True)
class LlamaOutput:
    """All rows: logits [n, n_vocab], layer_inputs [n_layer + 1, n, n_embd] (last = output), post-norm hidden."""

    logits: Array
    layer_inputs: Array
    hidden: Array


def forward(
    tensors: dict[str, npt.NDArray[Any]],
    shape: Shape,
    tokens: npt.ArrayLike,
    positions: npt.ArrayLike | None = None,
    mask: npt.NDArray[np.bool_] | None = None,
) -> LlamaOutput:
    """Run tokens [n] at positions [n] (0.. by default) under mask [n, n] or [n_layer, n, n] (causal by default)."""
    at = np.arange(len(np.asarray(tokens))) if positions is None else np.asarray(positions)
    see = causal_mask(at) if mask is None else np.asarray(mask)
    x = tensors["token_embd.weight"][np.asarray(tokens)].astype(np.float64)
    inputs = []
    for layer in range(shape.n_layer):
        inputs.append(x)
        weights = _layer(tensors, layer)
        x = x + _attend(
            weights,
            shape,
            rms_norm(x, weights["attn_norm.weight"], shape.eps),
            at,
            see if see.ndim == 2 else see[layer],
        )
        normed = rms_norm(x, weights["ffn_norm.weight"], shape.eps)
        x = x + gated_ffn(normed, weights["ffn_gate.weight"], weights["ffn_up.weight"], weights["ffn_down.weight"])
    inputs.append(x)
    hidden = rms_norm(x, tensors["output_norm.weight"], shape.eps)
    logits: Array = hidden @ tensors.get("output.weight", tensors["token_embd.weight"]).T.astype(np.float64)
    return LlamaOutput(logits, np.stack(inputs), hidden)


def _layer(tensors: dict[str, npt.NDArray[Any]], layer: int) -> dict[str, Array]:
    prefix = f"blk.{layer}."
    return {name.removeprefix(prefix): t.astype(np.float64) for name, t in tensors.items() if name.startswith(prefix)}


def _attend(
    weights: dict[str, Array], shape: Shape, x: Array, positions: npt.ArrayLike, mask: npt.NDArray[np.bool_]
) -> Array:
    rope = ROPE[shape.arch]
    parts = []
    for part in "qkv":
        y = x @ weights[f"attn_{part}.weight"].T + weights.get(f"attn_{part}.bias", 0.0)
        parts.append(y.reshape(len(x), -1, shape.head_dim))
    q, k, v = parts
    mixed = attention(rope(q, positions, shape.rope_base), rope(k, positions, shape.rope_base), v, mask)
    out: Array = mixed @ weights["attn_output.weight"].T
    return out
