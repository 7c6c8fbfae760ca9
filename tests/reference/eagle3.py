"""The EAGLE-3 draft network (Li et al. 2025) in numpy, from a SpecForge-layout state dict.

Hugging Face rope layout, d2t as offsets. Knows nothing of GGUF. Keeps its own K/V as growing arrays.
"""

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from .layers import Array, attention, gated_ffn, rms_norm, rope_halves


class HeadSizes(Protocol):
    """What the network reads of a shape; `tiny.HeadShape` has it."""

    @property
    def head_dim(self) -> int: ...
    @property
    def n_vocab(self) -> int: ...
    @property
    def rope_base(self) -> float: ...
    @property
    def eps(self) -> float: ...
    @property
    def norm_before_residual(self) -> bool: ...
    @property
    def norm_before_fc(self) -> bool: ...


class Eagle3:
    """One draft sequence. `embeddings` [n_vocab, n_embd]: the target's table, for a state that has none of its own.

    `divisors` [head_dim / 2] divide the rotary frequencies.
    """

    def __init__(
        self,
        state: dict[str, npt.NDArray[Any]],
        sizes: HeadSizes,
        embeddings: npt.NDArray[Any] | None = None,
        divisors: npt.ArrayLike = 1.0,
    ) -> None:
        self.sizes = sizes
        self.divisors = divisors
        self.weights = {k: v.astype(np.float64) for k, v in state.items() if v.dtype.kind == "f"}
        own = self.weights.get("embed_tokens.weight")
        if own is None and embeddings is None:
            raise ValueError("the state has no embed_tokens.weight: pass the target's embeddings")
        self.embeddings = own if own is not None else np.asarray(embeddings, dtype=np.float64)
        self.head = self.weights["lm_head.weight"]
        offsets = state.get("d2t", np.zeros(len(self.head), dtype=np.int64))
        self.target_ids = np.arange(len(self.head)) + offsets.astype(np.int64)
        self.truncate(0)

    @property
    def length(self) -> int:
        """Rows in the K/V."""
        return len(self.keys)

    def truncate(self, length: int) -> None:
        """Keep the first `length` rows of the K/V; 0 starts anew."""
        if length == 0:
            self.keys = self.values = np.zeros((0, 0, 0))
        self.keys, self.values = self.keys[:length], self.values[:length]

    def encode(self, features: npt.ArrayLike) -> Array:
        """features [n, 3 * n_embd_target] (layer inputs concatenated low, mid, high) -> g [n, n_embd]."""
        x = np.asarray(features, dtype=np.float64)
        if self.sizes.norm_before_fc:
            x = rms_norm(x, self.weights["input_norm.weight"], self.sizes.eps)
        g: Array = x @ self.weights["fc.weight"].T
        return g

    def decode(
        self,
        tokens: npt.ArrayLike,
        g: npt.ArrayLike,
        positions: npt.ArrayLike,
        mask: npt.NDArray[np.bool_] | None = None,
    ) -> tuple[Array, Array]:
        """Run rows (token embedding, g) and append them to the K/V.

        tokens [n] are target ids, g [n, n_embd] features or parents' outputs, mask [n, past + n] over the K/V *rows*
        (causal in row order by default). Returns (prenorm hidden [n, n_embd], draft logits [n, n_draft_vocab]).
        """
        w, prefix, eps = self.weights, "midlayer.", self.sizes.eps
        hidden = np.asarray(g, dtype=np.float64)
        normed = rms_norm(hidden, w[prefix + "hidden_norm.weight"], eps)
        embedded = rms_norm(self.embeddings[np.asarray(tokens)], w[prefix + "input_layernorm.weight"], eps)
        x = np.concatenate([embedded, normed], axis=-1)
        residual = normed if self.sizes.norm_before_residual else hidden
        h = residual + self._attend(x, positions, mask)
        mlp = [w[f"{prefix}mlp.{part}_proj.weight"] for part in ("gate", "up", "down")]
        out = h + gated_ffn(rms_norm(h, w[prefix + "post_attention_layernorm.weight"], eps), *mlp)
        return out, rms_norm(out, w["norm.weight"], eps) @ self.head.T

    def scatter(self, logits: Array) -> Array:
        """Draft logits [n, n_draft_vocab] -> [n, n_vocab] over target ids, -inf where the draft has no token."""
        full = np.full((len(logits), self.sizes.n_vocab), -np.inf)
        full[:, self.target_ids] = logits
        return full

    def _attend(self, x: Array, positions: npt.ArrayLike, mask: npt.NDArray[np.bool_] | None) -> Array:
        w, dim, base = self.weights, self.sizes.head_dim, self.sizes.rope_base
        q, k, v = ((x @ w[f"midlayer.self_attn.{p}_proj.weight"].T).reshape(len(x), -1, dim) for p in "qkv")
        past = self.length
        q, k = (rope_halves(part, positions, base, self.divisors) for part in (q, k))
        self.keys = np.concatenate([self.keys, k]) if past else k
        self.values = np.concatenate([self.values, v]) if past else v
        if mask is None:
            mask = np.tril(np.ones((len(x), past + len(x)), dtype=np.bool_), past)
        mixed = attention(q, self.keys, self.values, mask)
        out: Array = mixed @ w["midlayer.self_attn.o_proj.weight"].T
        return out
