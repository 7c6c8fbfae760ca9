"""NormSwitches: which norms a draft applies where, decided from config, tensors, the producer's rule and the user.

Two keys mean different things to different producers; each decision that was open leaves a sentence behind.
"""

from dataclasses import dataclass

from ..errors import CheckpointError, InputError
from .checkpoint import Checkpoint
from .layout import EAGLE3, Layout
from .overrides import BEFORE_HEAD, FED_BACK, Overrides
from .spec import HeadSpec


@dataclass(frozen=True)
class Decision:
    """A switch and, where it was open or given by the user, the rule that set it."""

    on: bool
    rule: str = ""


@dataclass(frozen=True)
class NormSwitches:
    """`residual`: norm_before_residual. `output`: norm_output, the normed output is fed back (EAGLE-3.1).
    `fusion`: one norm over all features, `each`: one norm a feature."""

    residual: Decision
    output: Decision
    fusion: bool
    each: bool

    @property
    def version(self) -> str:
        """Of an EAGLE-3 draft: "3" or "3.1"."""
        return "3.1" if self.each or self.output.on else "3"

    @property
    def rules(self) -> list[str]:
        """Sentences about what was open."""
        return [decision.rule for decision in (self.residual, self.output) if decision.rule]


NO_NORMS = NormSwitches(Decision(False), Decision(False), False, False)


def decide_norms(checkpoint: Checkpoint, layout: Layout, spec: HeadSpec, overrides: Overrides) -> NormSwitches:
    """All norm switches of a draft; those of `eagle` are off. Raises CheckpointError where config and file
    disagree, InputError for an override that a draft has no place for."""
    if layout.arch != EAGLE3:
        _refuse_useless(overrides)
        return NO_NORMS
    fusion = checkpoint.has_as_declared("input_norm.weight", "norm_before_fc", spec.switches.norm_before_fc)
    each = checkpoint.has_as_declared("fc_norm.0.weight", "fc_norm", spec.switches.fc_norm)
    if fusion and each:
        raise CheckpointError("input_norm.weight and fc_norm.0.weight are both in the file; one of them must go")
    return NormSwitches(_residual(layout, spec, overrides), _output(layout, spec, overrides), fusion, each)


def _refuse_useless(overrides: Overrides) -> None:
    for flag, value in (
        ("--norm-output", overrides.norm_output),
        ("--norm-before-residual", overrides.norm_before_residual),
    ):
        if value is not None:
            raise InputError(f"{flag} has no use for EAGLE-1 and EAGLE-2, which have no such norm: leave it out")


def _residual(layout: Layout, spec: HeadSpec, overrides: Overrides) -> Decision:
    if overrides.norm_before_residual is not None:
        return Decision(overrides.norm_before_residual, "norm_before_residual: given with --norm-before-residual")
    if spec.switches.norm_before_residual is not None:
        return Decision(spec.switches.norm_before_residual)
    if layout.name != "speculators":
        return Decision(False)
    return Decision(
        False,
        "config.json has no norm_before_residual: no, as speculators' own config class has it (vLLM takes yes); "
        "--norm-before-residual decides",
    )


def _output(layout: Layout, spec: HeadSpec, overrides: Overrides) -> Decision:
    said = spec.switches.norm_output
    if overrides.norm_output is not None:
        return Decision(overrides.norm_output == FED_BACK, f"norm_output: {overrides.norm_output}, as given")
    if spec.switches.return_hidden_post_norm:
        return Decision(True)
    if not said:
        old = said is False and layout.name == "specforge"
        rule = "norm_output = False: plain EAGLE-3 (before 2026-09 SpecForge meant no norm before the head by it)"
        return Decision(False, rule if old else "")
    if layout.name == "speculators":
        return Decision(True)
    if layout.name == "specforge":
        return Decision(
            False,
            f"norm_output = True is open in SpecForge's files: read as {BEFORE_HEAD}, what it meant there before "
            f"2026-09; --norm-output {FED_BACK} reads it as EAGLE-3.1",
        )
    return Decision(
        True,
        f"norm_output = True: read as {FED_BACK} (EAGLE-3.1), as vLLM, SGLang and TensorRT-LLM do; "
        f"--norm-output {BEFORE_HEAD} reads it as plain EAGLE-3",
    )
