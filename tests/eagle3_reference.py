"""Two independent float64 forward passes of an EAGLE-3 draft: from checkpoint tensors and from the converted GGUF.

The first follows SafeAILab eagle/model/cnets.py (rotary halves, offsets in d2t), the second llama.cpp's
src/models/eagle3.cpp (rotary pairs, absolute d2t, frequency factors). They share no weights and no rotary code.
"""

import math
from typing import Any

import gguf
import numpy as np

Array = np.ndarray


def checkpoint_logits(config: dict[str, Any], weights: dict[str, Array], tokens: Array, features: Array) -> Array:
    """Draft logits [n, vocab], -inf where the draft has no token; `weights` includes the embeddings."""
    prefix = "midlayer." if "midlayer.hidden_norm.weight" in weights else "layers.0."
    w = {name: value.astype(np.float64) for name, value in weights.items()}
    eps, heads, kv_heads = config["rms_norm_eps"], config["num_attention_heads"], config["num_key_value_heads"]
    dim = config.get("head_dim") or config["hidden_size"] // heads
    if "input_norm.weight" in w:
        features = _norm(features, w["input_norm.weight"], eps)
    fused = features @ w["fc.weight"].T
    hidden = _norm(fused, w[f"{prefix}hidden_norm.weight"], eps)
    embedded = _norm(w["embed_tokens.weight"][tokens], w[f"{prefix}input_layernorm.weight"], eps)
    x = np.concatenate([embedded, hidden], axis=1)
    q = _halves(_heads(x @ w[f"{prefix}self_attn.q_proj.weight"].T, heads), config, dim)
    k = _halves(_heads(x @ w[f"{prefix}self_attn.k_proj.weight"].T, kv_heads), config, dim)
    v = _heads(x @ w[f"{prefix}self_attn.v_proj.weight"].T, kv_heads)
    residual = hidden if config.get("norm_before_residual") else fused
    h = residual + _attend(q, k, v) @ w[f"{prefix}self_attn.o_proj.weight"].T
    y = _norm(h, w[f"{prefix}post_attention_layernorm.weight"], eps)
    gate = y @ w[f"{prefix}mlp.gate_proj.weight"].T
    h = (
        h
        + (gate / (1 + np.exp(-gate)) * (y @ w[f"{prefix}mlp.up_proj.weight"].T)) @ w[f"{prefix}mlp.down_proj.weight"].T
    )
    small = _norm(h, w["norm.weight"], eps) @ w["lm_head.weight"].T
    logits = np.full((len(tokens), config["vocab_size"]), -np.inf)
    rows = np.arange(small.shape[1]) + (weights.get("d2t", 0))
    logits[:, rows] = small
    return logits


def gguf_logits(reader: gguf.GGUFReader, embeddings: Array, tokens: Array, features: Array) -> Array:
    """The same from a converted file; `embeddings` stand in for the target's where the file has none."""
    meta = {key: field.contents() for key, field in reader.fields.items()}
    w = {t.name: _values(t) for t in reader.tensors}
    eps = meta["eagle3.attention.layer_norm_rms_epsilon"]
    heads, kv_heads = meta["eagle3.attention.head_count"], meta["eagle3.attention.head_count_kv"]
    if meta["eagle3.norm_before_fc"]:
        features = _norm(features, w["enc.output_norm.weight"], eps)
    g = features @ w["fc.weight"].T
    g_norm = _norm(g, w["blk.0.attn_norm_2.weight"], eps)
    rows = w.get("token_embd.weight", embeddings)[tokens]
    x = np.concatenate([_norm(rows, w["blk.0.attn_norm.weight"], eps), g_norm], axis=1)
    q = _pairs(_heads(x @ w["blk.0.attn_q.weight"].T, heads), meta, w.get("rope_freqs.weight"))
    k = _pairs(_heads(x @ w["blk.0.attn_k.weight"].T, kv_heads), meta, w.get("rope_freqs.weight"))
    v = _heads(x @ w["blk.0.attn_v.weight"].T, kv_heads)
    h = (g_norm if meta["eagle3.norm_before_residual"] else g) + _attend(q, k, v) @ w["blk.0.attn_output.weight"].T
    y = _norm(h, w["blk.0.ffn_norm.weight"], eps)
    gate = y @ w["blk.0.ffn_gate.weight"].T
    h = h + (gate / (1 + np.exp(-gate)) * (y @ w["blk.0.ffn_up.weight"].T)) @ w["blk.0.ffn_down.weight"].T
    small = _norm(h, w["output_norm.weight"], eps) @ w["output.weight"].T
    logits = np.full((len(tokens), meta["eagle3.vocab_size"]), -np.inf)
    logits[:, w["d2t"] if "d2t" in w else slice(None)] = small
    return logits


def _values(tensor: Any) -> Array:
    if tensor.tensor_type == gguf.GGMLQuantizationType.I64:
        return np.asarray(tensor.data)
    return gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float64)


def _norm(x: Array, weight: Array, eps: float) -> Array:
    return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + eps) * weight


def _heads(x: Array, n: int) -> Array:
    return x.reshape(len(x), n, -1)


def _attend(q: Array, k: Array, v: Array) -> Array:
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat(group, axis=1), v.repeat(group, axis=1)
    scores = np.einsum("ihd,jhd->hij", q, k) / math.sqrt(q.shape[2])
    scores = np.where(np.tri(len(q), dtype=bool), scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    return np.einsum("hij,jhd->ihd", weights, v).reshape(len(q), -1)


def _halves(x: Array, config: dict[str, Any], dim: int) -> Array:
    """Hugging Face's order: element i turns with element i + dim / 2; llama3 as in Transformers' rope utilities."""
    inverse = 1 / config["rope_theta"] ** (np.arange(0, dim, 2) / dim)
    scaling = config.get("rope_scaling") or {}
    if scaling.get("rope_type", scaling.get("type")) == "linear":
        inverse = inverse / scaling["factor"]
    if scaling.get("rope_type") == "llama3":
        inverse = np.array([_llama3(f, scaling) for f in inverse])
    angle = np.arange(len(x))[:, None, None] * inverse
    low, high = x[..., : dim // 2], x[..., dim // 2 :]
    return np.concatenate(
        [low * np.cos(angle) - high * np.sin(angle), high * np.cos(angle) + low * np.sin(angle)], axis=-1
    )


def _llama3(frequency: float, scaling: dict[str, Any]) -> float:
    wavelength, context = 2 * math.pi / frequency, scaling["original_max_position_embeddings"]
    if wavelength < context / scaling["high_freq_factor"]:
        return frequency
    if wavelength > context / scaling["low_freq_factor"]:
        return frequency / scaling["factor"]
    smooth = context / wavelength - scaling["low_freq_factor"]
    smooth /= scaling["high_freq_factor"] - scaling["low_freq_factor"]
    return (1 - smooth) * frequency / scaling["factor"] + smooth * frequency


def _pairs(x: Array, meta: dict[str, Any], factors: Array | None) -> Array:
    """llama.cpp's rope type NORM: element 2i turns with element 2i + 1."""
    dim = meta["eagle3.rope.dimension_count"]
    inverse = meta["eagle3.rope.freq_base"] ** (-np.arange(0, dim, 2) / dim) / meta.get(
        "eagle3.rope.scaling.factor", 1.0
    )
    inverse = inverse if factors is None else inverse / factors
    pairs = x.reshape(*x.shape[:2], -1, 2)
    turned = (pairs[..., 0] + 1j * pairs[..., 1]) * np.exp(1j * np.arange(len(x))[:, None, None] * inverse)
    return np.stack([turned.real, turned.imag], axis=-1).reshape(x.shape)
