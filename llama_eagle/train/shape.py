"""HeadShape: sizes of a head, those of a layer of its target where these are ordinary. Plain data."""

from dataclasses import dataclass
from pathlib import Path

from ..conversion.layer_ids import default_layer_ids
from ..errors import InputError, ModelError
from ..fit import target_limits
from ..gguf_files.metadata import Metadata
from ..gguf_files.model_header import metadata_of, model_header, named_errors, whole
from ..target_side import read_target_side


@dataclass(frozen=True)
class HeadShape:
    """layers: those of the target whose inputs are the features. rotary_base: of the draft's rotary embedding."""

    n_embd: int
    n_head: int
    n_head_kv: int
    head_dim: int
    n_ff: int
    n_vocab: int
    n_ctx: int
    layers: tuple[int, ...]
    eps: float
    rotary_base: float


def shape_for(target: Path, layers: tuple[int, ...] = ()) -> HeadShape:
    """The shape of a head for a target's GGUF; `layers` instead of the default 2, n/2, n-3.

    Raises ModelError for a target that gives no features, InputError for layers that it has not.
    """
    side = read_target_side(target)
    with named_errors(target):
        if side.is_draft:
            raise ModelError(f"it is itself a draft ({side.arch}): give the model that a head is wanted for")
        if side.n_vocab is None:
            raise ModelError("it has no vocabulary: give a GGUF that carries one")
        lacks = target_limits(side.arch)
        for part in ("text", "features"):
            if part in lacks:
                raise ModelError(lacks[part])
        meta = metadata_of(model_header(target))
        n_head, n_head_kv, head_dim = _attention(meta, side.n_embd)
        return HeadShape(
            n_embd=side.n_embd,
            n_head=n_head,
            n_head_kv=n_head_kv,
            head_dim=head_dim,
            n_ff=_feed_forward(meta, side.n_embd),
            n_vocab=side.n_vocab,
            n_ctx=side.n_ctx or 2048,
            layers=_layers(side.n_layer, layers),
            eps=meta.number(f"{meta.arch}.attention.layer_norm_rms_epsilon") or 1e-5,
            rotary_base=meta.number(f"{meta.arch}.rope.freq_base") or 10000.0,
        )


def _attention(meta: Metadata, n_embd: int) -> tuple[int, int, int]:
    """Heads, K/V heads and head size: the target's, or heads of 64 where it has latent or no attention."""
    n_head = whole(meta, "attention.head_count") or 0
    head_dim = whole(meta, "attention.key_length") or (n_embd // n_head if n_head else 0)
    value_dim = whole(meta, "attention.value_length") or head_dim
    if n_head and head_dim == value_dim and head_dim <= 256 and head_dim % 2 == 0:
        n_head_kv = whole(meta, "attention.head_count_kv") or n_head
        return n_head, n_head_kv if n_head % n_head_kv == 0 else n_head, head_dim
    n_head = max(n_embd // 64, 1)
    return n_head, n_head, 64


def _feed_forward(meta: Metadata, n_embd: int) -> int:
    n_ff = whole(meta, "feed_forward_length") or 0
    dense = not whole(meta, "expert_count")
    return n_ff if n_ff and dense else -(-8 * n_embd // 3 // 64) * 64


def _layers(n_layer: int, given: tuple[int, ...]) -> tuple[int, ...]:
    if not given:
        return tuple(sorted(set(default_layer_ids(n_layer).ids)))
    if len(set(given)) < len(given) or min(given) < 0 or max(given) > n_layer:
        raise InputError(f"--layers {','.join(map(str, given))}: expected different ones of 0 to {n_layer}")
    return tuple(sorted(given))
