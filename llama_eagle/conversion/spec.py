"""HeadSpec: what a draft's config.json says, with every spelling folded into one.

Pure: reads a dict, touches no file and no tensor. What no draft network here computes is refused by name.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import CheckpointError
from .config_fields import count, mapping, positive, shown, switch
from .layer_ids import LayerIds, read_layer_ids
from .rope import Rope, read_rope

# Config switches that change the network in a way no graph has a place for: (key, value, meaning).
UNSUPPORTED = (
    ("use_mtp_layernorm", True, "extra norms on the inputs (MTP)"),
    ("use_sliding_window", True, "a sliding window"),
)
UNSUPPORTED_EAGLE3 = (
    ("use_input_layernorm_in_first_layer", False, "a first layer without its input norm"),
    ("use_last_layernorm", False, "a draft without the last norm"),
)


@dataclass(frozen=True)
class Attention:
    """Sizes of attention; `head_dim` may be corrected by the tensors (head_tensors.fit_attention)."""

    heads: int
    kv_heads: int
    head_dim: int

    @property
    def queries(self) -> int:
        """Rows of q."""
        return self.heads * self.head_dim

    @property
    def keys(self) -> int:
        """Rows of k and of v."""
        return self.kv_heads * self.head_dim


@dataclass(frozen=True)
class Switches:
    """True, False or None where the config is silent."""

    norm_before_residual: bool | None = None
    norm_before_fc: bool | None = None
    fc_norm: bool | None = None
    norm_output: bool | None = None
    return_hidden_post_norm: bool | None = None
    use_aux_hidden_state: bool | None = None
    bias: bool | None = None
    fusion_bias: bool | None = None
    qkv_bias: bool | None = None
    attention_bias: bool | None = None
    mlp_bias: bool | None = None


@dataclass(frozen=True)
class HeadSpec:
    """Sizes and switches of a draft. None = the config does not say (the tensors or the target decide)."""

    hidden: int
    ffn: int
    attention: Attention
    layers: int
    vocab: int
    draft_vocab: int
    target_hidden: int | None
    context: int | None
    eps: float
    rope: Rope
    layer_ids: LayerIds | None
    switches: Switches
    tied: bool
    verifier: str
    notes: tuple[str, ...]


def read_spec(config: Mapping[str, Any], arch: str = "eagle3") -> HeadSpec:
    """Fold a config.json into a HeadSpec. Raises CheckpointError for missing, senseless or unsupported values."""
    nested = mapping(config, "eagle_config")
    flat = {**config, **mapping(config, "transformer_layer_config")}
    _refuse_unsupported(flat, nested, arch)
    notes: list[str] = []
    vocab = count(flat, "vocab_size")
    draft_vocab = count(flat, "draft_vocab_size", vocab)
    if draft_vocab > vocab:
        raise CheckpointError(
            f"config.json has draft_vocab_size {draft_vocab} > vocab_size {vocab}; it cannot be larger"
        )
    if flat.get("rms_norm_eps") is None:
        notes.append("config.json has no rms_norm_eps: 1e-6, the default of Llama configs")
    _note_window(flat, notes)
    return HeadSpec(
        hidden=count(flat, "hidden_size"),
        ffn=count(flat, "intermediate_size"),
        attention=_attention(flat),
        layers=count(flat, "num_hidden_layers", 1),
        vocab=vocab,
        draft_vocab=draft_vocab,
        target_hidden=count(flat, "target_hidden_size", 0) or None,
        context=count(flat, "max_position_embeddings", 0) or None,
        eps=positive(flat, "rms_norm_eps", 1e-6),
        rope=read_rope(flat, notes),
        layer_ids=read_layer_ids(flat, nested),
        switches=Switches(**{key: switch(key, flat, nested) for key in Switches.__dataclass_fields__}),
        tied=switch("tie_word_embeddings", flat) is True,
        verifier=_verifier(config),
        notes=tuple(notes),
    )


def _attention(flat: Mapping[str, Any]) -> Attention:
    hidden, heads = count(flat, "hidden_size"), count(flat, "num_attention_heads")
    kv_heads = count(flat, "num_key_value_heads", heads)
    head_dim = count(flat, "head_dim", hidden // heads)
    if heads % kv_heads or head_dim % 2 or not head_dim:
        raise CheckpointError(
            f"config.json has {heads} heads, {kv_heads} K/V heads of size {head_dim}: no such attention"
        )
    return Attention(heads, kv_heads, head_dim)


def _verifier(config: Mapping[str, Any]) -> str:
    """The target that a speculators config names, empty if none."""
    name = mapping(mapping(config, "speculators_config"), "verifier").get("name_or_path")
    return name if isinstance(name, str) else ""


def _refuse_unsupported(flat: Mapping[str, Any], nested: Mapping[str, Any], arch: str) -> None:
    for key, value, meaning in (*UNSUPPORTED, *(UNSUPPORTED_EAGLE3 if arch == "eagle3" else ())):
        for name, table in ((key, flat), (f"eagle_config.{key}", nested)):
            if table.get(key) is value:
                raise CheckpointError(f"config.json has {name} = {value}: {meaning} cannot be converted")
    activation = flat.get("hidden_act") or "silu"
    if activation not in ("silu", "swish"):
        raise CheckpointError(f"config.json has hidden_act = {shown(activation)}; only silu can be converted")
    kinds = flat.get("layer_types")
    if isinstance(kinds, list) and "sliding_attention" in kinds:
        raise CheckpointError("config.json has a sliding_attention layer: a sliding window cannot be converted")


def _note_window(flat: Mapping[str, Any], notes: list[str]) -> None:
    window, context = flat.get("sliding_window"), flat.get("max_position_embeddings")
    if type(window) is int and type(context) is int and window < context and flat.get("use_sliding_window") is None:
        notes.append(f"sliding_window = {window} is not applied: draft layers of this kind attend to everything")
