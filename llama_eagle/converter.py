"""convert: an EAGLE-3 checkpoint becomes the GGUF that llama.cpp's eagle3 loader reads.

Follows llama.cpp's conversion/llama.py (names, keys, permutation, absolute d2t) and src/models/eagle3.cpp. Loads no
model and runs nothing from the checkpoint.
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt

from .checkpoint import Checkpoint
from .errors import CheckpointError, InputError, ModelError
from .head_file import FILE_TYPES, Slot, Type, check_outtype, stored_type, write_head
from .head_tensors import HeadTensor, find_prefix, has_fc_norm, plan_tensors
from .spec import HeadSpec, LayerIds, choose_layers, read_spec
from .target_info import TargetInfo, read_target

ARCH = "eagle3"


@dataclass(frozen=True)
class ConvertReport:
    """What was converted: the JSON of `llama-eagle convert --json`. `target_layers` name inputs of target layers."""

    arch: str
    version: str
    layout: str
    target_layers: list[int]
    notes: list[str]
    out: str

    def to_json(self) -> dict[str, Any]:
        """The fields as a dict that json.dumps takes."""
        return asdict(self)


@dataclass(frozen=True)
class _Head:
    """A checkpoint that has been checked against its target, ready to be written."""

    checkpoint: Checkpoint
    spec: HeadSpec
    target: TargetInfo
    layers: LayerIds
    plan: list[HeadTensor]
    layout: str


def convert(checkpoint: str | Path, target: str | Path | None, out: str | Path, outtype: str = "f16") -> ConvertReport:
    """Convert the draft in folder `checkpoint` for the target GGUF `target` into `out`.

    outtype  f32, f16, bf16 or q8_0 for matrices; norms stay f32
    Raises CheckpointError (the draft), ModelError (the target, or a draft that does not fit it) and InputError
    (arguments, unwritable place). On an error `out` is what it was before.
    """
    check_outtype(outtype)
    source = Checkpoint(checkpoint)
    find_prefix(source)
    spec = read_spec(source.config)
    if target is None:
        raise InputError(
            "an EAGLE-3 draft shares its target's tokenizer and sizes; give the target with --target FILE.gguf"
        )
    out = _check_out(Path(out), Path(target))
    head = _prepare(source, spec, read_target(target))
    notes = _notes(head, outtype)
    write_head(out, _metadata(head, outtype), _slots(head, outtype))
    return ConvertReport(ARCH, "3", head.layout, list(head.layers.ids), notes, str(out))


def _prepare(source: Checkpoint, spec: HeadSpec, target: TargetInfo) -> _Head:
    _check_fit(source, spec, target)
    layers = choose_layers(spec, target.n_layer)
    plan = plan_tensors(source, spec, target.n_embd)
    _check_head(source, spec, target)
    return _Head(source, spec, target, layers, plan, _layout(source, spec))


def _check_out(out: Path, target: Path) -> Path:
    if out.is_dir():
        raise InputError(f"output {out} is a folder; give a file name, such as {out / 'head.gguf'}")
    if out.exists() and not out.is_file():  # it would be replaced, as root even /dev/null
        raise InputError(f"output {out} is a device or pipe; give a file name, such as head.gguf")
    if not out.parent.is_dir():
        raise InputError(f"folder {out.parent} of the output does not exist; make it first")
    if out.exists() and target.exists() and out.samefile(target):
        raise InputError(f"output {out} is the target itself; choose another name")
    return out


def _check_fit(source: Checkpoint, spec: HeadSpec, target: TargetInfo) -> None:
    declared = spec.target_hidden
    if declared is not None and declared != target.n_embd:
        raise ModelError(
            f"the draft is for a target of hidden size {declared}, this target has {target.n_embd}: not a pair"
        )
    if spec.vocab != target.n_vocab:
        raise ModelError(f"the draft is for a vocabulary of {spec.vocab}, this target has {target.n_vocab}: not a pair")
    if "embed_tokens.weight" not in source and spec.hidden != target.n_embd:
        raise ModelError(
            f"a draft without embed_tokens needs the target's hidden size: {spec.hidden} and {target.n_embd} do not fit"
        )


def _check_head(source: Checkpoint, spec: HeadSpec, target: TargetInfo) -> None:
    """The output head and the vocabulary map must be there, or be shared in a way that has one meaning."""
    if "d2t" in source:
        _map_tokens(source, spec)
    elif spec.draft_vocab != spec.vocab:
        raise CheckpointError(
            f"tensor d2t is missing: {spec.draft_vocab} draft tokens cannot be mapped to {spec.vocab}"
        )
    if "lm_head.weight" in source:
        return
    if "d2t" in source:
        raise CheckpointError(
            "tensor lm_head.weight is missing though d2t is there; taking rows of the target's cannot be done yet"
        )
    if spec.tied:
        if "embed_tokens.weight" not in source and not target.tied:
            raise CheckpointError(
                "the draft's head is its embedding, and neither is in the file; this target's head differs from it"
            )
    elif spec.hidden != target.n_embd:
        raise ModelError(
            f"the draft shares the target's head, but its hidden size is {spec.hidden} and the target's {target.n_embd}"
        )


def _map_tokens(source: Checkpoint, spec: HeadSpec) -> npt.NDArray[np.int64]:
    """Target id of every draft id, int64[draft_vocab]; stored are offsets (SafeAILab eagle/model/cnets.py)."""
    offsets = source.integers("d2t")
    if offsets.shape != (spec.draft_vocab,):
        raise CheckpointError(f"tensor d2t is {list(offsets.shape)}; config.json calls for [{spec.draft_vocab}]")
    ids = offsets + np.arange(spec.draft_vocab)
    outside = np.flatnonzero((ids < 0) | (ids >= spec.vocab))
    if outside.size:
        first = int(outside[0])
        raise CheckpointError(f"d2t[{first}] points at token {ids[first]}, outside the target's {spec.vocab} tokens")
    values, counts = np.unique(ids, return_counts=True)
    if values.size != ids.size:
        raise CheckpointError(
            f"d2t maps {int(counts.max())} draft tokens to the same target token {values[counts.argmax()]}"
        )
    return ids


def _layout(source: Checkpoint, spec: HeadSpec) -> str:
    if find_prefix(source) == "layers.0.":
        return "speculators"
    if spec.architecture == "Eagle3LlamaForCausalLM":
        return "angelslim"
    nested = source.config.get("eagle_config") or {}
    if any(key.startswith("use_") and key != "use_aux_hidden_state" for key in nested):
        return "modelopt"
    return "specforge" if nested or spec.architecture == "LlamaForCausalLMEagle3" else "safeailab"


def _notes(head: _Head, outtype: str) -> list[str]:
    spec, source, target = head.spec, head.checkpoint, head.target
    notes = [f"target layers {', '.join(map(str, head.layers.ids))} (inputs): {head.layers.rule}", *spec.notes]
    if target.n_ctx > (spec.context or 0):
        notes.append(f"context length {target.n_ctx} is the target's (the draft's config says {spec.context})")
    if spec.norm_before_residual is None and head.layout == "speculators":
        notes.append("config.json has no norm_before_residual: false, as speculators' own config class has it")
    if "embed_tokens.weight" not in source:
        notes.append("no embed_tokens.weight: the target's embeddings are shared")
    if "lm_head.weight" not in source:
        own = spec.tied and "embed_tokens.weight" in source
        notes.append(
            f"no lm_head.weight: the {'draft' if own else 'target'}'s {'embeddings are its' if own else 'is the'} head"
        )
    coarse = [t.name for t in head.plan if len(t.shape) == 2 and stored_type(t.shape, outtype).name.lower() != outtype]
    if coarse:
        notes.append(f"f16 instead of {outtype} where rows are no multiple of 32: {', '.join(coarse)}")
    if "t2d" in source and "d2t" in source and not _inverse_agrees(source, spec):
        notes.append("t2d disagrees with d2t; d2t is used, t2d never is")
    return notes


def _inverse_agrees(source: Checkpoint, spec: HeadSpec) -> bool:
    kept = source.booleans("t2d")
    if kept is None or kept.shape != (spec.vocab,):
        return False
    return np.array_equal(np.flatnonzero(kept), np.sort(_map_tokens(source, spec)))


def _metadata(head: _Head, outtype: str) -> gguf.GGUFWriter:
    spec, target = head.spec, head.target
    writer = gguf.GGUFWriter(None, ARCH)
    writer.add_type(gguf.GGUFType.MODEL)
    writer.add_name(head.checkpoint.folder.resolve().name)
    writer.add_file_type(FILE_TYPES[outtype])
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    writer.add_context_length(max(spec.context or 0, target.n_ctx))
    writer.add_embedding_length(spec.hidden)
    writer.add_block_count(1)
    writer.add_feed_forward_length(spec.ffn)
    writer.add_head_count(spec.heads)
    writer.add_head_count_kv(spec.kv_heads)
    writer.add_key_length(spec.head_dim)
    writer.add_value_length(spec.head_dim)
    writer.add_layer_norm_rms_eps(spec.eps)
    writer.add_vocab_size(spec.vocab)
    writer.add_rope_dimension_count(spec.head_dim)
    writer.add_rope_freq_base(spec.rope.theta)
    if spec.rope.kind == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(spec.rope.factor)
    # The gguf package does not name these four yet.
    writer.add_array(f"{ARCH}.target_layers", list(head.layers.ids))
    writer.add_uint32(f"{ARCH}.target_hidden_size", target.n_embd)
    writer.add_bool(f"{ARCH}.norm_before_residual", bool(spec.norm_before_residual))
    writer.add_bool(f"{ARCH}.norm_before_fc", has_fc_norm(head.checkpoint, spec))
    writer.add_string("llama_eagle.layout", head.layout)
    writer.add_string("llama_eagle.layer_rule", head.layers.rule)
    for meta in target.tokenizer:
        writer.add_key_value(meta.key, meta.value, meta.type, meta.item)
    return writer


def _slots(head: _Head, outtype: str) -> list[Slot]:
    slots = [_slot(head, tensor, outtype) for tensor in head.plan]
    rope, head_dim = head.spec.rope, head.spec.head_dim
    if rope.kind == "llama3":
        slots.append(Slot("rope_freqs.weight", (head_dim // 2,), Type.F32, lambda: rope.factors(head_dim)))
    return slots


def _slot(head: _Head, tensor: HeadTensor, outtype: str) -> Slot:
    source = head.checkpoint
    if tensor.name == "d2t":
        return Slot("d2t", tensor.shape, Type.I64, lambda: _map_tokens(source, head.spec))
    kind = stored_type(tensor.shape, outtype)
    return Slot(
        tensor.name, tensor.shape, kind, lambda: interleave_rope(source.floats(tensor.source), tensor.rope_heads)
    )


def interleave_rope(weight: npt.NDArray[np.float32], heads: int) -> npt.NDArray[np.float32]:
    """Rows of each head from HF's order (halves) to llama.cpp's rope type NORM (pairs); heads = 0 changes nothing."""
    if not heads:
        return weight
    halves = weight.reshape(heads, 2, -1, weight.shape[1])
    return np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(weight.shape)
