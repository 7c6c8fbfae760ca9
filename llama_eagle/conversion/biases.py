"""Biases: whether a config's words about them agree with the tensors, which decide. Reads no values."""

from ..errors import CheckpointError
from .checkpoint import Checkpoint
from .layout import EAGLE, Layout
from .spec import HeadSpec

_PARTS = {
    "attention_bias": ("self_attn.q_proj", "self_attn.o_proj"),
    "mlp_bias": ("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"),
}


def check_biases(checkpoint: Checkpoint, layout: Layout, spec: HeadSpec) -> list[str]:
    """Notes where config and tensors differ harmlessly.

    Raises CheckpointError for a fusion bias that one has and the other denies (`bias` in SafeAILab's configs, where a
    silent config means yes; `fusion_bias` in speculators'), and for q/k/v biases that are declared and missing.
    """
    said = spec.switches
    checkpoint.has_as_declared(f"{layout.fc}.bias", "fusion_bias", said.fusion_bias)
    checkpoint.has_as_declared(f"{layout.fc}.bias", "bias", said.bias)
    notes = []
    if said.qkv_bias and f"{layout.prefixes[0]}self_attn.q_proj.bias" not in checkpoint:
        raise CheckpointError("config.json has qkv_bias = True, but the file has no q, k and v biases")
    for key, parts in _PARTS.items():
        value = getattr(said, key)
        there = any(f"{layout.prefixes[0]}{part}.bias" in checkpoint for part in parts)
        if value is not None and value != there:
            notes.append(
                f"config.json has {key} = {value}, the file has {'such' if there else 'no such'} biases: used so"
            )
    if layout.arch == EAGLE and layout.name == "safeailab" and said.bias is None and "fc.bias" not in checkpoint:
        notes.append("no fc.bias in the file, though a config without `bias` means one: converted without")
    return notes
