"""Draft networks of both architectures in numpy, as docs/head-format.md defines them, from GGUF names and keys.

Rotary pairs, d2t as absolute ids. YaRN after Peng et al. 2023 (arXiv 2309.00071). Keeps its own K/V as growing arrays.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from .layers import Array, attention, rms_norm, rope_pairs

Weights = dict[str, npt.NDArray[Any]]


class DraftNet:
    """One draft sequence. `embeddings` [n_vocab, n_embd] and `head` [n_vocab, n_embd] are the target's."""

    def __init__(self, arch: str, keys: dict[str, Any], tensors: Weights, embeddings: Array, head: Array) -> None:
        self.keys = keys
        self.fuses_inside = arch == "eagle"
        self.w = {name: t.astype(np.float64) for name, t in tensors.items() if t.dtype.kind == "f"}
        self.embeddings = self.w.get("token_embd.weight", np.asarray(embeddings, dtype=np.float64))
        self.head = self.w.get("output.weight", np.asarray(head, dtype=np.float64))
        self.target_ids = tensors.get("d2t", np.arange(len(self.head)))
        self.eps = keys["attention.layer_norm_rms_epsilon"]
        self.truncate(0)

    @property
    def length(self) -> int:
        """Rows in the K/V."""
        return len(self.cache[0][0])

    def truncate(self, length: int) -> None:
        """Keep the first `length` rows of the K/V; 0 starts anew."""
        if length == 0:
            empty = np.zeros((0, self.keys["attention.head_count_kv"], self.keys["attention.key_length"]))
            self.cache = [(empty, empty)] * self.keys["block_count"]
        self.cache = [(k[:length], v[:length]) for k, v in self.cache]

    def encode(self, features: npt.ArrayLike) -> Array:
        """features [n, n_features * n_embd_target] -> what decode takes, [n, n_embd]."""
        x = np.asarray(features, dtype=np.float64)
        if self.fuses_inside:
            return x
        x = self._norm("enc.output_norm", x)
        if "fc_norm.weight" in self.w:
            norms = self.w["fc_norm.weight"]
            parts = np.split(x, len(norms), axis=1)
            x = np.concatenate([rms_norm(p, n, self.eps) for p, n in zip(parts, norms, strict=True)], axis=1)
        return self._linear("fc", x) if "fc.weight" in self.w else x

    def decode(
        self,
        tokens: npt.ArrayLike,
        g: npt.ArrayLike,
        positions: npt.ArrayLike,
        mask: npt.NDArray[np.bool_] | None = None,
    ) -> tuple[Array, Array]:
        """Run rows (token, feature) and append them to the K/V.

        mask [n, past + n] over its rows, causal by default. Returns (next feature [n, n_embd], draft logits).
        """
        at, past = np.asarray(positions), self.length
        see = np.tril(np.ones((len(at), past + len(at)), dtype=np.bool_), past) if mask is None else mask
        feature = np.asarray(g, dtype=np.float64)
        normed = self._norm("blk.0.attn_norm_2", feature)
        both = np.concatenate([self._norm("blk.0.attn_norm", self.embeddings[np.asarray(tokens)]), normed], axis=1)
        if self.fuses_inside:
            both = residual = self._linear("fc", both)
        else:
            residual = normed if self.keys.get("norm_before_residual") else feature
        x = self._layer(0, both, residual, at, see)
        for layer in range(1, self.keys["block_count"]):
            x = self._layer(layer, self._norm(f"blk.{layer}.attn_norm", x), x, at, see)
        out = self._norm("output_norm", x)
        return out if self.keys.get("norm_output") else x, out @ self.head.T

    def _norm(self, name: str, x: Array) -> Array:
        weight = self.w.get(name + ".weight")
        return x if weight is None else rms_norm(x, weight, self.eps)

    def _linear(self, name: str, x: Array) -> Array:
        out: Array = x @ self.w[name + ".weight"].T + self.w.get(name + ".bias", 0.0)
        return out

    def _layer(self, layer: int, x: Array, residual: Array, at: npt.ArrayLike, see: npt.NDArray[np.bool_]) -> Array:
        prefix = f"blk.{layer}."
        heads = (len(x), -1, self.keys["attention.key_length"])
        q, k, v = (self._linear(f"{prefix}attn_{part}", x).reshape(heads) for part in "qkv")
        q = self._rope(self._norm(prefix + "attn_q_norm", q), at)
        k = self._rope(self._norm(prefix + "attn_k_norm", k), at)
        old_k, old_v = self.cache[layer]
        k, v = np.concatenate([old_k, k]), np.concatenate([old_v, v])
        self.cache[layer] = (k, v)
        x = residual + self._linear(prefix + "attn_output", attention(q, k, v, see))
        normed = self._norm(prefix + "ffn_norm", x)
        gate, up = self._linear(prefix + "ffn_gate", normed), self._linear(prefix + "ffn_up", normed)
        return x + self._linear(prefix + "ffn_down", gate / (1 + np.exp(-gate)) * up)

    def _rope(self, x: Array, at: npt.ArrayLike) -> Array:
        size, base = self.keys["rope.dimension_count"], self.keys["rope.freq_base"]
        divisors = self.w.get("rope_freqs.weight", 1.0) * self.keys.get("rope.scaling.factor", 1.0)
        magnitude = 1.0
        if self.keys.get("rope.scaling.type") == "yarn":
            factor = self.keys["rope.scaling.factor"]
            divisors = yarn_divisors(size, base, factor, self.keys["rope.scaling.original_context_length"])
            magnitude = 0.1 * np.log(factor) + 1
        turned = magnitude * rope_pairs(x[..., :size], at, base, divisors)
        return np.concatenate([turned, x[..., size:]], axis=-1)


def yarn_divisors(size: int, base: float, factor: float, context: int, fast: float = 32, slow: float = 1) -> Array:
    """[size / 2]: what YaRN divides the frequencies by: 1 for those that turn often within the context, else factor."""

    def dimension(turns: float) -> float:
        return float(size * np.log(context / (turns * 2 * np.pi)) / (2 * np.log(base)))

    low, high = max(np.floor(dimension(fast)), 0), min(np.ceil(dimension(slow)), size - 1)
    kept = 1 - np.clip((np.arange(size // 2) - low) / max(high - low, 0.001), 0, 1)
    divisors: Array = 1 / ((1 - kept) / factor + kept)
    return divisors
