"""Writes a head as a SpecForge-layout checkpoint: config.json and model.safetensors.

The safetensors file is written by hand (an 8-byte header length, JSON, raw bytes) so that bfloat16 needs no library.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from .head import State
from .shapes import HeadShape
from .tokenizer import BOS, EOS

NAMES = {"float32": "F32", "float16": "F16", "int64": "I64", "bool": "BOOL"}


def write_checkpoint(folder: Path, shape: HeadShape, state: State, dtype: str = "f32") -> State:
    """Write the checkpoint into `folder` (made if absent). dtype: f32, f16 or bf16, for all floating tensors.

    Returns the state as a reader sees it: floats rounded to `dtype`, as float32.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(head_config(shape), indent=1), encoding="utf-8")
    stored: dict[str, tuple[str, tuple[int, ...], bytes]] = {}
    seen: State = {}
    for name, tensor in state.items():
        kind, raw, seen[name] = _encode(np.ascontiguousarray(tensor), dtype)
        stored[name] = (kind, tensor.shape, raw)
    write_safetensors(folder / "model.safetensors", stored)
    return seen


def head_config(shape: HeadShape) -> dict[str, Any]:
    """config.json of a head; the nested layer ids mean outputs, as SpecForge writes them (input = output + 1)."""
    return {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "hidden_act": "silu",
        "attention_bias": False,
        "bos_token_id": BOS,
        "eos_token_id": EOS,
        "hidden_size": shape.n_embd,
        "intermediate_size": shape.n_ff,
        "num_attention_heads": shape.n_head,
        "num_key_value_heads": shape.n_head_kv,
        "head_dim": shape.head_dim,
        "num_hidden_layers": 1,
        "max_position_embeddings": shape.n_ctx_train,
        "rms_norm_eps": shape.eps,
        "rope_theta": shape.rope_base,
        "rope_scaling": None,
        "tie_word_embeddings": False,
        "vocab_size": shape.n_vocab,
        "draft_vocab_size": shape.n_draft_vocab,
        "target_hidden_size": shape.n_embd_target,
        "norm_before_residual": shape.norm_before_residual,
        "norm_before_fc": shape.norm_before_fc,
        "eagle_config": {
            "eagle_aux_hidden_state_layer_ids": [i - 1 for i in shape.layers],
            "use_aux_hidden_state": True,
        },
    }


def write_safetensors(path: Path, tensors: dict[str, tuple[str, tuple[int, ...], bytes]]) -> None:
    """Write name -> (safetensors dtype, shape, little-endian bytes)."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, (kind, shape, raw) in tensors.items():
        header[name] = {"dtype": kind, "shape": list(shape), "data_offsets": [offset, offset + len(raw)]}
        offset += len(raw)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(raw for _, _, raw in tensors.values()))


def _encode(tensor: npt.NDArray[Any], dtype: str) -> tuple[str, bytes, npt.NDArray[Any]]:
    if tensor.dtype.kind != "f":
        return NAMES[tensor.dtype.name], tensor.tobytes(), tensor
    if dtype == "bf16":
        bits = tensor.astype(np.float32).view(np.uint32)
        rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16  # to nearest, ties to even
        back = (rounded << 16).astype(np.uint32).view(np.float32).reshape(tensor.shape)
        return "BF16", rounded.astype(np.uint16).tobytes(), back
    stored = tensor.astype({"f32": np.float32, "f16": np.float16}[dtype])
    return NAMES[stored.dtype.name], stored.tobytes(), stored.astype(np.float32)
