"""Writes a tiny target as a GGUF file that llama.cpp loads.

Knows the metadata each architecture's loader asks for; the weights come from weights.py.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from .shapes import TargetShape
from .tokenizer import add_tokenizer
from .weights import QUANTS, Tensors, mla_sizes, target_tensors


@dataclass(frozen=True)
class TinyTarget:
    """A written target: file, shape and the weights as llama.cpp reads them (float32, GGUF names, numpy [out, in])."""

    path: Path
    shape: TargetShape
    tensors: Tensors


def write_target(path: Path, shape: TargetShape) -> TinyTarget:
    """Write the target of `shape` to `path`; equal shapes give equal files. Under 1 MB at the default sizes."""
    tensors = target_tensors(shape)
    writer = gguf.GGUFWriter(path, shape.arch)
    writer.add_name(f"tiny {shape.arch} {shape.seed}")
    add_keys(
        writer,
        shape.arch,
        {**network_keys(shape, shape.n_layer, shape.rope_base), **_SPECIAL.get(shape.arch, _nothing)(shape)},
    )
    add_tokenizer(writer, shape.n_vocab)
    add_tensors(writer, tensors, shape.dtype)
    finish(writer)
    return TinyTarget(path, shape, tensors)


def add_keys(writer: gguf.GGUFWriter, arch: str, values: Mapping[str, Any]) -> None:
    """Write `arch`.key for each item: bool, int (uint32), float (float32), text, or a sequence."""
    for key, value in values.items():
        name = f"{arch}.{key}"
        if isinstance(value, bool):
            writer.add_bool(name, value)
        elif isinstance(value, int):
            writer.add_uint32(name, value)
        elif isinstance(value, float):
            writer.add_float32(name, value)
        elif isinstance(value, str):
            writer.add_string(name, value)
        else:
            writer.add_array(name, list(value))


def add_tensors(writer: gguf.GGUFWriter, tensors: Tensors, dtype: str) -> None:
    """Add all tensors; vectors stay f32 whatever `dtype` says, as llama.cpp wants them."""
    for name, tensor in tensors.items():
        if dtype in QUANTS and tensor.ndim > 1:
            writer.add_tensor(name, gguf.quants.quantize(tensor, QUANTS[dtype]), raw_dtype=QUANTS[dtype])
        else:
            writer.add_tensor(name, tensor.astype(np.float16) if dtype == "f16" and tensor.ndim > 1 else tensor)


def finish(writer: gguf.GGUFWriter) -> None:
    """Write everything to the file and close it."""
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def network_keys(shape: Any, n_layer: int, rope_base: float) -> dict[str, Any]:
    """The sizes that every network's metadata has; `shape`: a TargetShape, HeadShape or DraftShape."""
    return {
        "vocab_size": shape.n_vocab,
        "context_length": shape.n_ctx_train,
        "embedding_length": shape.n_embd,
        "block_count": n_layer,
        "feed_forward_length": shape.n_ff,
        "attention.head_count": shape.n_head,
        "attention.head_count_kv": shape.n_head_kv,
        "attention.key_length": shape.head_dim,
        "attention.value_length": shape.head_dim,
        "attention.layer_norm_rms_epsilon": shape.eps,
        "rope.dimension_count": shape.head_dim,
        "rope.freq_base": rope_base,
    }


def _nothing(shape: TargetShape) -> dict[str, Any]:
    return {}


def _gemma2(shape: TargetShape) -> dict[str, Any]:
    caps = {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0}
    return {**_window(shape), **caps}


def _window(shape: TargetShape) -> dict[str, Any]:
    keys: dict[str, Any] = {"attention.sliding_window": shape.window}
    if shape.swa_pattern is not None:
        keys["attention.sliding_window_pattern"] = shape.swa_pattern
    return keys


def _llama4(shape: TargetShape) -> dict[str, Any]:
    # no sliding_window key: the loader then takes its fixed chunk of 8192; a key of 0 would switch chunks off
    return {
        "expert_count": 2,
        "expert_used_count": 1,
        "expert_feed_forward_length": shape.n_ff,
        "interleave_moe_layer_step": 2,
    }


def _deepseek2(shape: TargetShape) -> dict[str, Any]:
    rank, rope, plain, value = mla_sizes(shape)
    return {
        "leading_dense_block_count": shape.n_layer,
        "expert_feed_forward_length": shape.n_ff,
        "expert_shared_count": 1,
        "attention.q_lora_rank": rank,
        "attention.kv_lora_rank": rank,
        "attention.key_length": rank + rope,
        "attention.value_length": rank,
        "attention.key_length_mla": plain + rope,
        "attention.value_length_mla": value,
        "rope.dimension_count": rope,
    }


_SPECIAL = {"gemma2": _gemma2, "gemma3": _window, "llama4": _llama4, "deepseek2": _deepseek2}
