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

# numpy has no bfloat16: its bits are kept as uint16
KINDS = {
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "uint16": "BF16",
    "int64": "I64",
    "int32": "I32",
    "bool": "BOOL",
}


def write_checkpoint(folder: Path, shape: HeadShape, state: State, dtype: str = "f32") -> State:
    """Write the checkpoint into `folder` (made if absent). dtype: f32, f16 or bf16, for all floating tensors.

    Returns the state as a reader sees it: floats rounded to `dtype`, as float32.
    """
    stored = {name: _rounded(tensor, dtype) for name, tensor in state.items()}
    write_folder(folder, head_config(shape), stored)
    return {name: as_float32(tensor) for name, tensor in stored.items()}


def write_folder(folder: Path, config: dict[str, Any], weights: State) -> Path:
    """Write config.json and model.safetensors as they are given; makes and returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")
    write_safetensors(folder / "model.safetensors", weights)
    return folder


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


def write_safetensors(path: Path, weights: State) -> None:
    """Write tensors of the dtypes in KINDS."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    blobs: list[bytes] = []
    offset = 0
    for name, tensor in weights.items():
        blobs.append(np.ascontiguousarray(tensor).tobytes())
        end = offset + len(blobs[-1])
        header[name] = {"dtype": KINDS[tensor.dtype.name], "shape": list(tensor.shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(blobs))


def bf16(values: npt.NDArray[Any]) -> npt.NDArray[np.uint16]:
    """The bits of values rounded to bfloat16: to nearest, ties to even."""
    bits = values.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def as_float32(tensor: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A stored tensor's values: floats, bfloat16's bits among them, as float32; others unchanged."""
    if tensor.dtype == np.uint16:
        return (tensor.astype(np.uint32) << 16).view(np.float32)
    return tensor.astype(np.float32) if tensor.dtype.kind == "f" else tensor


def _rounded(tensor: npt.NDArray[Any], dtype: str) -> npt.NDArray[Any]:
    if tensor.dtype.kind != "f":
        return tensor
    return bf16(tensor) if dtype == "bf16" else tensor.astype({"f32": np.float32, "f16": np.float16}[dtype])
