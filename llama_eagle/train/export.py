"""The stage `export`: a head as a checkpoint in SpecForge's layout and, by our own converter, as a GGUF."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from safetensors.torch import save_file

from ..conversion.converter import ConvertReport, convert
from ..conversion.layer_ids import IDS
from ..conversion.overrides import Overrides
from .head import Head
from .shape import HeadShape


def write_checkpoint(folder: Path, head: Head, scales: npt.NDArray[np.float32], name: str) -> None:
    """Writes config.json and model.safetensors. scales: what the features were divided by, which fc takes in."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config(head.shape, len(head.ids), name), indent=1) + "\n", "utf-8")
    save_file(tensors(head, scales), folder / "model.safetensors", {"format": "pt"})


def write_gguf(folder: Path, target: Path, head: Head, out: Path, outtype: str) -> ConvertReport:
    """Converts a checkpoint that was written."""
    return convert(folder, target, out, outtype, Overrides(target_layers=head.shape.layers))


def tensors(head: Head, scales: npt.NDArray[np.float32]) -> dict[str, torch.Tensor]:
    """The checkpoint's tensors: matrices bfloat16, norms float32, d2t the offsets of the ids, t2d a mask."""
    found = {name: value.detach().cpu() for name, value in head.state_dict().items()}
    per_column = torch.from_numpy(np.repeat(scales, head.shape.n_embd))
    found["fc.weight"] = found["fc.weight"] / per_column
    found = {name: value.bfloat16() if value.ndim == 2 else value.float() for name, value in found.items()}
    ids = head.ids.cpu()
    kept = torch.zeros(head.shape.n_vocab, dtype=torch.bool)
    kept[ids] = True
    return {**found, "d2t": ids - torch.arange(len(ids)), "t2d": kept}


def config(shape: HeadShape, n_draft: int, name: str) -> dict[str, Any]:
    """config.json. The layers are written twice: as inputs, which vLLM reads, and as outputs, which SpecForge does."""
    outputs = [layer - 1 for layer in shape.layers]
    return {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "attention_bias": False,
        "draft_vocab_size": n_draft,
        **({"eagle_config": {IDS: outputs, "use_aux_hidden_state": True}} if min(outputs) >= 0 else {}),
        IDS: list(shape.layers),
        "head_dim": shape.head_dim,
        "hidden_act": "silu",
        "hidden_size": shape.n_embd,
        "intermediate_size": shape.n_ff,
        "max_position_embeddings": shape.n_ctx,
        "num_attention_heads": shape.n_head,
        "num_hidden_layers": 1,
        "num_key_value_heads": shape.n_head_kv,
        "rms_norm_eps": shape.eps,
        "rope_scaling": None,
        "rope_theta": shape.rotary_base,
        "target_hidden_size": shape.n_embd,
        "target_model": name,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "vocab_size": shape.n_vocab,
    }
