"""The EAGLE-3 draft network from a converted GGUF, read as llama.cpp's src/models/eagle3.cpp reads it.

Rotary pairs with frequency factors, d2t as absolute ids: a checkpoint has both in another form. No cache.
"""

from typing import Any

import gguf
import numpy as np
import numpy.typing as npt

from .layers import Array, attention, gated_ffn, rms_norm, rope_pairs
from .masks import causal_mask


def head_file_logits(reader: gguf.GGUFReader, embeddings: Array, tokens: npt.ArrayLike, features: Array) -> Array:
    """Draft logits [n, vocab], -inf where the draft has no token; `embeddings` stand in where the file has none."""
    meta = {key.removeprefix("eagle3."): field.contents() for key, field in reader.fields.items()}
    w = {tensor.name.removeprefix("blk.0."): _values(tensor) for tensor in reader.tensors}
    eps = meta["attention.layer_norm_rms_epsilon"]
    if meta["norm_before_fc"]:
        features = rms_norm(features, w["enc.output_norm.weight"], eps)
    g = features @ w["fc.weight"].T
    normed = rms_norm(g, w["attn_norm_2.weight"], eps)
    embedded = rms_norm(w.get("token_embd.weight", embeddings)[np.asarray(tokens)], w["attn_norm.weight"], eps)
    mixed = _attend(w, meta, np.concatenate([embedded, normed], axis=1))
    h = (normed if meta["norm_before_residual"] else g) + mixed
    ffn = (w[f"ffn_{part}.weight"] for part in ("gate", "up", "down"))
    h = h + gated_ffn(rms_norm(h, w["ffn_norm.weight"], eps), *ffn)
    logits = np.full((len(h), meta["vocab_size"]), -np.inf)
    logits[:, w.get("d2t", slice(None))] = rms_norm(h, w["output_norm.weight"], eps) @ w["output.weight"].T
    return logits


def _attend(w: dict[str, Any], meta: dict[str, Any], x: Array) -> Array:
    at = np.arange(len(x))
    q, k, v = ((x @ w[f"attn_{part}.weight"].T).reshape(len(x), -1, meta["rope.dimension_count"]) for part in "qkv")
    divisors = w.get("rope_freqs.weight", 1.0) * meta.get("rope.scaling.factor", 1.0)
    q, k = (rope_pairs(part, at, meta["rope.freq_base"], divisors) for part in (q, k))
    out: Array = attention(q, k, v, causal_mask(at)) @ w["attn_output.weight"].T
    return out


def _values(tensor: Any) -> npt.NDArray[Any]:
    if tensor.tensor_type == gguf.GGMLQuantizationType.I64:
        return np.asarray(tensor.data)
    return gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float64)
