"""A tiny random mamba model, whose memory is a recurrent state without a past."""

from pathlib import Path

import gguf
import numpy as np

from tiny.target import add_keys, add_tensors, finish
from tiny.tokenizer import add_tokenizer

WIDTH, INNER, STATE, RANK, CONV, VOCAB = 64, 128, 16, 4, 4, 272


def write_mamba(path: Path, n_layer: int = 2) -> Path:
    """Writes the model to `path` and returns it."""
    rng = np.random.default_rng(3)
    shapes = {"token_embd.weight": (VOCAB, WIDTH), "output_norm.weight": (WIDTH,), "output.weight": (VOCAB, WIDTH)}
    for i in range(n_layer):
        layer = {
            "attn_norm.weight": (WIDTH,), "ssm_in.weight": (2 * INNER, WIDTH), "ssm_conv1d.weight": (INNER, CONV),
            "ssm_conv1d.bias": (INNER,), "ssm_x.weight": (RANK + 2 * STATE, INNER), "ssm_dt.weight": (INNER, RANK),
            "ssm_dt.bias": (INNER,), "ssm_a": (INNER, STATE), "ssm_d": (INNER,), "ssm_out.weight": (WIDTH, INNER),
        }  # fmt: skip
        shapes.update({f"blk.{i}.{name}": shape for name, shape in layer.items()})
    tensors = {}
    for name, shape in shapes.items():
        values = rng.standard_normal(shape).astype(np.float32)
        tensors[name] = values / np.sqrt(np.float32(shape[-1])) if len(shape) > 1 else 1 + values / 10
        if name.endswith("ssm_a"):
            tensors[name] = -np.abs(values) - np.float32(0.1)
    keys = {
        "context_length": 512, "embedding_length": WIDTH, "block_count": n_layer, "vocab_size": VOCAB,
        "feed_forward_length": 0, "attention.head_count": 0, "attention.layer_norm_rms_epsilon": 1e-5,
        "ssm.conv_kernel": CONV, "ssm.inner_size": INNER, "ssm.state_size": STATE, "ssm.time_step_rank": RANK,
    }  # fmt: skip
    writer = gguf.GGUFWriter(path, "mamba")
    add_keys(writer, "mamba", keys)
    add_tokenizer(writer, VOCAB)
    add_tensors(writer, tensors, "f32")
    finish(writer)
    return path
