"""Random weights of tiny targets under their GGUF names, numpy [out, in] (row = output).

Each tensor has its own generator (seed and name), so a shape change of one leaves the others alone.
Scales keep logits near a standard deviation of 3 and attention scores near 2: sharp enough to have no ties.
"""

import zlib

import numpy as np
import numpy.typing as npt
from gguf import GGMLQuantizationType
from gguf.quants import dequantize, quantize

from .shapes import TIED, TargetShape
from .tokenizer import SPECIALS

Tensor = npt.NDArray[np.float32]
Tensors = dict[str, Tensor]
SHARPNESS = 1.5  # standard deviation of query and key entries
QUANTS = {"q4_1": GGMLQuantizationType.Q4_1, "q8_0": GGMLQuantizationType.Q8_0}
LOGITS = 3.0  # standard deviation of logits


def normal(seed: int, name: str, shape: tuple[int, ...], std: float, mean: float = 0.0) -> Tensor:
    """Gaussian float32 tensor that depends on nothing but its arguments."""
    rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
    return (mean + std * rng.standard_normal(shape)).astype(np.float32)


def successors(n_vocab: int, seed: int) -> npt.NDArray[np.int64]:
    """next[t], int64[n_vocab]: one cycle through all tokens but the specials, which map to themselves."""
    ids = np.array([i for i in range(n_vocab) if not 256 <= i < 256 + len(SPECIALS)])
    order = np.random.default_rng([seed, 1]).permutation(ids)
    following = np.arange(n_vocab)
    following[order] = np.roll(order, -1)
    return following


class _Maker:
    def __init__(self, shape: TargetShape) -> None:
        self.shape = shape
        self.tensors: Tensors = {}

    def matrix(self, name: str, n_in: int, n_out: int, gain: float = 1.0) -> None:
        self.tensors[name] = normal(self.shape.seed, name, (n_out, n_in), gain / np.sqrt(n_in))

    def stack(self, name: str, sizes: tuple[int, int, int], gain: float = 1.0) -> None:
        self.tensors[name] = normal(self.shape.seed, name, sizes, gain / np.sqrt(sizes[2]))

    def norm(self, name: str, size: int, mean: float = 1.0) -> None:
        self.tensors[name] = normal(self.shape.seed, name, (size,), 0.1 * mean, mean)

    def bias(self, name: str, size: int) -> None:
        self.tensors[name] = normal(self.shape.seed, name, (size,), 0.3)


def target_tensors(shape: TargetShape) -> Tensors:
    """All tensors of a target as float32; `shape.dtype` rounds the matrices."""
    make = _Maker(shape)
    _ends(make)
    for layer in range(shape.n_layer):
        prefix = f"blk.{layer}."
        make.norm(prefix + "attn_norm.weight", shape.n_embd)
        (_latent_attention if shape.arch == "deepseek2" else _attention)(make, prefix)
        make.norm(prefix + "ffn_norm.weight", shape.n_embd)
        if shape.arch == "llama4" and layer % 2:
            _experts(make, prefix)
        else:
            _ffn(make, prefix)
    if shape.dtype == "f16":
        return {k: v.astype(np.float16).astype(np.float32) if v.ndim > 1 else v for k, v in make.tensors.items()}
    kind = QUANTS.get(shape.dtype)
    if kind is not None:
        return {k: dequantize(quantize(v, kind), kind) if v.ndim > 1 else v for k, v in make.tensors.items()}
    return make.tensors


def _ends(make: _Maker) -> None:
    shape = make.shape
    tied = shape.arch in TIED
    # gemma multiplies embeddings by sqrt(n_embd) and reuses them as the output matrix
    std = 1 / np.sqrt(shape.n_embd) if tied else 1.0
    embeddings = normal(shape.seed, "token_embd.weight", (shape.n_vocab, shape.n_embd), std)
    make.tensors["token_embd.weight"] = embeddings
    make.norm("output_norm.weight", shape.n_embd, LOGITS if tied else 1.0)
    if tied:
        return
    make.matrix("output.weight", shape.n_embd, shape.n_vocab, LOGITS)
    if shape.bigram:
        noise = make.tensors["output.weight"]
        signal = np.empty_like(noise)
        signal[successors(shape.n_vocab, shape.seed)] = embeddings * LOGITS / np.sqrt(shape.n_embd)
        make.tensors["output.weight"] = shape.bigram * signal + np.float32(np.sqrt(1 - shape.bigram**2)) * noise


def _attention(make: _Maker, prefix: str) -> None:
    shape = make.shape
    n_q, n_kv = shape.n_head * shape.head_dim, shape.n_head_kv * shape.head_dim
    normed = shape.arch == "gemma3"
    for part, size in (("q", n_q), ("k", n_kv)):
        make.matrix(f"{prefix}attn_{part}.weight", shape.n_embd, size, 1.0 if normed else SHARPNESS)
        if normed:
            make.norm(f"{prefix}attn_{part}_norm.weight", shape.head_dim, SHARPNESS)
    make.matrix(prefix + "attn_v.weight", shape.n_embd, n_kv)
    make.matrix(prefix + "attn_output.weight", n_q, shape.n_embd, shape.layer_gain)
    if shape.arch == "qwen2":
        for part, size in (("q", n_q), ("k", n_kv), ("v", n_kv)):
            make.bias(f"{prefix}attn_{part}.bias", size)
    if shape.arch in TIED:
        make.norm(prefix + "post_attention_norm.weight", shape.n_embd, 0.5 * shape.layer_gain)
        make.norm(prefix + "post_ffw_norm.weight", shape.n_embd, 0.5 * shape.layer_gain)


def _latent_attention(make: _Maker, prefix: str) -> None:
    """MLA with a query and a key/value rank of 2 * head_dim, rotary part 2 * head_dim, plain part head_dim."""
    shape = make.shape
    rank, rope, plain, value = mla_sizes(shape)
    make.matrix(prefix + "attn_q_a.weight", shape.n_embd, rank)
    make.norm(prefix + "attn_q_a_norm.weight", rank)
    make.matrix(prefix + "attn_q_b.weight", rank, shape.n_head * (plain + rope), SHARPNESS)
    make.matrix(prefix + "attn_kv_a_mqa.weight", shape.n_embd, rank + rope, SHARPNESS)
    make.norm(prefix + "attn_kv_a_norm.weight", rank)
    make.stack(prefix + "attn_k_b.weight", (shape.n_head, rank, plain), SHARPNESS)
    make.stack(prefix + "attn_v_b.weight", (shape.n_head, value, rank))
    make.matrix(prefix + "attn_output.weight", shape.n_head * value, shape.n_embd, shape.layer_gain)


def mla_sizes(shape: TargetShape) -> tuple[int, int, int, int]:
    """(low rank, rotary part, plain part of a key, value size) of the tiny deepseek2."""
    return 2 * shape.head_dim, 2 * shape.head_dim, shape.head_dim, shape.head_dim


def _ffn(make: _Maker, prefix: str, suffix: str = "") -> None:
    shape = make.shape
    make.matrix(f"{prefix}ffn_gate{suffix}.weight", shape.n_embd, shape.n_ff)
    make.matrix(f"{prefix}ffn_up{suffix}.weight", shape.n_embd, shape.n_ff)
    make.matrix(f"{prefix}ffn_down{suffix}.weight", shape.n_ff, shape.n_embd, shape.layer_gain)


def _experts(make: _Maker, prefix: str) -> None:
    shape = make.shape
    make.matrix(prefix + "ffn_gate_inp.weight", shape.n_embd, 2)
    make.stack(prefix + "ffn_gate_exps.weight", (2, shape.n_ff, shape.n_embd))
    make.stack(prefix + "ffn_up_exps.weight", (2, shape.n_ff, shape.n_embd))
    make.stack(prefix + "ffn_down_exps.weight", (2, shape.n_embd, shape.n_ff), shape.layer_gain)
    _ffn(make, prefix, "_shexp")
