"""Rope: a draft's rotary embedding, with every spelling of a config folded into one.

Scalings that stretch each frequency by its own constant (llama3, yarn) become divisors of the frequencies, computed by
the rules of Transformers' modeling_rope_utils.py; llama.cpp reads them as `rope_freqs`. Touches no tensor.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import CheckpointError
from .config_fields import count, mapping, positive, shown, switch

Divisors = npt.NDArray[np.float32]
THETA = 10000.0  # the default of Llama configs, and of SafeAILab's code wherever a scaling is set


@dataclass(frozen=True)
class Llama3:
    """Scaling of Llama 3.1: wavelengths beyond context / low are stretched, those within context / high are not."""

    factor: float
    low: float
    high: float
    context: int

    def divisors(self, theta: float, dim: int) -> Divisors:
        """float32[dim / 2]."""
        wavelengths = 2 * math.pi / _frequencies(theta, dim)
        smooth = (self.context / wavelengths - self.low) / (self.high - self.low)
        between = 1 / ((1 - smooth) / self.factor + smooth)
        long = np.where(wavelengths > self.context / self.low, self.factor, between)
        return np.where(wavelengths < self.context / self.high, 1.0, long).astype(np.float32)


@dataclass(frozen=True)
class Yarn:
    """YaRN (Peng et al. 2023): below `slow` rotations within `context` stretched, above `fast` kept, a ramp between."""

    factor: float
    fast: float
    slow: float
    context: int
    truncate: bool = True

    def divisors(self, theta: float, dim: int) -> Divisors:
        """float32[dim / 2]."""
        low, high = (
            dim * math.log(self.context / (turns * 2 * math.pi)) / (2 * math.log(theta))
            for turns in (self.fast, self.slow)
        )
        if self.truncate:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, dim - 1)
        ramp = np.clip((np.arange(dim // 2) - low) / max(high - low, 0.001), 0, 1)
        found: Divisors = (1 / (ramp / self.factor + 1 - ramp)).astype(np.float32)
        return found


@dataclass(frozen=True)
class Rope:
    """`kind` is the config's word for the scaling. attention: factor on the rotated vectors; partial: rotated share."""

    kind: str = "default"
    theta: float = THETA
    factor: float = 1.0
    attention: float = 1.0
    partial: float = 1.0
    scaling: Llama3 | Yarn | None = None

    def rotated(self, head_dim: int) -> int:
        """How many entries of a head are rotated, the first ones."""
        return int(head_dim * self.partial)

    def divisors(self, head_dim: int) -> Divisors | None:
        """Divisors of the frequencies, float32[rotated / 2]; None where all are 1 or one factor says it.

        Raises CheckpointError where they are no finite numbers above 0.
        """
        if self.scaling is None:
            return None
        with np.errstate(all="ignore"):
            found = self.scaling.divisors(self.theta, self.rotated(head_dim))
        if not (np.isfinite(found).all() and (found > 0).all()):
            raise CheckpointError(f"config.json has a {self.kind} scaling that gives no frequencies: {self.scaling}")
        return found

    def in_safeailab(self) -> "Rope":
        """The same as SafeAILab's eagle/model/cnets1.py reads it: with a scaling, rope_theta is left out."""
        return replace(self, theta=THETA) if self.kind in ("linear", "dynamic") else self


def read_rope(flat: Mapping[str, Any], notes: list[str]) -> Rope:
    """The rope of a config. Appends to `notes` what it assumed. Raises CheckpointError for unknown types, by name."""
    scaling = _scaling(flat)
    if scaling.get("rope_theta") is None and flat.get("rope_theta") is None:
        notes.append("config.json has no rope_theta: 10000, the default of Llama configs and of SafeAILab's training")
    theta = positive(scaling, "rope_theta", positive(flat, "rope_theta", THETA))
    share = positive(scaling, "partial_rotary_factor", positive(flat, "partial_rotary_factor", 1.0))
    if share > 1:
        raise CheckpointError(f"config.json has partial_rotary_factor = {share}; expected a share from 0 to 1")
    rope = Rope("default", theta, partial=share)
    kind = scaling.get("rope_type") or scaling.get("type") or "default"
    if kind == "mrope" or "mrope_section" in scaling:
        notes.append("mrope: for text all its sections turn alike, so it is converted as plain rope")
        kind = "default" if kind == "mrope" else kind
    if kind == "default":
        return rope
    if kind == "dynamic":
        notes.append("dynamic rope equals plain rope up to the trained context; beyond it drafts may fit less well")
        return replace(rope, kind="dynamic")
    if kind == "linear":
        return replace(rope, kind="linear", factor=positive(scaling, "factor"))
    if kind == "llama3":
        return replace(rope, kind="llama3", scaling=_llama3(scaling))
    if kind == "yarn":
        yarn = _yarn(scaling, flat, theta)
        return replace(rope, kind="yarn", scaling=yarn, attention=_attention(scaling, yarn.factor))
    raise CheckpointError(
        f"config.json has rope type {shown(kind)}; known are default, linear, dynamic, llama3, yarn and mrope"
    )


def _scaling(flat: Mapping[str, Any]) -> Mapping[str, Any]:
    """rope_scaling and rope_parameters in one; the latter may be split by kinds of layers."""
    modern = mapping(flat, "rope_parameters")
    if isinstance(modern.get("full_attention"), dict):
        modern = modern["full_attention"]
    return {**mapping(flat, "rope_scaling"), **modern}


def _llama3(scaling: Mapping[str, Any]) -> Llama3:
    found = Llama3(
        positive(scaling, "factor"),
        positive(scaling, "low_freq_factor"),
        positive(scaling, "high_freq_factor"),
        count(scaling, "original_max_position_embeddings"),
    )
    if found.high <= found.low:
        raise CheckpointError(
            f"config.json has high_freq_factor {found.high} <= low_freq_factor {found.low}; it must be larger"
        )
    return found


def _yarn(scaling: Mapping[str, Any], flat: Mapping[str, Any], theta: float) -> Yarn:
    if theta <= 1:
        raise CheckpointError(f"config.json has rope_theta = {theta}; yarn needs a base above 1")
    trained = count(scaling, "original_max_position_embeddings", count(flat, "max_position_embeddings", 2048))
    return Yarn(
        factor=positive(scaling, "factor"),
        fast=positive(scaling, "beta_fast", 32.0),
        slow=positive(scaling, "beta_slow", 1.0),
        context=trained,
        truncate=switch("truncate", scaling) is not False,
    )


def _attention(scaling: Mapping[str, Any], factor: float) -> float:
    """The factor on rotated vectors: given, or by YaRN's rule with DeepSeek's two mscales."""
    if scaling.get("attention_factor") is not None:
        return positive(scaling, "attention_factor")
    all_dims = positive(scaling, "mscale_all_dim") if scaling.get("mscale_all_dim") else 0.0
    return _mscale(factor, positive(scaling, "mscale", 1.0)) / _mscale(factor, all_dims)


def _mscale(factor: float, weight: float) -> float:
    return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0


def _frequencies(theta: float, dim: int) -> npt.NDArray[np.float64]:
    return np.asarray(theta ** (-np.arange(0, dim, 2, dtype=np.float64) / dim))
