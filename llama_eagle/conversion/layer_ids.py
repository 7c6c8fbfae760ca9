"""LayerIds: which of the target's layers feed a draft, and the rule that says so.

An id i means the input of layer i; n_layer the last layer's output before the final norm, -1 the one after it. Pure.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import CheckpointError, InputError
from ..gguf_files.head import LAST_HIDDEN
from ..gguf_files.metadata import MOST_LAYERS
from .config_fields import layer_numbers, shown

IDS = "eagle_aux_hidden_state_layer_ids"


@dataclass(frozen=True)
class LayerIds:
    """Ids in the order of fc's columns; `rule` says how they were found."""

    ids: tuple[int, ...]
    rule: str


POST_NORM = LayerIds((LAST_HIDDEN,), "the last hidden state after the final norm")


def read_layer_ids(flat: Mapping[str, Any], nested: Mapping[str, Any]) -> LayerIds | None:
    """Ids that a config names. Top-level ones are inputs; nested ones outputs where the smallest is 1, else inputs.

    The rules of vLLM, speculators (top level) and of SpecForge, ModelOpt and SGLang (nested in eagle_config).
    """
    outer, inner = layer_numbers(flat, IDS, IDS), layer_numbers(nested, IDS, f"eagle_config.{IDS}")
    if min((*outer, *inner), default=0) < 0:
        raise CheckpointError(f"config.json has {IDS} = {shown(outer or inner)}: negative numbers fit no target")
    if outer:
        rule = f"top-level ids {shown(outer)} are inputs"
        if min(outer) == 1:
            rule += "; ids that start at 1 often mean outputs, check if few drafts are accepted"
        return LayerIds(tuple(sorted(outer)), rule)
    if not inner:
        return None
    if min(inner) == 1:
        shifted = tuple(sorted(i + 1 for i in inner))
        return LayerIds(shifted, f"eagle_config ids {shown(inner)} start at 1, so they are outputs: +1")
    rule = f"eagle_config ids {shown(inner)} do not start at 1, so they are taken as inputs"
    return LayerIds(tuple(sorted(inner)), f"{rule} (ambiguous; --target-layers decides)")


def given_layer_ids(ids: Sequence[int]) -> LayerIds:
    """Ids that the user gave: inputs, in that order. Raises InputError for doubles and for ids below -1."""
    if not ids or len(set(ids)) != len(ids) or min(ids) < LAST_HIDDEN:
        raise InputError(f"--target-layers {','.join(map(str, ids))!r}: expected different layers such as 2,18,33")
    return LayerIds(tuple(ids), "given with --target-layers")


def default_layer_ids(n_layer: int) -> LayerIds:
    """2, n/2, n-3 of a target with n layers, as SafeAILab, vLLM, SGLang and (as outputs) SpecForge have it.

    Raises CheckpointError for targets of fewer than 3 layers.
    """
    if n_layer < 3:
        raise CheckpointError(f"the config names no layers, and the default 2, n/2, n-3 does not fit {n_layer} layers")
    ids = tuple(sorted((2, n_layer // 2, n_layer - 3)))
    rule = f"the config names none, so the default 2, n/2, n-3 of {n_layer} layers: warning, check it was trained so"
    return LayerIds(ids, rule)


def check_layer_ids(layers: LayerIds, count: int, n_layer: int | None) -> None:
    """Raises CheckpointError unless they are `count` different layers of a target of n_layer layers (None: unknown)."""
    ids = layers.ids
    if len(ids) != count:
        raise CheckpointError(
            f"the draft fuses {count} features, but {len(ids)} layers {shown(list(ids))} are named ({layers.rule}); "
            "name them with --target-layers"
        )
    highest = min(n_layer or MOST_LAYERS, MOST_LAYERS)
    if len(set(ids)) != count or min(ids) < LAST_HIDDEN or max(ids) > highest:
        size = "" if n_layer is None else f" of {n_layer} layers"
        raise CheckpointError(
            f"feature layers {shown(list(ids))} do not fit a target{size} ({layers.rule}); --target-layers names others"
        )
