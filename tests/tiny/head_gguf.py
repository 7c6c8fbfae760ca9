"""Writes a head's state straight to the eagle3 GGUF that upstream's loader accepts, without the package's converter.

Native tests build on this, so that a bug in the converter cannot hide one of theirs, and the other way round.
"""

from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt

from .head import LAYER, State
from .shapes import HeadShape
from .target import add_keys, finish, network_keys
from .tokenizer import add_tokenizer

NAMES = {
    "fc.weight": "fc.weight",
    "norm.weight": "output_norm.weight",
    "input_norm.weight": "enc.output_norm.weight",
    "lm_head.weight": "output.weight",
    "embed_tokens.weight": "token_embd.weight",
    LAYER + "hidden_norm.weight": "blk.0.attn_norm_2.weight",
    LAYER + "input_layernorm.weight": "blk.0.attn_norm.weight",
    LAYER + "post_attention_layernorm.weight": "blk.0.ffn_norm.weight",
    LAYER + "self_attn.q_proj.weight": "blk.0.attn_q.weight",
    LAYER + "self_attn.k_proj.weight": "blk.0.attn_k.weight",
    LAYER + "self_attn.v_proj.weight": "blk.0.attn_v.weight",
    LAYER + "self_attn.o_proj.weight": "blk.0.attn_output.weight",
    LAYER + "mlp.gate_proj.weight": "blk.0.ffn_gate.weight",
    LAYER + "mlp.up_proj.weight": "blk.0.ffn_up.weight",
    LAYER + "mlp.down_proj.weight": "blk.0.ffn_down.weight",
}


def write_head_gguf(path: Path, shape: HeadShape, state: State) -> Path:
    """Write `state` (SpecForge names) as float32 eagle3 GGUF: rope rows interleaved, d2t as absolute ids."""
    writer = gguf.GGUFWriter(path, "eagle3")
    writer.add_name(f"tiny eagle3 {shape.seed}")
    add_keys(writer, "eagle3", _keys(shape))
    add_tokenizer(writer, shape.n_vocab)
    for name, tensor in state.items():
        if name == "t2d":
            continue
        if name == "d2t":
            ids = (tensor + np.arange(len(tensor))).astype(np.int64)
            writer.add_tensor("d2t", ids, raw_dtype=gguf.GGMLQuantizationType.I64)
            continue
        turned = name.endswith(("q_proj.weight", "k_proj.weight"))
        stored = interleave(tensor, shape.head_dim) if turned else tensor
        writer.add_tensor(NAMES[name], np.ascontiguousarray(stored, dtype=np.float32))
    finish(writer)
    return path


def interleave(weight: npt.NDArray[np.float32], head_dim: int) -> npt.NDArray[np.float32]:
    """Reorder rows of each head from (first half, second half) to pairs: Hugging Face's rope layout to ggml's NORM."""
    rows, columns = weight.shape
    pairs = weight.reshape(rows // head_dim, 2, head_dim // 2, columns).swapaxes(1, 2)
    return np.ascontiguousarray(pairs).reshape(rows, columns)


def _keys(shape: HeadShape) -> dict[str, object]:
    return {
        **network_keys(shape, 1, shape.rope_base),
        "target_layers": shape.layers,
        "target_hidden_size": shape.n_embd_target,
        "norm_before_residual": shape.norm_before_residual,
        "norm_before_fc": shape.norm_before_fc,
    }
