"""A draft network straight from a checkpoint's tensors, in Hugging Face's form: rotary halves, d2t as offsets.

Written from the producers' definitions: EAGLE (arXiv 2401.15077), EAGLE-3 (2503.01840), EAGLE-3.1 (2605.09992).
No cache: every call runs all rows.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from .layers import Array, attention, gated_ffn, rms_norm, rope_halves

EPS = 1e-6
INPUT_NORMS = ("embedding_layernorm", "hidden_states_layernorm")


class CheckpointNet:
    """`draft`: config, state, arch, prefixes, head_dim and fc of a tiny.layouts.Draft; the matrices are the target's.

    divisors [rotated / 2], magnitude: of the rotation, where the config has a scaling; rotated: 0 for whole heads.
    """

    divisors: npt.ArrayLike = 1.0
    magnitude = 1.0
    rotated = 0

    def __init__(self, draft: Any, embeddings: npt.NDArray[Any], head: npt.NDArray[Any]) -> None:
        self.draft, self.config = draft, {**draft.config, **draft.config.get("transformer_layer_config", {})}
        self.w = {name: v.astype(np.float64) for name, v in draft.state.items() if v.dtype.kind == "f"}
        self.embeddings = embeddings.astype(np.float64)
        own = self.w.get("lm_head.weight") if draft.arch == "eagle3" else None
        self.head = head.astype(np.float64) if own is None else own
        self.target_ids = np.arange(len(self.head)) + draft.state.get("d2t", 0)

    def encode(self, features: Array) -> Array:
        """features [n, count x width] -> [n, hidden]; EAGLE-1 takes them as they are."""
        if self.draft.arch == "eagle" or "fc.weight" not in self.w:
            return features
        if "input_norm.weight" in self.w:
            features = self._norm("input_norm", features)
        if "fc_norm.0.weight" in self.w:
            count = len(self.draft.layers)
            parts = np.split(features, count, axis=1)
            features = np.concatenate([self._norm(f"fc_norm.{i}", part) for i, part in enumerate(parts)], axis=1)
        return self._linear("fc", features)

    def run(self, tokens: npt.ArrayLike, g: Array) -> tuple[Array, Array]:
        """Rows (token, feature) at positions 0, 1, ...: (what is fed back [n, hidden], draft logits)."""
        x = self._first(self.embeddings[np.asarray(tokens)], g)
        for prefix in self.draft.prefixes[1:]:
            name = "input_layernorm" if f"{prefix}input_layernorm.weight" in self.w else "hidden_norm"
            x = self._layer(prefix, self._norm(prefix + name, x), x)
        last = next((n for n in ("norm", "pre_lm_head_layernorm") if f"{n}.weight" in self.w), None)
        normed = x if last is None else self._norm(last, x)
        return normed if self.config.get("norm_output") else x, normed @ self.head.T

    def _first(self, embedded: Array, g: Array) -> Array:
        prefix = self.draft.prefixes[0]
        if self.draft.arch == "eagle":
            both = zip(INPUT_NORMS, (embedded, g), strict=True)
            parts = [self._norm(name, x) if f"{name}.weight" in self.w else x for name, x in both]
            x = self._linear(self.draft.fc, np.concatenate(parts, axis=1))
            return self._layer(prefix, x, x)
        feature = self._norm(prefix + "hidden_norm", g)
        inputs = np.concatenate([self._norm(prefix + "input_layernorm", embedded), feature], axis=1)
        return self._layer(prefix, inputs, feature if self.config.get("norm_before_residual") else g)

    def _layer(self, prefix: str, x: Array, residual: Array) -> Array:
        at, base = np.arange(len(x)), self.config.get("rope_theta", 0)
        base = base or self.config.get("rope_parameters", {}).get("rope_theta", 10000.0)
        q, k, v = (
            self._linear(f"{prefix}self_attn.{part}_proj", x).reshape(len(x), -1, self.draft.head_dim) for part in "qkv"
        )
        if f"{prefix}self_attn.q_norm.weight" in self.w:
            q, k = self._norm(prefix + "self_attn.q_norm", q), self._norm(prefix + "self_attn.k_norm", k)
        mixed = attention(self._rope(q, at, base), self._rope(k, at, base), v, at[:, None] >= at)
        x = residual + self._linear(prefix + "self_attn.o_proj", mixed)
        return x + self._ffn(prefix, self._norm(prefix + "post_attention_layernorm", x))

    def _rope(self, x: Array, at: Array, base: float) -> Array:
        size = self.rotated or x.shape[-1]
        turned = self.magnitude * rope_halves(x[..., :size], at, base, self.divisors)
        return np.concatenate([turned, x[..., size:]], axis=-1)

    def _ffn(self, prefix: str, x: Array) -> Array:
        if f"{prefix}mlp.gate_proj.bias" not in self.w:
            return gated_ffn(x, *(self.w[f"{prefix}mlp.{part}_proj.weight"] for part in ("gate", "up", "down")))
        gate, up = (self._linear(f"{prefix}mlp.{part}_proj", x) for part in ("gate", "up"))
        return self._linear(f"{prefix}mlp.down_proj", gate / (1 + np.exp(-gate)) * up)

    def _norm(self, name: str, x: Array) -> Array:
        return rms_norm(x, self.w[f"{name}.weight"], EPS)

    def _linear(self, name: str, x: Array) -> Array:
        out: Array = x @ self.w[f"{name}.weight"].T + self.w.get(f"{name}.bias", 0.0)
        return out
