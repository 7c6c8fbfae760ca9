"""HeadSpec: what a draft's config.json says, with every spelling folded into one.

Pure: reads a dict, touches no file and no tensor. What the draft's file format cannot hold is refused by name.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .errors import CheckpointError

IDS = "eagle_aux_hidden_state_layer_ids"
# Config switches that change the network in a way upstream's eagle3 graph has no place for: (key, value, meaning).
UNSUPPORTED = (
    ("fc_norm", True, "one norm per feature (EAGLE-3.1)"),
    ("norm_output", True, "feedback of the normed output (EAGLE-3.1; older SpecForge files mean something else by it)"),
    ("return_hidden_post_norm", True, "feedback of the normed output (EAGLE-3.1)"),
    ("use_aux_hidden_state", False, "a draft without the three target features"),
    ("use_input_layernorm_in_first_layer", False, "a first layer without its input norm"),
    ("use_last_layernorm", False, "a draft without the last norm"),
    ("use_mtp_layernorm", True, "extra norms on the inputs"),
    ("use_sliding_window", True, "a sliding window"),
)


@dataclass(frozen=True)
class Rope:
    """Rotary embedding: `kind` is "none", "linear" or "llama3"; `low`, `high` and `context` belong to llama3."""

    kind: str
    theta: float
    factor: float = 1.0
    low: float = 1.0
    high: float = 1.0
    context: int = 0

    def factors(self, head_dim: int) -> npt.NDArray[np.float32]:
        """Divisors of the frequencies, float32[head_dim / 2]: the llama3 rule of Llama 3.1's reference code."""
        frequencies = self.theta ** (-np.arange(0, head_dim, 2, dtype=np.float64) / head_dim)
        wavelengths = 2 * math.pi / frequencies
        smooth = (self.context / wavelengths - self.low) / (self.high - self.low)
        between = 1 / ((1 - smooth) / self.factor + smooth)
        long = np.where(wavelengths > self.context / self.low, self.factor, between)
        return np.where(wavelengths < self.context / self.high, 1.0, long).astype(np.float32)


@dataclass(frozen=True)
class LayerIds:
    """Explicit feature layers of a config, already meaning inputs and sorted; `rule` says how they were read."""

    ids: tuple[int, ...]
    rule: str


@dataclass(frozen=True)
class HeadSpec:
    """Sizes and switches of a draft. None = the config does not say (the tensors or the target decide)."""

    hidden: int
    ffn: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    draft_vocab: int
    target_hidden: int | None
    context: int | None
    eps: float
    rope: Rope
    layer_ids: LayerIds | None
    norm_before_residual: bool | None
    norm_before_fc: bool | None
    tied: bool
    architecture: str
    notes: tuple[str, ...]


def read_spec(config: Mapping[str, Any]) -> HeadSpec:
    """Fold a config.json into a HeadSpec. Raises CheckpointError for missing, senseless or unsupported values."""
    nested = _mapping(config, "eagle_config")
    flat = {**config, **_mapping(config, "transformer_layer_config")}
    _refuse_unsupported(flat, nested)
    notes: list[str] = []
    hidden, heads = _count(flat, "hidden_size"), _count(flat, "num_attention_heads")
    kv_heads = _count(flat, "num_key_value_heads", heads)
    head_dim = _count(flat, "head_dim", hidden // heads)
    if heads % kv_heads or head_dim % 2 or not head_dim:
        raise CheckpointError(
            f"config.json has {heads} heads, {kv_heads} K/V heads of size {head_dim}: no such attention"
        )
    vocab = _count(flat, "vocab_size")
    draft_vocab = _count(flat, "draft_vocab_size", vocab)
    if draft_vocab > vocab:
        raise CheckpointError(
            f"config.json has draft_vocab_size {draft_vocab} > vocab_size {vocab}; it cannot be larger"
        )
    if flat.get("rms_norm_eps") is None:
        notes.append("config.json has no rms_norm_eps: 1e-6, the default of Llama configs")
    return HeadSpec(
        hidden=hidden,
        ffn=_count(flat, "intermediate_size"),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        vocab=vocab,
        draft_vocab=draft_vocab,
        target_hidden=_count(flat, "target_hidden_size", 0) or None,
        context=_count(flat, "max_position_embeddings", 0) or None,
        eps=_positive(flat, "rms_norm_eps", 1e-6),
        rope=_read_rope(flat, notes),
        layer_ids=_read_layer_ids(flat.get(IDS), nested.get(IDS)),
        norm_before_residual=_switch(flat, nested, "norm_before_residual"),
        norm_before_fc=_switch(flat, nested, "norm_before_fc"),
        tied=bool(flat.get("tie_word_embeddings")),
        architecture=_architecture(flat),
        notes=tuple(notes),
    )


def _architecture(flat: Mapping[str, Any]) -> str:
    names = flat.get("architectures")
    return str(names[0]) if isinstance(names, list) and names else ""


def choose_layers(spec: HeadSpec, n_layer: int) -> LayerIds:
    """The three target layers whose inputs feed the draft, ascending, each in 0..n_layer (n_layer = the last output).

    Raises CheckpointError unless they are three different layers of a target with `n_layer` layers.
    """
    chosen = spec.layer_ids
    if chosen is None:
        ids = tuple(sorted((2, n_layer // 2, n_layer - 3)))
        chosen = LayerIds(
            ids, f"the config names none, so the default 2, n/2, n-3 of {n_layer} layers: check it was trained so"
        )
    if len(chosen.ids) != 3:
        raise CheckpointError(
            f"the draft takes {len(chosen.ids)} features {list(chosen.ids)}; this version converts three"
        )
    if len(set(chosen.ids)) != 3 or chosen.ids[0] < 0 or chosen.ids[-1] > n_layer:
        raise CheckpointError(
            f"feature layers {list(chosen.ids)} do not fit a target of {n_layer} layers ({chosen.rule})"
        )
    return chosen


def _read_layer_ids(top: Any, nested: Any) -> LayerIds | None:
    """Top-level ids are inputs; nested ones are outputs when they start at 1 (SpecForge, ModelOpt), else ambiguous."""
    outer, inner = _ids(top, IDS), _ids(nested, f"eagle_config.{IDS}")
    if outer:
        rule = f"top-level ids {outer} are inputs"
        if min(outer) == 1:
            rule += "; ids that start at 1 often mean outputs, check if few drafts are accepted"
        return LayerIds(tuple(sorted(outer)), rule)
    if not inner:
        return None
    if min(inner) == 1:
        return LayerIds(
            tuple(sorted(i + 1 for i in inner)), f"eagle_config ids {inner} start at 1, so they are outputs: +1"
        )
    return LayerIds(
        tuple(sorted(inner)), f"eagle_config ids {inner} do not start at 1, so they are taken as inputs (ambiguous)"
    )


def _ids(value: Any, key: str) -> list[int]:
    if value is None:
        return []
    if not isinstance(value, list) or any(type(i) is not int for i in value):
        raise CheckpointError(f"config.json has {key} = {value!r}; expected a list of layer numbers")
    return value


def _read_rope(flat: Mapping[str, Any], notes: list[str]) -> Rope:
    scaling = {**_mapping(flat, "rope_scaling"), **_mapping(flat, "rope_parameters")}
    if scaling.get("rope_theta") is None and flat.get("rope_theta") is None:
        notes.append("config.json has no rope_theta: 10000, the default of Llama configs")
    theta = _positive(scaling, "rope_theta", _positive(flat, "rope_theta", 10000.0))
    partial = scaling.get("partial_rotary_factor", flat.get("partial_rotary_factor"))
    if partial not in (None, 1, 1.0):
        raise CheckpointError(
            f"config.json has partial_rotary_factor = {partial!r}; this version converts full rotation only"
        )
    kind = scaling.get("rope_type") or scaling.get("type") or "default"
    if "mrope_section" in scaling:
        kind = "mrope"
    if kind == "default":
        return Rope("none", theta)
    if kind == "linear":
        return Rope("linear", theta, _positive(scaling, "factor"))
    if kind != "llama3":
        raise CheckpointError(f"config.json has rope type {kind!r}; this version converts default, linear and llama3")
    rope = Rope(
        "llama3", theta, _positive(scaling, "factor"),
        _positive(scaling, "low_freq_factor"), _positive(scaling, "high_freq_factor"),
        _count(scaling, "original_max_position_embeddings"),
    )  # fmt: skip
    if rope.high <= rope.low:
        raise CheckpointError(
            f"config.json has high_freq_factor {rope.high} <= low_freq_factor {rope.low}; it must be larger"
        )
    return rope


def _refuse_unsupported(flat: Mapping[str, Any], nested: Mapping[str, Any]) -> None:
    for key, value, meaning in UNSUPPORTED:
        for name, table in ((key, flat), (f"eagle_config.{key}", nested)):
            if table.get(key) is value:
                raise CheckpointError(f"config.json has {name} = {value}: {meaning} cannot be converted yet")
    layers = _count(flat, "num_hidden_layers", 1)
    if layers != 1:
        raise CheckpointError(
            f"config.json has num_hidden_layers = {layers}; drafts of one layer only can be converted yet"
        )
    activation = flat.get("hidden_act", "silu")
    if activation not in ("silu", "swish"):
        raise CheckpointError(f"config.json has hidden_act = {activation!r}; only silu can be converted yet")
    if "sliding_attention" in (flat.get("layer_types") or ()):
        raise CheckpointError("config.json has a sliding_attention layer: a sliding window cannot be converted yet")


def _mapping(table: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = table.get(key)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise CheckpointError(f"config.json has {key} = {value!r}; expected an object")
    return value


def _switch(flat: Mapping[str, Any], nested: Mapping[str, Any], key: str) -> bool | None:
    value = flat[key] if flat.get(key) is not None else nested.get(key)
    if value is not None and not isinstance(value, bool):
        raise CheckpointError(f"config.json has {key} = {value!r}; expected true or false")
    return value


def _count(table: Mapping[str, Any], key: str, default: int | None = None) -> int:
    value = table.get(key)
    if value is None:
        if default is None:
            raise CheckpointError(f"config.json has no {key}; is this the draft's own config?")
        return default
    if type(value) is not int or not 0 < value < 1 << 31:
        raise CheckpointError(f"config.json has {key} = {value!r}; expected a positive number")
    return value


def _positive(table: Mapping[str, Any], key: str, default: float | None = None) -> float:
    value = table.get(key)
    if value is None:
        if default is None:
            raise CheckpointError(f"config.json has no {key} for its rope type; is this the draft's own config?")
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise CheckpointError(f"config.json has {key} = {value!r}; expected a positive number")
    return float(value)
