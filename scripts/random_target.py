"""Writes a target of random weights in a real model's shapes, to measure what a step costs without its weights.

    python scripts/random_target.py llama-1b -o 1b.gguf                     Q4_K_M, 16 layers, head dimension 128
    python scripts/random_target.py qwen2-7b --n-layer 4 --type f16 -o qwen.gguf     a slice of its layers
    python scripts/random_target.py llama3-8b --n-layer 4 -m VOCABULARY.gguf -o 8b.gguf

Its text is noise, and the rows of a matrix repeat, so that billions of weights are written in seconds. The vocabulary
is that of the embedded target or of `-m`, filled up or cut to the shape's size. Q4_K_M is llama.cpp's mixture: Q4_K,
with Q6_K for the output and for some layers' values and down projections.
"""

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, BinaryIO

import gguf
import numpy as np
import numpy.typing as npt

from llama_eagle.conversion.head_file import Slot, write_head
from llama_eagle.conversion.number_format import encode
from llama_eagle.embedded import target_path

Type = gguf.GGMLQuantizationType
DISTINCT = 256  # rows of a matrix
FILE_TYPES = {
    "f16": gguf.LlamaFileType.MOSTLY_F16,
    "q8_0": gguf.LlamaFileType.MOSTLY_Q8_0,
    "q4_0": gguf.LlamaFileType.MOSTLY_Q4_0,
    "q4_k_m": gguf.LlamaFileType.MOSTLY_Q4_K_M,
}


@dataclass(frozen=True)
class Shape:
    """A Llama-like network. tied: the embedding is the output matrix, too; biases: of queries, keys and values."""

    arch: str
    n_layer: int
    n_embd: int
    n_ff: int
    n_head: int
    n_head_kv: int
    n_vocab: int
    rope_base: float
    head_dim: int = 128
    tied: bool = False
    biases: bool = False


SHAPES = {
    "llama-1b": Shape("llama", 16, 2048, 8192, 16, 8, 128256, 500000.0, tied=True),
    "llama3-8b": Shape("llama", 32, 4096, 14336, 32, 8, 128256, 500000.0),
    "qwen2-7b": Shape("qwen2", 28, 3584, 18944, 28, 4, 152064, 1000000.0, biases=True),
}


def tensors(shape: Shape) -> dict[str, tuple[int, ...]]:
    """Names and shapes [out, in], in llama.cpp's usual order."""
    queries, keys = shape.n_head * shape.head_dim, shape.n_head_kv * shape.head_dim
    found: dict[str, tuple[int, ...]] = {"token_embd.weight": (shape.n_vocab, shape.n_embd)}
    found["output_norm.weight"] = (shape.n_embd,)
    if not shape.tied:
        found["output.weight"] = (shape.n_vocab, shape.n_embd)
    for layer in range(shape.n_layer):
        rows = {"attn_q": queries, "attn_k": keys, "attn_v": keys, "ffn_gate": shape.n_ff, "ffn_up": shape.n_ff}
        of_layer = {f"{name}.weight": (count, shape.n_embd) for name, count in rows.items()}
        of_layer |= {f"{name}.weight": (shape.n_embd,) for name in ("attn_norm", "ffn_norm")}
        of_layer |= {"attn_output.weight": (shape.n_embd, queries), "ffn_down.weight": (shape.n_embd, shape.n_ff)}
        if shape.biases:
            of_layer |= {f"{name}.bias": (rows[name],) for name in ("attn_q", "attn_k", "attn_v")}
        found |= {f"blk.{layer}.{name}": size for name, size in of_layer.items()}
    return found


def tensor_type(name: str, size: tuple[int, ...], kind: str, shape: Shape) -> Type:
    """The type llama.cpp's quantiser gives a tensor in a file of `kind`; vectors stay f32."""
    if len(size) == 1:
        return Type.F32
    output = name == ("token_embd.weight" if shape.tied else "output.weight")
    if kind == "q4_k_m":
        return Type.Q6_K if output or _more_bits(name, shape.n_layer) else Type.Q4_K
    if kind == "q4_0" and output:
        return Type.Q6_K
    return Type[kind.upper()]


def _more_bits(name: str, n_layer: int) -> bool:
    part = name.split(".")
    if part[0] != "blk" or part[2] not in ("attn_v", "ffn_down"):
        return False
    layer, eighth = int(part[1]), n_layer // 8
    return layer < eighth or layer >= 7 * n_layer // 8 or (layer - eighth) % 3 == 2


class Repeated(Slot):
    """A matrix of which load() gives the first rows, encoded once."""

    def tofile(self, file: BinaryIO) -> None:
        rows = encode(self.name, self.load(), self.type)  # type: ignore[arg-type]
        for start in range(0, self.shape[0], len(rows)):
            rows[: self.shape[0] - start].tofile(file)


def random_tensor(name: str, size: tuple[int, ...], seed: list[int]) -> Callable[[], npt.NDArray[np.float32]]:
    """Makes the weights when called, of a matrix DISTINCT rows: of length about 1, norms of ones."""

    def load() -> npt.NDArray[np.float32]:
        if name.endswith("norm.weight"):
            return np.ones(size, np.float32)
        first = size if len(size) == 1 else (min(size[0], DISTINCT), size[1])
        values = np.random.default_rng(seed).standard_normal(first, dtype=np.float32)
        values *= np.float32(size[-1] ** -0.5)
        return values

    return load


def add_network(writer: gguf.GGUFWriter, shape: Shape) -> None:
    writer.add_vocab_size(shape.n_vocab)
    writer.add_context_length(32768)
    writer.add_embedding_length(shape.n_embd)
    writer.add_block_count(shape.n_layer)
    writer.add_feed_forward_length(shape.n_ff)
    writer.add_head_count(shape.n_head)
    writer.add_head_count_kv(shape.n_head_kv)
    writer.add_key_length(shape.head_dim)
    writer.add_value_length(shape.head_dim)
    writer.add_rope_dimension_count(shape.head_dim)
    writer.add_rope_freq_base(shape.rope_base)
    writer.add_layer_norm_rms_eps(1e-5)


def add_vocabulary(writer: gguf.GGUFWriter, source: Path, n_vocab: int) -> None:
    """Copies `source`'s tokenizer. Missing tokens are unused ones; no special token may be cut away."""
    for name, field in gguf.GGUFReader(source).fields.items():
        if not name.startswith("tokenizer."):
            continue
        value: Any = field.contents()
        if name == "tokenizer.ggml.tokens":
            value = value[:n_vocab] + [f"[unused{i}]" for i in range(len(value), n_vocab)]
        elif name == "tokenizer.ggml.token_type":
            value = value[:n_vocab] + [int(gguf.TokenType.UNUSED)] * (n_vocab - len(value))
        elif name.endswith("_token_id") and value >= n_vocab:
            raise SystemExit(f"error: {source.name} has {name} {value}: --n-vocab {n_vocab} is too small")
        writer.add_key_value(name, value, field.types[0], field.types[1] if len(field.types) > 1 else None)


def write_target(out: Path, shape: Shape, kind: str, vocabulary: Path, seed: int) -> None:
    """Writes the file; equal arguments give equal files. Raises InputError where it cannot be written."""
    writer = gguf.GGUFWriter(None, shape.arch)
    writer.add_name(f"random weights {seed}")
    writer.add_file_type(FILE_TYPES[kind])
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    add_network(writer, shape)
    add_vocabulary(writer, vocabulary, shape.n_vocab)
    slots = []
    for i, (name, size) in enumerate(tensors(shape).items()):
        stored = tensor_type(name, size, kind, shape)
        if size[-1] % gguf.GGML_QUANT_SIZES[stored][0]:
            raise SystemExit(f"error: {name} has rows of {size[-1]}, no whole blocks of {stored.name}: use --type f16")
        kind_of = Slot if len(size) == 1 else Repeated
        slots.append(kind_of(name, size, stored, random_tensor(name, size, [seed, i])))
    write_head(out, writer, slots)
    print(f"{out}: {shape}, {kind}, {out.stat().st_size / 2**30:.2f} GiB")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shape", choices=SHAPES, metavar="SHAPE", help=", ".join(SHAPES))
    parser.add_argument("-o", dest="out", type=Path, required=True)
    parser.add_argument("-m", dest="vocabulary", type=Path, help="a GGUF whose vocabulary is taken")
    parser.add_argument("--type", choices=FILE_TYPES, default="q4_k_m")
    parser.add_argument("--seed", type=int, default=0)
    sizes = [field.name for field in fields(Shape) if field.type is int]
    for name in sizes:
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, help="instead of the shape's own")
    args = parser.parse_args()
    changes = {name: getattr(args, name) for name in sizes if getattr(args, name) is not None}
    shape = replace(SHAPES[args.shape], **changes)
    write_target(args.out, shape, args.type, args.vocabulary or target_path(), args.seed)
    return 0


if __name__ == "__main__":
    sys.exit(main())
