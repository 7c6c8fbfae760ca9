"""Fusion: which features a draft's `fc` fuses: how many, how wide, of which layers. Reads shapes, no values."""

from dataclasses import dataclass

from ..errors import CheckpointError, InputError, ModelError
from .checkpoint import Checkpoint
from .layer_ids import POST_NORM, LayerIds, check_layer_ids, default_layer_ids, given_layer_ids
from .layout import EAGLE, Layout
from .overrides import Overrides
from .spec import HeadSpec
from .target_info import TargetInfo

DEFAULT_COUNT = 3  # features of a draft whose config names no layers


class TargetNeededError(InputError):
    """The checkpoint alone does not suffice."""

    def __init__(self, why: str) -> None:
        super().__init__(f"{why}: give the target with --target (its GGUF file, HF folder or hub id)")


@dataclass(frozen=True)
class Fusion:
    """`layers`: one feature each, `width` numbers wide (the target's hidden size)."""

    width: int
    layers: LayerIds

    @property
    def count(self) -> int:
        """Number of features."""
        return len(self.layers.ids)


def find_fusion(
    checkpoint: Checkpoint, layout: Layout, spec: HeadSpec, target: TargetInfo | None, overrides: Overrides
) -> Fusion:
    """Features of a draft. Raises CheckpointError, ModelError (no pair) and TargetNeededError."""
    given = None if overrides.target_layers is None else given_layer_ids(overrides.target_layers)
    known = _known_width(spec, target)
    if layout.arch == EAGLE:
        if given is not None and given.ids != POST_NORM.ids:
            raise InputError("--target-layers has no use for EAGLE-1 and EAGLE-2: they read the last hidden state")
        if known not in (None, spec.hidden):
            raise ModelError(f"the draft has hidden size {spec.hidden}, this target {known}: not a pair")
        return Fusion(spec.hidden, POST_NORM)
    if f"{layout.fc}.weight" not in checkpoint:
        return _unfused(checkpoint, spec, given, known)
    shape = checkpoint.shape(f"{layout.fc}.weight")
    if len(shape) != 2 or shape[0] != spec.hidden:
        raise CheckpointError(f"tensor fc.weight is {list(shape)}; config.json calls for [{spec.hidden}, features]")
    width = known or _width_by_ids(shape[1], spec, given)
    if shape[1] % width:
        raise CheckpointError(
            f"tensor fc.weight is {list(shape)}: {shape[1]} columns are no whole number of features of {width}"
        )
    layers = given or _choose(shape[1] // width, spec, target)
    check_layer_ids(layers, shape[1] // width, None if target is None else target.n_layer)
    return Fusion(width, layers)


def _known_width(spec: HeadSpec, target: TargetInfo | None) -> int | None:
    declared = spec.target_hidden
    if target is None:
        return declared
    if declared not in (None, target.n_embd):
        raise ModelError(
            f"the draft is for a target of hidden size {declared}, this target has {target.n_embd}: not a pair"
        )
    return target.n_embd


def _width_by_ids(columns: int, spec: HeadSpec, given: LayerIds | None) -> int:
    named = given or spec.layer_ids
    if spec.switches.use_aux_hidden_state is False and given is None:
        return spec.hidden
    if named is None or columns % len(named.ids):
        raise TargetNeededError("the config says neither how wide nor how many the target's features are")
    return columns // len(named.ids)


def _unfused(checkpoint: Checkpoint, spec: HeadSpec, given: LayerIds | None, known: int | None) -> Fusion:
    """Without fc the one feature is used as it is (vLLM, use_aux_hidden_state = false)."""
    named = given or (spec.layer_ids if spec.layer_ids and len(spec.layer_ids.ids) == 1 else None)
    if named is None and spec.switches.use_aux_hidden_state is not False:
        raise CheckpointError(
            f"{checkpoint.folder} has no fc.weight, and its config does not say use_aux_hidden_state = false: "
            "download it again"
        )
    if known not in (None, spec.hidden):
        raise CheckpointError(
            f"{checkpoint.folder} has no fc.weight: its feature must be {spec.hidden} wide, the target's is {known}"
        )
    layers = named or _last_hidden(spec)
    check_layer_ids(layers, 1, None)
    return Fusion(spec.hidden, layers)


def _choose(count: int, spec: HeadSpec, target: TargetInfo | None) -> LayerIds:
    """Layers of `count` features where the user gave none."""
    named = spec.layer_ids
    aux = spec.switches.use_aux_hidden_state is not False
    if count == 1 and (named is None or (len(named.ids) != 1 and not aux)):
        return _last_hidden(spec)
    if not aux and count > 1:
        raise CheckpointError(
            f"config.json has use_aux_hidden_state = False, but fc.weight fuses {count} features; an fc over embedding "
            "and feature in an EAGLE-3 layer cannot be converted. If they are layers, name them with --target-layers"
        )
    if named is not None:
        return named
    if count != DEFAULT_COUNT:
        raise CheckpointError(
            f"tensor fc.weight fuses {count} features and the config names no layers; name them with --target-layers"
        )
    if target is None:
        raise TargetNeededError("the config names no layers, and the default depends on the target's number of them")
    return default_layer_ids(target.n_layer)


def _last_hidden(spec: HeadSpec) -> LayerIds:
    if spec.switches.use_aux_hidden_state is False:
        why = "use_aux_hidden_state is false, and the file leaves open which norm state is meant"
    else:
        why = "one feature, and the config names no layer"
    return LayerIds(POST_NORM.ids, f"{why}: {POST_NORM.rule}, as vLLM has it; --target-layers decides")
