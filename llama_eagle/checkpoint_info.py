"""HeadInfo of a checkpoint folder: what the converter would make of it, without writing anything.

Decides nothing itself: the converter's plan does (draft_plan.py). Where that needs a target and none is given, what
depends on it stays open.
"""

import math
from pathlib import Path

import numpy as np

from .conversion.checkpoint import Checkpoint
from .conversion.draft_plan import NO_TOKENIZER, DraftPlan, make_plan, read_draft
from .conversion.fusion import TargetNeededError
from .conversion.head_tensors import LEFTOVERS
from .conversion.layout import EAGLE, EAGLE3, Layout
from .conversion.norm_switches import NormSwitches, decide_norms
from .conversion.overrides import Overrides
from .conversion.spec import HeadSpec
from .conversion.stored_tensor import DTYPES
from .conversion.target_info import TargetInfo, read_target
from .conversion.vocab_map import read_map
from .head_info import SHARED, HeadInfo, Sizes
from .target_side import TargetSide

_MAPS = ("d2t", "t2d")
_BY_SIZE = "a checkpoint carries no token list: it fits a target by size only"


def read_checkpoint_head(folder: Path, target: TargetSide | None) -> HeadInfo:
    """What a checkpoint is. Raises CheckpointError or ModelError, with the reason, where it cannot be converted."""
    source = Checkpoint(folder)
    layout, spec = read_draft(source)
    norms = decide_norms(source, layout, spec, Overrides())
    info = None if target is None else _target_info(folder, target)
    try:
        plan = make_plan(source, layout, spec, info, Overrides())
    except TargetNeededError as error:
        return _open_head(source, layout, spec, norms, str(error).replace("--target", "-m"))
    return _planned_head(plan)


def folder_side(folder: Path) -> TargetSide:
    """An HF folder as a target. Raises ModelError where its config says too little."""
    info = read_target(folder)
    return TargetSide(
        name=folder.resolve().name,
        arch=info.arch,
        n_layer=info.n_layer,
        n_embd=info.n_embd,
        n_ctx=info.n_ctx,
        n_vocab=info.n_vocab,
        vocabulary=None,
        tied=info.tied,
    )


def _target_info(folder: Path, side: TargetSide) -> TargetInfo:
    """The side as the converter's plan takes it, which copies no tokenizer and reads no rows here."""
    return TargetInfo(
        path=folder,
        arch=side.arch,
        n_layer=side.n_layer,
        n_embd=side.n_embd,
        n_vocab=side.n_vocab or 0,
        n_ctx=side.n_ctx or 0,
        tied=side.tied,
        tokenizer=(),
    )


def _planned_head(plan: DraftPlan) -> HeadInfo:
    written = {matrix.name for matrix in plan.matrices}
    notes = [note for note in plan.notes if note not in (*plan.norms.rules, NO_TOKENIZER)]
    return _head(
        (plan.checkpoint, plan.layout, plan.spec, plan.norms),
        features=plan.fusion.layers.ids,
        rule=plan.fusion.layers.rule,
        width=plan.fusion.width,
        shares=tuple(word for name, word in SHARED.items() if name not in written),
        notes=notes,
    )


def _open_head(source: Checkpoint, layout: Layout, spec: HeadSpec, norms: NormSwitches, why: str) -> HeadInfo:
    named = spec.layer_ids
    return _head(
        (source, layout, spec, norms),
        features=named.ids if named else (),
        rule=named.rule if named else None,
        width=spec.target_hidden,
        shares=(),
        notes=[*spec.notes, why],
    )


def _head(
    parts: tuple[Checkpoint, Layout, HeadSpec, NormSwitches],
    features: tuple[int, ...],
    rule: str | None,
    width: int | None,
    shares: tuple[str, ...],
    notes: list[str],
) -> HeadInfo:
    source, layout, spec, norms = parts
    ids = read_map(source, spec)
    return HeadInfo(
        name=source.folder.resolve().name,
        arch=layout.arch,
        version="1" if layout.arch == EAGLE else norms.version,
        layout=layout.name,
        sizes=_sizes(source, spec),
        features=features,
        target_hidden=width,
        rule=rule,
        n_vocab=spec.vocab,
        n_draft=spec.draft_vocab,
        map_end=None if ids is None else int(ids.max()) + 1,
        context=spec.context,
        rope={
            "base": spec.rope.theta,
            "scaling": spec.rope.kind,
            "factor": spec.rope.factor if spec.rope.kind == "linear" else None,
        },
        switches=_switches(norms) if layout.arch == EAGLE3 else (),
        shares=shares,
        choices=tuple(norms.rules),
        leftovers=tuple(name for name in source.names if LEFTOVERS.fullmatch(name)),
        notes=(*notes, _BY_SIZE),
    )


def _switches(norms: NormSwitches) -> tuple[str, ...]:
    on = {
        "norm_before_residual": norms.residual.on,
        "norm_before_fc": norms.fusion,
        "norm_output": norms.output.on,
        "fc_norm": norms.each,
    }
    return tuple(name for name, is_on in on.items() if is_on)


def _sizes(source: Checkpoint, spec: HeadSpec) -> Sizes:
    counts = {name: math.prod(source.shape(name)) for name in source.names}
    types = [source.dtype(name).lower() for name in source.names]
    return Sizes(
        hidden=spec.hidden,
        ffn=spec.ffn,
        layers=spec.layers,
        heads=spec.attention.heads,
        kv_heads=spec.attention.kv_heads,
        head_size=spec.attention.head_dim,
        parameters=sum(count for name, count in counts.items() if name not in _MAPS),
        bytes=sum(count * np.dtype(DTYPES[source.dtype(name)]).itemsize for name, count in counts.items()),
        types={name: types.count(name) for name in sorted(set(types))},
    )
