"""The pieces that llama-like networks share, in float64: norm, rotary embedding, grouped attention, gated ffn.

From the papers: RMSNorm (Zhang and Sennrich 2019), RoFormer (Su et al. 2021), GQA (Ainslie et al. 2023), SwiGLU
(Shazeer 2020).
"""

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Weight = npt.NDArray[Any]  # as stored, float32 as a rule


def rms_norm(x: Array, weight: Weight, eps: float) -> Array:
    """x [n, width] scaled to unit root mean square, times weight [width]."""
    scaled: Array = x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps) * weight
    return scaled


def rope_pairs(x: Array, positions: npt.ArrayLike, base: float, divisors: npt.ArrayLike = 1.0) -> Array:
    """Rotate neighbouring entries (0, 1), (2, 3), ... of x [n, heads, dim]: ggml's NORM type."""
    cos, sin = _angles(x, positions, base, divisors)
    out = np.empty_like(x)
    out[..., 0::2] = x[..., 0::2] * cos - x[..., 1::2] * sin
    out[..., 1::2] = x[..., 0::2] * sin + x[..., 1::2] * cos
    return out


def rope_halves(x: Array, positions: npt.ArrayLike, base: float, divisors: npt.ArrayLike = 1.0) -> Array:
    """Rotate entry i with entry i + dim/2 of x [n, heads, dim]: ggml's NEOX type, Hugging Face's rotate_half."""
    cos, sin = _angles(x, positions, base, divisors)
    first, second = np.split(x, 2, axis=-1)
    return np.concatenate([first * cos - second * sin, first * sin + second * cos], axis=-1)


def attention(q: Array, k: Array, v: Array, mask: npt.NDArray[np.bool_]) -> Array:
    """q [n, heads, dim], k and v [m, kv_heads, dim], mask [n, m] -> [n, heads * dim]. No row may see nothing."""
    group = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, group, axis=1), np.repeat(v, group, axis=1)
    scores = np.einsum("nhd,mhd->hnm", q, k) / np.sqrt(q.shape[-1])
    scores = np.where(mask[None], scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    mixed: Array = np.einsum("hnm,mhd->nhd", weights, v).reshape(len(q), -1)
    return mixed


def gated_ffn(x: Array, gate: Weight, up: Weight, down: Weight) -> Array:
    """down(silu(gate x) * up x); x [n, width], weights [out, in]."""
    g = x @ gate.T
    out: Array = (g / (1 + np.exp(-g)) * (x @ up.T)) @ down.T
    return out


def rope_divisors(config: dict[str, Any], dim: int) -> Array:
    """[dim / 2]: what rope_scaling of a Hugging Face config divides the frequencies by; llama3 as in Transformers."""
    scaling = config.get("rope_scaling") or {}
    kind = scaling.get("rope_type", scaling.get("type"))
    if kind == "llama3":
        frequencies = config["rope_theta"] ** (-np.arange(0, dim, 2) / dim)
        return np.array([_llama3_divisor(frequency, scaling) for frequency in frequencies])
    return np.full(dim // 2, scaling["factor"] if kind == "linear" else 1.0)


def _llama3_divisor(frequency: float, scaling: dict[str, Any]) -> float:
    wavelength, context = 2 * np.pi / frequency, scaling["original_max_position_embeddings"]
    low, high, factor = scaling["low_freq_factor"], scaling["high_freq_factor"], scaling["factor"]
    if wavelength < context / high:
        return 1.0
    if wavelength > context / low:
        return float(factor)
    smooth = (context / wavelength - low) / (high - low)
    return float(1 / ((1 - smooth) / factor + smooth))


def _angles(x: Array, positions: npt.ArrayLike, base: float, divisors: npt.ArrayLike) -> tuple[Array, Array]:
    dim = x.shape[-1]
    frequencies = base ** (-np.arange(0, dim, 2) / dim) / divisors
    angles = np.asarray(positions, dtype=np.float64)[:, None, None] * frequencies
    return np.cos(angles), np.sin(angles)
