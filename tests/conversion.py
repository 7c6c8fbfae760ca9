"""What the converter is given in its tests: the config and tensors of one tiny head, and a target of metadata alone."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from tiny import HeadShape, head_config, random_head, write_folder
from tiny.target import finish

HIDDEN, HEAD_DIM, VOCAB = 32, 16, 40
LAYERS, CONTEXT = 12, 512  # of the target
SHAPE = HeadShape(
    n_embd=HIDDEN, n_embd_target=HIDDEN, n_head=4, n_head_kv=2, head_dim=HEAD_DIM, n_ff=48, n_vocab=VOCAB,
    n_draft_vocab=24, layers=(2, 6, 9), rope_base=500.0, n_ctx_train=64,
)  # fmt: skip
OPTIONAL = ("target_hidden_size", "norm_before_residual", "norm_before_fc")  # keys that many checkpoints lack


def config(**changes: Any) -> dict[str, Any]:
    """A SpecForge config of SHAPE without OPTIONAL; a change to None removes the key."""
    base = {key: value for key, value in head_config(SHAPE).items() if key not in OPTIONAL}
    return {key: value for key, value in {**base, **changes}.items() if value is not None}


def tensors(prefix: str = "midlayer.", **changes: Any) -> dict[str, np.ndarray]:
    """Random tensors of SHAPE with `changes`, the layer's names behind `prefix`."""
    return {name.replace("midlayer.", prefix): value for name, value in random_head(replace(SHAPE, **changes)).items()}


def write_target(
    path: Path, hidden: int = HIDDEN, vocab: int = VOCAB, head: bool = True, arch: str = "llama", n_layer: int = LAYERS
) -> Path:
    """A target with metadata, tokenizer, random embeddings and perhaps a head: all that a converter reads."""
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
    matrices = target_matrices(hidden, vocab)
    writer.add_tensor("token_embd.weight", matrices["model.embed_tokens.weight"])
    if head:
        writer.add_tensor("output.weight", matrices["lm_head.weight"])
    finish(writer)
    return path


def target_matrices(hidden: int = HIDDEN, vocab: int = VOCAB) -> dict[str, np.ndarray]:
    """Embeddings and head of the targets here, under their names in an HF checkpoint."""
    rng = np.random.default_rng(7)
    names = ("model.embed_tokens.weight", "lm_head.weight")
    return {name: rng.normal(size=(vocab, hidden)).astype(np.float32) for name in names}


def write_hf_target(folder: Path, **changes: Any) -> Path:
    """The same target as an HF folder; a change to None removes a key of its config."""
    base: dict[str, Any] = {
        "model_type": "llama", "hidden_size": HIDDEN, "num_hidden_layers": LAYERS, "vocab_size": VOCAB,
        "max_position_embeddings": CONTEXT, "tie_word_embeddings": False,
    }  # fmt: skip
    settings = {key: value for key, value in {**base, **changes}.items() if value is not None}
    return write_folder(folder, settings, target_matrices())


def read_config(folder: Path) -> dict[str, Any]:
    """The config.json of a folder."""
    settings: dict[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    return settings
