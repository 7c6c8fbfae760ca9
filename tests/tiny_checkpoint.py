"""Tiny random EAGLE-3 checkpoints and target GGUFs for the tests, written with numpy and the gguf writer."""

import json
import struct
from pathlib import Path
from typing import Any

import gguf
import numpy as np

HIDDEN, FFN, HEADS, KV_HEADS, HEAD_DIM = 32, 48, 4, 2, 16  # head_dim apart from hidden / heads on purpose
VOCAB, DRAFT_VOCAB, LAYERS, CONTEXT = 40, 24, 12, 512
NAMES = {
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "uint16": "BF16",
    "int64": "I64",
    "int32": "I32",
    "bool": "BOOL",
}


def config(**changes: Any) -> dict[str, Any]:
    """A SpecForge config; a change to None removes the key."""
    base = {
        "architectures": ["LlamaForCausalLMEagle3"], "hidden_size": HIDDEN,
        "intermediate_size": FFN, "num_hidden_layers": 1,
        "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "head_dim": HEAD_DIM, "vocab_size": VOCAB,
        "draft_vocab_size": DRAFT_VOCAB, "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 500.0,
        "hidden_act": "silu", "rope_scaling": None,
        "eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 5, 8], "use_aux_hidden_state": True},
    }  # fmt: skip
    return {key: value for key, value in {**base, **changes}.items() if value is not None}


def tensors(prefix: str = "midlayer.", seed: int = 1) -> dict[str, np.ndarray]:
    """Random tensors of the SpecForge layout for `config()`."""
    rng = np.random.default_rng(seed)

    def matrix(*shape: int) -> np.ndarray:
        return rng.normal(0, 0.3, shape).astype(np.float32)

    kept = np.sort(rng.choice(VOCAB, DRAFT_VOCAB, replace=False))
    queries, keys = HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM
    layer = {
        "input_layernorm": 1 + matrix(HIDDEN), "hidden_norm": 1 + matrix(HIDDEN),
        "post_attention_layernorm": 1 + matrix(HIDDEN),
        "self_attn.q_proj": matrix(queries, 2 * HIDDEN), "self_attn.k_proj": matrix(keys, 2 * HIDDEN),
        "self_attn.v_proj": matrix(keys, 2 * HIDDEN), "self_attn.o_proj": matrix(HIDDEN, queries),
        "mlp.gate_proj": matrix(FFN, HIDDEN), "mlp.up_proj": matrix(FFN, HIDDEN), "mlp.down_proj": matrix(HIDDEN, FFN),
    }  # fmt: skip
    return {
        "fc.weight": matrix(HIDDEN, 3 * HIDDEN),
        "norm.weight": 1 + matrix(HIDDEN),
        "lm_head.weight": matrix(DRAFT_VOCAB, HIDDEN),
        "d2t": (kept - np.arange(DRAFT_VOCAB)).astype(np.int64),
        "t2d": np.isin(np.arange(VOCAB), kept),
        **{f"{prefix}{name}.weight": value for name, value in layer.items()},
    }


def full_vocabulary(weights: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The same draft without a vocabulary map and with a head for every token of the target."""
    head = np.random.default_rng(9).normal(0, 0.3, (VOCAB, HIDDEN)).astype(np.float32)
    return {**{k: v for k, v in weights.items() if k not in ("d2t", "t2d")}, "lm_head.weight": head}


def bf16(values: np.ndarray) -> np.ndarray:
    """The upper halves of float32 values, as uint16: what a BF16 tensor stores (truncated)."""
    return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


def write_safetensors(path: Path, weights: dict[str, np.ndarray]) -> Path:
    header, blobs, end = {}, [], 0
    for name, value in weights.items():
        blob = np.ascontiguousarray(value).tobytes()
        shape = list(value.shape)
        header[name] = {"dtype": NAMES[value.dtype.name], "shape": shape, "data_offsets": [end, end + len(blob)]}
        blobs.append(blob)
        end += len(blob)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(blobs))
    return path


def write_checkpoint(folder: Path, settings: dict[str, Any], weights: dict[str, np.ndarray]) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(settings))
    write_safetensors(folder / "model.safetensors", weights)
    return folder


def write_target(
    path: Path, hidden: int = HIDDEN, vocab: int = VOCAB, head: bool = True, arch: str = "llama", n_layer: int = LAYERS
) -> Path:
    """A target with metadata, tokenizer, the embedding and perhaps a head: all that a converter reads."""
    writer = gguf.GGUFWriter(path, arch)
    writer.add_block_count(n_layer)
    writer.add_embedding_length(hidden)
    writer.add_context_length(CONTEXT)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list([f"token{i}" for i in range(vocab)])
    writer.add_token_types([1] * vocab)
    writer.add_token_merges(["a b", "ab c"])
    writer.add_eos_token_id(2)
    writer.add_add_bos_token(False)
    writer.add_chat_template("{{ hostile }}")
    writer.add_tensor("token_embd.weight", np.ones((vocab, hidden), np.float32))
    if head:
        writer.add_tensor("output.weight", np.ones((vocab, hidden), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
