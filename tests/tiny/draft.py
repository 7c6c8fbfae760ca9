"""Random draft heads of every layout in docs/head-format.md, under their GGUF names, and the files they make.

Knows the format, not the package's converter. `keys` and `tensors` of a Draft may be changed to make a wrong file.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt

from .target import add_keys, finish, network_keys
from .tokenizer import add_tokenizer
from .weights import LOGITS, SHARPNESS, normal

PARTS = frozenset(
    "fc fc_bias fc_norm norm_before_fc norm_output norm_before_residual qkv_bias o_bias ffn_bias qk_norm token_embd "
    "output d2t output_norm input_norms rope_freqs".split()
)


@dataclass(frozen=True)
class DraftShape:
    """Sizes and parts of a draft. `parts`: names of PARTS that it has; `rope`: further keys behind `rope.`."""

    arch: str = "eagle3"
    parts: frozenset[str] = frozenset()
    features: tuple[int, ...] = (2, 3, 5)
    n_embd: int = 64
    n_embd_target: int = 64
    n_layer: int = 1
    n_head: int = 4
    n_head_kv: int = 2
    head_dim: int = 16
    n_ff: int = 96
    n_vocab: int = 272
    n_draft_vocab: int = 192
    rope: tuple[tuple[str, Any], ...] = ()
    eps: float = 1e-5
    n_ctx_train: int = 512
    seed: int = 0

    def __post_init__(self) -> None:
        if self.parts - PARTS:
            raise ValueError(f"no such parts: {sorted(self.parts - PARTS)}")


@dataclass
class Draft:
    """Keys (without the architecture) and tensors [out, in] of a draft."""

    shape: DraftShape
    keys: dict[str, Any]
    tensors: dict[str, npt.NDArray[Any]] = field(repr=False)

    def write(self, path: Path) -> Path:
        """The GGUF file."""
        writer = gguf.GGUFWriter(path, self.shape.arch)
        writer.add_name(f"tiny {self.shape.arch} {self.shape.seed}")
        add_keys(writer, self.shape.arch, self.keys)
        add_tokenizer(writer, self.shape.n_vocab)
        for name, tensor in self.tensors.items():
            writer.add_tensor(name, np.ascontiguousarray(tensor))
        finish(writer)
        return path


def eagle3_shape(parts: str = "", **changes: Any) -> DraftShape:
    """An EAGLE-3 head that upstream's loader takes, with further parts."""
    return DraftShape(parts=frozenset(f"fc output d2t output_norm input_norms {parts}".split()), **changes)


def eagle_shape(parts: str = "", **changes: Any) -> DraftShape:
    """The network of EAGLE-1 and EAGLE-2 as SafeAILab's files have it, with further parts."""
    return DraftShape(arch="eagle", features=(-1,), parts=frozenset(f"fc {parts}".split()), **changes)


def random_draft(shape: DraftShape) -> Draft:
    """Random weights for a shape."""
    make = _Maker(shape)
    make.ends()
    for layer in range(shape.n_layer):
        make.layer(layer)
    return Draft(shape, _keys(shape), make.tensors)


class _Maker:
    def __init__(self, shape: DraftShape) -> None:
        self.shape = shape
        self.has = shape.parts.__contains__
        self.tensors: dict[str, npt.NDArray[Any]] = {}

    def matrix(self, name: str, n_out: int, n_in: int, gain: float = 1.0) -> None:
        self.tensors[name] = normal(self.shape.seed, name, (n_out, n_in), gain / np.sqrt(n_in))

    def norm(self, name: str, *size: int) -> None:
        self.tensors[name] = normal(self.shape.seed, name, size, 0.2, 1.0)

    def bias(self, name: str, size: int) -> None:
        self.tensors[name] = normal(self.shape.seed, name, (size,), 0.3)

    def ends(self) -> None:
        shape, n_embd = self.shape, self.shape.n_embd
        fused = len(shape.features) * shape.n_embd_target
        if self.has("fc"):
            self.matrix("fc.weight", n_embd, fused if shape.arch == "eagle3" else 2 * n_embd)
        if self.has("fc_bias"):
            self.bias("fc.bias", n_embd)
        if self.has("fc_norm"):
            self.norm("fc_norm.weight", len(shape.features), shape.n_embd_target)
        if self.has("norm_before_fc"):
            self.norm("enc.output_norm.weight", fused)
        if self.has("token_embd"):
            self.tensors["token_embd.weight"] = normal(shape.seed, "embd", (shape.n_vocab, n_embd), 1.0)
        if self.has("d2t"):
            kept = np.random.default_rng([shape.seed, 2]).permutation(shape.n_vocab)[: shape.n_draft_vocab]
            self.tensors["d2t"] = np.sort(kept).astype(np.int64)
        if self.has("output"):
            rows = shape.n_draft_vocab if self.has("d2t") else shape.n_vocab
            self.matrix("output.weight", rows, n_embd, LOGITS)
        if self.has("output_norm"):
            self.norm("output_norm.weight", n_embd)
        if self.has("rope_freqs"):
            divisors = np.linspace(1, 4, shape.head_dim // 2, dtype=np.float32)
            self.tensors["rope_freqs.weight"] = divisors

    def layer(self, layer: int) -> None:
        shape, prefix = self.shape, f"blk.{layer}."
        n_q, n_kv = shape.n_head * shape.head_dim, shape.n_head_kv * shape.head_dim
        n_in = 2 * shape.n_embd if layer == 0 and shape.arch == "eagle3" else shape.n_embd
        if layer or self.has("input_norms"):
            self.norm(prefix + "attn_norm.weight", shape.n_embd)
        if not layer and self.has("input_norms"):
            self.norm(prefix + "attn_norm_2.weight", shape.n_embd)
        for part, size, gain in (("q", n_q, SHARPNESS), ("k", n_kv, SHARPNESS), ("v", n_kv, 1.0)):
            self.matrix(f"{prefix}attn_{part}.weight", size, n_in, gain)
            if self.has("qkv_bias"):
                self.bias(f"{prefix}attn_{part}.bias", size)
            if self.has("qk_norm") and part != "v":
                self.norm(f"{prefix}attn_{part}_norm.weight", shape.head_dim)
        self.matrix(prefix + "attn_output.weight", shape.n_embd, n_q)
        if self.has("o_bias"):
            self.bias(prefix + "attn_output.bias", shape.n_embd)
        self.norm(prefix + "ffn_norm.weight", shape.n_embd)
        ffn = {"gate": (shape.n_ff, shape.n_embd), "up": (shape.n_ff, shape.n_embd), "down": (shape.n_embd, shape.n_ff)}
        for part, (n_out, n_from) in ffn.items():
            self.matrix(f"{prefix}ffn_{part}.weight", n_out, n_from)
            if self.has("ffn_bias"):
                self.bias(f"{prefix}ffn_{part}.bias", n_out)


def _keys(shape: DraftShape) -> dict[str, Any]:
    keys: dict[str, Any] = {
        **network_keys(shape, shape.n_layer, 10000.0),
        "target_layers": shape.features,
        "target_hidden_size": shape.n_embd_target,
    }
    keys |= {name: True for name in ("norm_before_fc", "norm_before_residual", "norm_output") if name in shape.parts}
    return keys | {f"rope.{name}": value for name, value in shape.rope}
