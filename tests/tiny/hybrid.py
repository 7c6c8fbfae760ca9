"""Tiny random targets with recurrent layers: lfm2, qwen35, nemotron_h (llama.cpp rolls their states back), jamba and
qwen3next (it does not). Half of the layers are recurrent; attention has four heads of 16, two of keys.

    target = write_hybrid(tmp_path / "t.gguf", "lfm2", seed=3)                 # TinyHybrid(path, arch)
    target = write_hybrid(tmp_path / "t.gguf", "lfm2", sliding_window=16)      # further keys of the architecture
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from .shapes import TargetShape
from .target import add_keys, add_tensors, finish, network_keys
from .tokenizer import add_tokenizer
from .weights import LOGITS, SHARPNESS, Tensors, normal

STATE, GROUPS, HEADS, KERNEL = 16, 2, 4, 4  # of the recurrent layers; lfm2 has a kernel of 3 and no more
INNER = STATE * HEADS


@dataclass(frozen=True)
class TinyHybrid:
    """A written target."""

    path: Path
    arch: str


class _Weights:
    def __init__(self, arch: str, seed: int) -> None:
        self.shape = TargetShape(arch=arch, n_layer=4, seed=seed)
        self.tensors: Tensors = {}

    def matrix(self, name: str, n_in: int, *n_out: int, gain: float = 1.0) -> None:
        self.put(f"{name}.weight", (*n_out, n_in), gain / np.sqrt(n_in))

    def norm(self, name: str, *size: int, mean: float = 1.0) -> None:
        self.put(f"{name}.weight", size, 0.1 * mean, mean)

    def put(self, name: str, size: tuple[int, ...], std: float, mean: float = 0.0) -> None:
        self.tensors[name] = normal(self.shape.seed, name, size, std, mean)

    def decay(self, name: str, *size: int) -> None:
        """Negative rates: states that fade over some tokens, not at once and not never."""
        self.tensors[name] = -np.exp(normal(self.shape.seed, name, size, 0.3, -1.0))


def _attention(w: _Weights, at: str, gate: int = 1, norms: bool = True) -> None:
    width, keys = w.shape.n_embd, w.shape.n_head_kv * w.shape.head_dim
    w.matrix(at + "attn_q", width, gate * width, gain=1.0 if norms else SHARPNESS)
    w.matrix(at + "attn_k", width, keys, gain=1.0 if norms else SHARPNESS)
    w.matrix(at + "attn_v", width, keys)
    w.matrix(at + "attn_output", width, width)
    for part in "qk" if norms else "":
        w.norm(f"{at}attn_{part}_norm", w.shape.head_dim, mean=SHARPNESS)


def _ffn(w: _Weights, at: str, parts: tuple[str, ...] = ("gate", "up"), suffix: str = "") -> None:
    for part in parts:
        w.matrix(f"{at}ffn_{part}{suffix}", w.shape.n_embd, w.shape.n_ff)
    w.matrix(f"{at}ffn_down{suffix}", w.shape.n_ff, w.shape.n_embd)


def _lfm2(w: _Weights, at: str, recurrent: bool) -> None:
    width = w.shape.n_embd
    if recurrent:
        w.matrix(at + "shortconv.in_proj", width, 3 * width)
        w.matrix(at + "shortconv.conv", KERNEL - 1, width)
        w.matrix(at + "shortconv.out_proj", width, width, gain=2.0)
    else:
        _attention(w, at)
    w.norm(at + "ffn_norm", width)
    _ffn(w, at)


def _delta_net(w: _Weights, at: str) -> None:
    width, channels = w.shape.n_embd, INNER + 2 * GROUPS * STATE
    w.matrix(at + "attn_qkv", width, channels)
    w.matrix(at + "attn_gate", width, INNER)
    w.matrix(at + "ssm_conv1d", KERNEL, channels)
    w.put(at + "ssm_dt.bias", (HEADS,), 0.3)
    w.decay(at + "ssm_a", HEADS)
    w.norm(at + "ssm_norm", STATE)
    w.matrix(at + "ssm_out", INNER, width)


def _qwen35(w: _Weights, at: str, recurrent: bool) -> None:
    if recurrent:
        _delta_net(w, at)
        w.matrix(at + "ssm_alpha", w.shape.n_embd, HEADS)
        w.matrix(at + "ssm_beta", w.shape.n_embd, HEADS)
    else:
        _attention(w, at, gate=2)
    w.norm(at + "post_attention_norm", w.shape.n_embd)
    _ffn(w, at)


def _qwen3next(w: _Weights, at: str, recurrent: bool) -> None:
    width, hidden = w.shape.n_embd, w.shape.n_ff
    if recurrent:
        _delta_net(w, at)
        w.matrix(at + "ssm_ba", width, 2 * HEADS)
    else:
        _attention(w, at, gate=2)
    w.norm(at + "post_attention_norm", width)
    w.matrix(at + "ffn_gate_inp", width, 2)
    w.matrix(at + "ffn_gate_inp_shexp", width)
    for part in ("gate", "up"):
        w.matrix(f"{at}ffn_{part}_exps", width, 2, hidden)
    w.matrix(at + "ffn_down_exps", hidden, 2, width)
    _ffn(w, at, suffix="_shexp")


def _nemotron_h(w: _Weights, at: str, recurrent: bool) -> None:
    """A layer is a state (Mamba 2), attention or feed-forward: the last of the four is the latter."""
    width, channels = w.shape.n_embd, INNER + 2 * GROUPS * STATE
    if recurrent:
        w.matrix(at + "ssm_in", width, INNER + channels + HEADS)
        w.matrix(at + "ssm_conv1d", KERNEL, channels)
        w.put(at + "ssm_conv1d.bias", (channels,), 0.3)
        w.put(at + "ssm_dt.bias", (HEADS,), 0.3)
        w.decay(at + "ssm_a", HEADS, 1)
        w.put(at + "ssm_d", (HEADS, 1), 0.3, 1.0)
        w.norm(at + "ssm_norm", GROUPS, INNER // GROUPS)
        w.matrix(at + "ssm_out", INNER, width)
    elif at == f"blk.{w.shape.n_layer - 1}.":
        _ffn(w, at, ("up",))
    else:
        _attention(w, at, norms=False)


def _jamba(w: _Weights, at: str, recurrent: bool) -> None:
    width = w.shape.n_embd
    inner = 2 * width
    if recurrent:  # Mamba 1
        w.matrix(at + "ssm_in", width, 2 * inner)
        w.matrix(at + "ssm_conv1d", KERNEL, inner)
        w.put(at + "ssm_conv1d.bias", (inner,), 0.3)
        w.matrix(at + "ssm_x", inner, HEADS + 2 * STATE)
        w.matrix(at + "ssm_dt", HEADS, inner)
        w.put(at + "ssm_dt.bias", (inner,), 0.3)
        w.decay(at + "ssm_a", inner, STATE)
        w.put(at + "ssm_d", (inner,), 0.3, 1.0)
        w.matrix(at + "ssm_out", inner, width)
        for part, size in (("dt", HEADS), ("b", STATE), ("c", STATE)):
            w.norm(f"{at}ssm_{part}_norm", size)
    else:
        _attention(w, at, norms=False)
    w.norm(at + "ffn_norm", width)
    _ffn(w, at)


_LAYERS: dict[str, Callable[[_Weights, str, bool], None]] = {
    "lfm2": _lfm2,
    "qwen35": _qwen35,
    "qwen3next": _qwen3next,
    "nemotron_h": _nemotron_h,
    "jamba": _jamba,
}
HYBRIDS = tuple(_LAYERS)


def _keys(shape: TargetShape) -> dict[str, Any]:
    arch = shape.arch
    keys = network_keys(shape, shape.n_layer, shape.rope_base)
    inner = INNER if arch != "jamba" else 2 * shape.n_embd
    ssm = {"conv_kernel": KERNEL, "state_size": STATE, "time_step_rank": HEADS, "inner_size": inner}
    if arch == "lfm2":
        keys["shortconv.l_cache"] = KERNEL - 1
    else:
        keys |= {f"ssm.{name}": value for name, value in ssm.items()}
    if arch in ("lfm2", "jamba", "nemotron_h"):  # no heads: the layer is recurrent
        keys["attention.head_count_kv"] = [0, shape.n_head_kv] * (shape.n_layer // 2)
    if arch in ("qwen35", "qwen3next"):
        keys |= {"full_attention_interval": 2, "ssm.group_count": GROUPS}
        keys["rope.dimension_sections"] = [shape.head_dim // 4] * 4
    if arch == "qwen3next":
        keys |= {"expert_count": 2, "expert_used_count": 1, "expert_feed_forward_length": shape.n_ff}
        keys["expert_shared_feed_forward_length"] = shape.n_ff
    if arch == "nemotron_h":
        keys |= {"ssm.group_count": GROUPS, "attention.layer_norm_epsilon": shape.eps}
        keys["feed_forward_length"] = [0] * (shape.n_layer - 1) + [shape.n_ff]
    return keys


def write_hybrid(path: Path, arch: str, seed: int = 0, **keys: Any) -> TinyHybrid:
    """Writes a target of `arch`, one of HYBRIDS; the first layer of each two is recurrent, the second is not."""
    w = _Weights(arch, seed)
    shape = w.shape
    w.put("token_embd.weight", (shape.n_vocab, shape.n_embd), 1.0)
    w.norm("token_embd_norm" if arch == "lfm2" else "output_norm", shape.n_embd)
    w.matrix("output", shape.n_embd, shape.n_vocab, gain=LOGITS)
    for layer in range(shape.n_layer):
        w.norm(f"blk.{layer}.attn_norm", shape.n_embd)
        _LAYERS[arch](w, f"blk.{layer}.", layer % 2 == 0)
    writer = gguf.GGUFWriter(path, arch)
    writer.add_name(f"tiny {arch} {seed}")
    add_keys(writer, arch, {**_keys(shape), **keys})
    add_tokenizer(writer, shape.n_vocab)
    add_tensors(writer, w.tensors, "f32")
    finish(writer)
    return TinyHybrid(path, arch)
