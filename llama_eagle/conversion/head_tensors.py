"""HeadTensor: which checkpoint tensor becomes which GGUF tensor, and its shape. Every tensor is accounted for.

Names and meanings of the output: docs/head-format.md. Those of the input: layout.py. Embeddings, head and vocabulary
map are vocab_matrices.py's. Reads no values.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass, replace

from ..errors import CheckpointError
from .checkpoint import Checkpoint
from .layout import EAGLE, EAGLE3, EMBEDDING_NORMS, Layout
from .norm_switches import NormSwitches
from .spec import HeadSpec

# Left over from training; the network never reads them.
LEFTOVERS = re.compile(r"t2d|verifier_.*|(.*\.)?rotary_emb\.(inv_freq|original_inv_freq|cos_cached|sin_cached)")
FOREIGN = (
    (r"mask_hidden", "drafting in parallel (P-EAGLE)"),
    (r".*\.self_attn\.(q_[ab]_|kv_[ab]_).*", "latent attention (MLA)"),
    (r".*\.self_attn\.sinks", "attention sinks"),
    (r".*\.mlp\.(experts|gate|router|shared_experts?)\b.*", "a mixture of experts"),
)
UNSUPPORTED = (
    (
        r"(layers\.0|transformer)\.input_layernorm\.weight|hidden_layernorm\.weight",
        "an input norm in the first layer of EAGLE-1",
    ),
    (r"(embed\w*_layernorm|hidden\w*_layernorm|enorm|hnorm)\..*", "extra norms on the inputs"),
    (r"(layers|midlayer|transformer)\..*", "a part of a layer that no draft network here has"),
)
STACKED = "fc_norm.weight"  # rows that a checkpoint keeps as tensors of their own
FEATURE_NORMS = ("hidden_states_layernorm.weight", "hnorm.weight")
LAST_NORMS = ("norm.weight", "pre_lm_head_layernorm.weight", "lm_head_layernorm.weight")


@dataclass(frozen=True)
class HeadTensor:
    """`sources`, stacked where they are several, become `name`; `shape` has rows first. The rows of each of
    `rope_heads` heads are permuted for interleaved rotation; 0: not rotated."""

    name: str
    shape: tuple[int, ...]
    sources: tuple[str, ...]
    rope_heads: int = 0

    @property
    def part(self) -> tuple[int, ...]:
        """Shape of each source."""
        return self.shape[1:] if self.name == STACKED else self.shape


def fit_attention(checkpoint: Checkpoint, layout: Layout, spec: HeadSpec) -> HeadSpec:
    """The spec with the head size that the tensors have: SafeAILab's code does not read `head_dim` of a config."""
    sizes = spec.attention
    query, key = (f"{layout.prefixes[0]}self_attn.{part}_proj.weight" for part in "qk")
    if query not in checkpoint or key not in checkpoint:
        return spec  # plan_tensors names what is missing
    rows, others = checkpoint.shape(query)[:1], checkpoint.shape(key)[:1]
    if rows == (sizes.queries,) or not rows or rows[0] % (2 * sizes.heads) or not rows[0]:
        return spec
    found = replace(sizes, head_dim=rows[0] // sizes.heads)
    if others != (found.keys,):
        return spec
    note = f"head size {found.head_dim} by the tensors (the config says {sizes.head_dim})"
    return replace(spec, attention=found, notes=(*spec.notes, note))


def plan_tensors(
    checkpoint: Checkpoint, layout: Layout, spec: HeadSpec, norms: NormSwitches, widths: tuple[int, ...]
) -> list[HeadTensor]:
    """The tensors to write, checked for presence and shape. widths: of each feature.

    Raises CheckpointError naming the first that is off.
    """
    if len(layout.prefixes) != spec.layers:
        raise CheckpointError(
            f"config.json has num_hidden_layers = {spec.layers}, the file holds {len(layout.prefixes)} decoder layers"
        )
    plan = _outer_eagle(checkpoint, spec, layout) if layout.arch == EAGLE else []
    if layout.arch == EAGLE3:
        plan = _outer_eagle3(checkpoint, spec, norms, widths)
    for index in range(spec.layers):
        plan += _layer(checkpoint, layout, spec, index)
    return plan


def check_shapes(checkpoint: Checkpoint, plan: list[HeadTensor]) -> None:
    """Raises CheckpointError naming the first tensor that is missing or of another shape than planned."""
    for tensor in plan:
        for source in tensor.sources:
            if checkpoint.shape(source) != tensor.part:
                raise CheckpointError(
                    f"tensor {source} is {list(checkpoint.shape(source))}; config.json calls for {list(tensor.part)}"
                )


def refuse_foreign(checkpoint: Checkpoint) -> None:
    """Raises CheckpointError for tensors that mark another network, before anything else is asked of the file."""
    for name in checkpoint.names:
        for pattern, meaning in FOREIGN:
            if re.fullmatch(pattern, name):
                raise CheckpointError(f"tensor {name}: {meaning} cannot be converted")


def refuse_strays(checkpoint: Checkpoint, used: Collection[str]) -> None:
    """Raises CheckpointError for a tensor that nobody takes and that is no leftover of training."""
    for name in checkpoint.names:
        if name in used or LEFTOVERS.fullmatch(name):
            continue
        for pattern, meaning in UNSUPPORTED:
            if re.fullmatch(pattern, name):
                raise CheckpointError(f"tensor {name}: {meaning} cannot be converted")
        raise CheckpointError(
            f"tensor {name} is none that this converter knows; it would be lost, so nothing is written"
        )


def _outer_eagle3(
    checkpoint: Checkpoint, spec: HeadSpec, norms: NormSwitches, widths: tuple[int, ...]
) -> list[HeadTensor]:
    total = sum(widths)
    found = _linear(checkpoint, "fc", "fc", (spec.hidden, total)) if "fc.weight" in checkpoint else []
    if not found and (norms.fusion or norms.each):
        raise CheckpointError("the file has norms of the features and no fc.weight, which they come before")
    if norms.fusion:
        found.append(HeadTensor("enc.output_norm.weight", (total,), ("input_norm.weight",)))
    if norms.each:
        sources = tuple(f"fc_norm.{i}.weight" for i in range(len(widths)))
        found.append(HeadTensor(STACKED, (len(widths), widths[0]), sources))
    if "norm.weight" not in checkpoint:
        raise CheckpointError("tensor norm.weight is missing: a draft without the last norm cannot be converted")
    return [*found, HeadTensor("output_norm.weight", (spec.hidden,), ("norm.weight",))]


def _outer_eagle(checkpoint: Checkpoint, spec: HeadSpec, layout: Layout) -> list[HeadTensor]:
    found = _linear(checkpoint, layout.fc, "fc", (spec.hidden, 2 * spec.hidden))
    norms = (
        (EMBEDDING_NORMS, "blk.0.attn_norm.weight"),
        (FEATURE_NORMS, "blk.0.attn_norm_2.weight"),
        (LAST_NORMS, "output_norm.weight"),
    )
    for spellings, name in norms:
        source = next((spelling for spelling in spellings if spelling in checkpoint), None)
        if source is not None:
            found.append(HeadTensor(name, (spec.hidden,), (source,)))
    return found


def _layer(checkpoint: Checkpoint, layout: Layout, spec: HeadSpec, index: int) -> list[HeadTensor]:
    prefix, block, hidden, sizes = layout.prefixes[index], f"blk.{index}", spec.hidden, spec.attention
    first = index == 0 and layout.arch == EAGLE3
    inputs = 2 * hidden if first else hidden
    matrices = (
        ("self_attn.q_proj", "attn_q", (sizes.queries, inputs), sizes.heads),
        ("self_attn.k_proj", "attn_k", (sizes.keys, inputs), sizes.kv_heads),
        ("self_attn.v_proj", "attn_v", (sizes.keys, inputs), 0),
        ("self_attn.o_proj", "attn_output", (hidden, sizes.queries), 0),
        ("mlp.gate_proj", "ffn_gate", (spec.ffn, hidden), 0),
        ("mlp.up_proj", "ffn_up", (spec.ffn, hidden), 0),
        ("mlp.down_proj", "ffn_down", (hidden, spec.ffn), 0),
    )
    found = _layer_norms(checkpoint, layout, hidden, index)
    for old, new, shape, heads in matrices:
        found += _linear(checkpoint, prefix + old, f"{block}.{new}", shape, heads)
    for part in "qk":
        source = f"{prefix}self_attn.{part}_norm.weight"
        if source in checkpoint:
            found.append(HeadTensor(f"{block}.attn_{part}_norm.weight", (sizes.head_dim,), (source,), 1))
    return found


def _layer_norms(checkpoint: Checkpoint, layout: Layout, hidden: int, index: int) -> list[HeadTensor]:
    prefix, block = layout.prefixes[index], f"blk.{index}"
    after = HeadTensor(f"{block}.ffn_norm.weight", (hidden,), (f"{prefix}post_attention_layernorm.weight",))
    before, feature = f"{prefix}input_layernorm.weight", f"{prefix}hidden_norm.weight"
    if index:  # SGLang's further layers call their input norm hidden_norm
        source = feature if before not in checkpoint and feature in checkpoint else before
        return [HeadTensor(f"{block}.attn_norm.weight", (hidden,), (source,)), after]
    if layout.arch == EAGLE:
        return [after]
    return [
        HeadTensor(f"{block}.attn_norm.weight", (hidden,), (before,)),
        HeadTensor(f"{block}.attn_norm_2.weight", (hidden,), (feature,)),
        after,
    ]


def _linear(
    checkpoint: Checkpoint, old: str, new: str, shape: tuple[int, int], rope_heads: int = 0
) -> list[HeadTensor]:
    """A matrix, and its bias where there is one."""
    found = [HeadTensor(f"{new}.weight", shape, (f"{old}.weight",), rope_heads)]
    if f"{old}.bias" in checkpoint:
        found.append(HeadTensor(f"{new}.bias", shape[:1], (f"{old}.bias",), rope_heads))
    return found
