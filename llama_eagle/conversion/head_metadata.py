"""The metadata of a head's GGUF, written from a DraftPlan: the keys of docs/head-format.md."""

import os

import gguf

from .draft_plan import DraftPlan
from .layout import EAGLE3
from .number_format import FILE_TYPES

UNKNOWN_CONTEXT = 4096  # where neither draft nor target says one
RULES = "llama_eagle.{}_rule"  # why an open choice was made


def context_length(plan: DraftPlan) -> int:
    """The longer of the draft's and the target's: a draft keeps up with its target as far as that goes."""
    known = [n for n in (plan.spec.context, plan.target and plan.target.n_ctx) if n]
    return max(known, default=UNKNOWN_CONTEXT)


def write_metadata(plan: DraftPlan, outtype: str) -> gguf.GGUFWriter:
    """A writer that holds all metadata of the head and no tensors."""
    spec, arch = plan.spec, plan.layout.arch
    writer = gguf.GGUFWriter(None, arch)
    writer.add_type(gguf.GGUFType.MODEL)
    writer.add_name(os.fsencode(plan.checkpoint.folder.resolve().name).decode("utf-8", "replace"))
    writer.add_file_type(FILE_TYPES[outtype])
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    writer.add_context_length(context_length(plan))
    writer.add_embedding_length(spec.hidden)
    writer.add_block_count(spec.layers)
    writer.add_feed_forward_length(spec.ffn)
    writer.add_head_count(spec.attention.heads)
    writer.add_head_count_kv(spec.attention.kv_heads)
    writer.add_key_length(spec.attention.head_dim)
    writer.add_value_length(spec.attention.head_dim)
    writer.add_layer_norm_rms_eps(spec.eps)
    writer.add_vocab_size(spec.vocab)
    _write_rope(plan, writer)
    # The gguf package does not name these yet.
    writer.add_array(f"{arch}.target_layers", list(plan.fusion.layers.ids))
    writer.add_uint32(f"{arch}.target_hidden_size", plan.fusion.width)
    if arch == EAGLE3:
        writer.add_bool(f"{arch}.norm_before_residual", plan.norms.residual.on)
        writer.add_bool(f"{arch}.norm_before_fc", plan.norms.fusion)
        if plan.norms.output.on:
            writer.add_bool(f"{arch}.norm_output", True)
    _write_origin(plan, writer)
    _write_tokenizer(plan, writer)
    return writer


def _write_rope(plan: DraftPlan, writer: gguf.GGUFWriter) -> None:
    rope = plan.spec.rope
    writer.add_rope_dimension_count(rope.rotated(plan.spec.attention.head_dim))
    writer.add_rope_freq_base(rope.theta)
    if rope.kind == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(rope.factor)
    if rope.attention != 1.0:
        writer.add_rope_scaling_attn_factors(rope.attention)


def _write_origin(plan: DraftPlan, writer: gguf.GGUFWriter) -> None:
    writer.add_string("llama_eagle.conversion.layout", plan.layout.name)
    writer.add_string("llama_eagle.version", plan.version)
    writer.add_string("llama_eagle.rope_type", plan.spec.rope.kind)
    writer.add_string(RULES.format("layer"), plan.fusion.layers.rule)
    for name, decision in (("norm_before_residual", plan.norms.residual), ("norm_output", plan.norms.output)):
        if decision.rule:
            writer.add_string(RULES.format(name), decision.rule)


def _write_tokenizer(plan: DraftPlan, writer: gguf.GGUFWriter) -> None:
    found = plan.target.tokenizer if plan.target else ()
    if not found:
        writer.add_tokenizer_model("none")
    for meta in found:
        writer.add_key_value(meta.key, meta.value, meta.type, meta.item)
