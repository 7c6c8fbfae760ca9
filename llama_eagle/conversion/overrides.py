"""Overrides: what a user decides about a conversion where the checkpoint leaves it open. Plain data."""

from dataclasses import dataclass

from ..errors import InputError

FED_BACK, BEFORE_HEAD = "fed-back", "before-head"


@dataclass(frozen=True)
class Overrides:
    """None = by the checkpoint and its producer's rule.

    target_layers         ids in the order of fc's columns, as inputs of layers; n_layer and -1: see docs/head-format.md
    norm_output           "fed-back": the output after the final norm is the next feature (EAGLE-3.1);
                          "before-head": the norm serves the head alone (EAGLE-3)
    norm_before_residual  whether the normed feature is the first layer's residual
    with_embeddings       write embeddings and head into the file even where the target's would be shared
    """

    target_layers: tuple[int, ...] | None = None
    norm_output: str | None = None
    norm_before_residual: bool | None = None
    with_embeddings: bool = False

    def __post_init__(self) -> None:
        if self.norm_output not in (None, FED_BACK, BEFORE_HEAD):
            raise InputError(f"norm_output {self.norm_output!r} is unknown; choose {FED_BACK} or {BEFORE_HEAD}")
