"""HeadTensor: which checkpoint tensor becomes which GGUF tensor, and its shape. Every tensor is accounted for.

Layouts: `midlayer.*` (SafeAILab eagle/model/cnets.py, SpecForge, AngelSlim, ModelOpt) and `layers.0.*` (speculators).
Names and meanings of the output are those of llama.cpp's src/models/eagle3.cpp. Reads no values.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from .checkpoint import Checkpoint
from .errors import CheckpointError
from .spec import HeadSpec

PREFIXES = ("midlayer.", "layers.0.")
# Left over from training; the network never reads them.
LEFTOVERS = re.compile(r"t2d|verifier_.*|(.*\.)?rotary_emb\.(inv_freq|cos_cached|sin_cached)")
UNSUPPORTED = (
    (r"fc\.bias", "a bias of the feature fusion"),
    (r"fc_norm\..*", "one norm per feature (EAGLE-3.1)"),
    (r".*\.self_attn\.[qkvo]_proj\.bias", "attention biases"),
    (r".*\.mlp\.\w+_proj\.bias", "MLP biases"),
    (r".*\.self_attn\.[qk]_norm\..*", "q/k norms"),
    (r"(layers|midlayer)\.\d+\..*", "more than one layer"),
    (r"mask_hidden|(embedding_layernorm|hidden_states_layernorm)\..*", "a parallel or extra-norm EAGLE variant"),
)


@dataclass(frozen=True)
class HeadTensor:
    """`source` becomes `name` in the GGUF; `shape` has rows first; with `rope_heads` > 0 its rows are permuted."""

    source: str
    name: str
    shape: tuple[int, ...]
    rope_heads: int = 0


def find_prefix(checkpoint: Checkpoint) -> str:
    """Prefix of the decoder layer's tensors. Raises CheckpointError if the checkpoint is no EAGLE-3 draft."""
    names = checkpoint.names
    for prefix in PREFIXES:
        if f"{prefix}hidden_norm.weight" in checkpoint:
            return prefix
    if "fc.weight" in checkpoint and any(name.startswith("layers.0.") for name in names):
        raise CheckpointError(
            f"{checkpoint.folder} is an EAGLE-1/2 draft (no hidden_norm), which cannot be converted yet"
        )
    some = ", ".join(names[:3]) or "none"
    raise CheckpointError(
        f"{checkpoint.folder} is not an EAGLE draft: no midlayer.hidden_norm.weight among its tensors ({some}, ...)"
    )


def plan_tensors(checkpoint: Checkpoint, spec: HeadSpec, target_hidden: int) -> list[HeadTensor]:
    """The tensors to write, checked for presence and shape. Raises CheckpointError naming the first that is off."""
    if "fc.weight" not in checkpoint:
        raise CheckpointError(
            f"{checkpoint.folder} has no fc.weight: a draft without feature fusion cannot be converted yet"
        )
    prefix = find_prefix(checkpoint)
    plan = [*_outer_tensors(checkpoint, spec, target_hidden), *_layer_tensors(spec, prefix)]
    _refuse_strays(checkpoint, [tensor.source for tensor in plan])
    for tensor in plan:
        shape = checkpoint.shape(tensor.source)
        if tensor.source == "fc.weight":
            _check_features(shape, spec, target_hidden)
        if shape != tensor.shape:
            raise CheckpointError(
                f"tensor {tensor.source} is {list(shape)}; config.json calls for {list(tensor.shape)}"
            )
    return plan


def has_fc_norm(checkpoint: Checkpoint, spec: HeadSpec) -> bool:
    """Whether the features are normed before fc. Raises CheckpointError if config and tensors disagree."""
    present = "input_norm.weight" in checkpoint
    if spec.norm_before_fc is not None and spec.norm_before_fc != present:
        what = "is in the file" if present else "is missing"
        raise CheckpointError(
            f"config.json has norm_before_fc = {spec.norm_before_fc}, but tensor input_norm.weight {what}"
        )
    return present


def _outer_tensors(checkpoint: Checkpoint, spec: HeadSpec, target_hidden: int) -> list[HeadTensor]:
    features = 3 * target_hidden
    tensors = [HeadTensor("fc.weight", "fc.weight", (spec.hidden, features))]
    if has_fc_norm(checkpoint, spec):
        tensors.append(HeadTensor("input_norm.weight", "enc.output_norm.weight", (features,)))
    tensors.append(HeadTensor("norm.weight", "output_norm.weight", (spec.hidden,)))
    if "lm_head.weight" in checkpoint:
        tensors.append(HeadTensor("lm_head.weight", "output.weight", (spec.draft_vocab, spec.hidden)))
    elif spec.tied and "embed_tokens.weight" in checkpoint and spec.draft_vocab == spec.vocab:
        tensors.append(HeadTensor("embed_tokens.weight", "output.weight", (spec.vocab, spec.hidden)))
    if "embed_tokens.weight" in checkpoint:
        tensors.append(HeadTensor("embed_tokens.weight", "token_embd.weight", (spec.vocab, spec.hidden)))
    if "d2t" in checkpoint:
        tensors.append(HeadTensor("d2t", "d2t", (spec.draft_vocab,)))
    return tensors


def _layer_tensors(spec: HeadSpec, prefix: str) -> list[HeadTensor]:
    hidden, queries, keys = spec.hidden, spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim
    rows = (
        ("input_layernorm", "attn_norm", (hidden,), 0),
        ("hidden_norm", "attn_norm_2", (hidden,), 0),
        ("self_attn.q_proj", "attn_q", (queries, 2 * hidden), spec.heads),
        ("self_attn.k_proj", "attn_k", (keys, 2 * hidden), spec.kv_heads),
        ("self_attn.v_proj", "attn_v", (keys, 2 * hidden), 0),
        ("self_attn.o_proj", "attn_output", (hidden, queries), 0),
        ("post_attention_layernorm", "ffn_norm", (hidden,), 0),
        ("mlp.gate_proj", "ffn_gate", (spec.ffn, hidden), 0),
        ("mlp.up_proj", "ffn_up", (spec.ffn, hidden), 0),
        ("mlp.down_proj", "ffn_down", (hidden, spec.ffn), 0),
    )
    return [HeadTensor(f"{prefix}{old}.weight", f"blk.0.{new}.weight", shape, heads) for old, new, shape, heads in rows]


def _refuse_strays(checkpoint: Checkpoint, used: Sequence[str]) -> None:
    for name in checkpoint.names:
        if name in used or LEFTOVERS.fullmatch(name):
            continue
        for pattern, meaning in UNSUPPORTED:
            if re.fullmatch(pattern, name):
                raise CheckpointError(f"tensor {name}: {meaning} cannot be converted yet")
        raise CheckpointError(
            f"tensor {name} is none that this converter knows; it would be lost, so nothing is written"
        )


def _check_features(shape: tuple[int, ...], spec: HeadSpec, target_hidden: int) -> None:
    expected = (spec.hidden, 3 * target_hidden)
    if shape == expected or len(shape) != 2 or shape[0] != spec.hidden or shape[1] % target_hidden:
        return
    count = shape[1] // target_hidden
    raise CheckpointError(
        f"tensor fc.weight is {list(shape)}: it fuses {count} features, and only three can be converted yet"
    )
