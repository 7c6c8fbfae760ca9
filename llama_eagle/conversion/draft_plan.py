"""DraftPlan: everything decided about a draft before a byte is written.

Joins config (spec), tensors (layout, head_tensors), target and the user's overrides; reads the vocabulary map, no other
values.
"""

from dataclasses import dataclass, replace

from ..errors import CheckpointError, ModelError
from .biases import check_biases
from .checkpoint import Checkpoint
from .fusion import Fusion, find_fusion
from .head_tensors import HeadTensor, check_shapes, fit_attention, plan_tensors, refuse_foreign, refuse_strays
from .layout import EAGLE, Layout, find_layout
from .norm_switches import NormSwitches, decide_norms
from .overrides import Overrides
from .spec import HeadSpec, read_spec
from .target_info import TargetInfo
from .vocab_map import Ids, inverse_agrees, read_map
from .vocab_matrices import VocabMatrices, VocabMatrix

SAME_NETWORK = (
    "EAGLE-1 and EAGLE-2 are one network, which differs in its trees alone: the file does not say which it is"
)
NO_TOKENIZER = "no tokenizer is written: the target's own is used, and the pair is checked by sizes only"


@dataclass(frozen=True)
class DraftPlan:
    """A checkpoint that was checked against its target, ready to be written. ids: of the vocabulary map, if any."""

    checkpoint: Checkpoint
    layout: Layout
    spec: HeadSpec
    target: TargetInfo | None
    fusion: Fusion
    norms: NormSwitches
    tensors: list[HeadTensor]
    matrices: list[VocabMatrix]
    ids: Ids | None
    notes: tuple[str, ...]

    @property
    def version(self) -> str:
        """ "1" (EAGLE-1 and EAGLE-2), "3" or "3.1"."""
        return "1" if self.layout.arch == EAGLE else self.norms.version


def read_draft(checkpoint: Checkpoint) -> tuple[Layout, HeadSpec]:
    """Layout and sizes of a checkpoint, corrected by its tensors. Raises CheckpointError if it is no EAGLE draft."""
    refuse_foreign(checkpoint)
    layout = find_layout(checkpoint)
    spec = fit_attention(checkpoint, layout, read_spec(checkpoint.config, layout.arch))
    rotated = spec.rope.rotated(spec.attention.head_dim)
    if rotated < 2 or rotated % 2:
        raise CheckpointError(
            f"config.json has partial_rotary_factor = {spec.rope.partial}: {rotated} of {spec.attention.head_dim} "
            "entries of a head cannot be rotated in pairs"
        )
    if layout.arch == EAGLE and layout.name == "safeailab":
        rope = spec.rope.in_safeailab()
        if rope != spec.rope:
            note = (
                f"rope_theta {spec.rope.theta:g} is not used: with rope_scaling SafeAILab's code takes {rope.theta:g}"
            )
            spec = replace(spec, rope=rope, notes=(*spec.notes, note))
    return layout, spec


def make_plan(
    checkpoint: Checkpoint, layout: Layout, spec: HeadSpec, target: TargetInfo | None, overrides: Overrides
) -> DraftPlan:
    """Decide everything. Raises CheckpointError, ModelError (no pair), InputError (an override that fits nothing), and
    TargetNeededError where only the target can tell."""
    if target is not None and spec.vocab != target.n_vocab:
        raise ModelError(f"the draft is for a vocabulary of {spec.vocab}, this target has {target.n_vocab}: not a pair")
    norms = decide_norms(checkpoint, layout, spec, overrides)
    notes = check_biases(checkpoint, layout, spec)
    fusion = find_fusion(checkpoint, layout, spec, target, overrides)
    tensors = plan_tensors(checkpoint, layout, spec, norms, (fusion.width,) * fusion.count)
    ids = read_map(checkpoint, spec)
    matrices = VocabMatrices(checkpoint, spec, target, ids)
    refuse_strays(checkpoint, {source for tensor in tensors for source in tensor.sources} | matrices.used)
    check_shapes(checkpoint, tensors)
    matrices.choose(layout, fusion.width, overrides)
    if not inverse_agrees(checkpoint, ids, spec.vocab):
        notes.append("t2d disagrees with d2t; d2t is used, t2d never is")
    said = (*spec.notes, *norms.rules, *matrices.notes, *notes, *_about(layout, target, tensors))
    return DraftPlan(checkpoint, layout, spec, target, fusion, norms, tensors, matrices.found, ids, said)


def _about(layout: Layout, target: TargetInfo | None, tensors: list[HeadTensor]) -> list[str]:
    notes = []
    if layout.arch == EAGLE:
        notes.append(SAME_NETWORK)
        notes += [f"{t.sources[0]}: a norm before the head" for t in tensors if t.name == "output_norm.weight"]
    if target is None or not target.tokenizer:
        notes.append(NO_TOKENIZER)
    return notes
