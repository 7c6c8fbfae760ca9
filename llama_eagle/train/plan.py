"""Plan: what a training is to do, and which target it is for; kept in its folder, so that it can be resumed."""

import json
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from ..checks import whole
from ..errors import InputError, TrainingError
from .recipe import Recipe

MAY_CHANGE = ("tokens", "hours", "epochs", "muon", "adam", "negatives", "disk", "parallel", "workers", "threads",
              "outtype")  # fmt: skip
_LEAST = {"tokens": 1000, "length": 16, "draft_vocab": 0, "epochs": 1, "batch": 1, "unroll": 1, "negatives": 1,
          "parallel": 1, "workers": 1, "threads": 0, "judged": 1}  # fmt: skip


@dataclass(frozen=True)
class Plan:
    """target: path; identity: of its content. layers: empty for the default ones. prompts: files, empty to invent them.

    tokens: of answers to train on. length: of a prompt and its answer at most. draft_vocab 0: what covers 99% of the
    answers, or those of init_from. disk: GB that features may take; those beyond are computed anew in each epoch.
    parallel: answers written at a time, by `workers` processes. judged: held-out prompts that the head is judged by.
    Others as in Recipe.
    """

    target: str = ""
    identity: str = ""
    layers: tuple[int, ...] = ()
    prompts: tuple[str, ...] = ()
    init_from: str = ""
    tokens: int = 1_000_000
    length: int = 512
    draft_vocab: int = 0
    epochs: int = Recipe.epochs
    hours: float = Recipe.hours
    batch: int = Recipe.batch
    unroll: int = Recipe.unroll
    negatives: int = Recipe.negatives
    muon: float = Recipe.muon
    adam: float = Recipe.adam
    disk: float = 20.0
    parallel: int = 64
    workers: int = 1
    threads: int = 0
    judged: int = 32
    outtype: str = "q8_0"
    seed: int = 0

    def __post_init__(self) -> None:
        whole("seed", self.seed, 0)
        for name, least in _LEAST.items():
            whole(name, getattr(self, name), least)
        for name in ("hours", "disk", "muon", "adam"):
            value = getattr(self, name)
            if not isinstance(value, int | float) or not 0 <= value < 1e6:
                raise InputError(f"{name} {value!r} is not in [0, 1e6)")

    @property
    def recipe(self) -> Recipe:
        """The part that fitting takes."""
        names = {field.name for field in fields(Recipe)} & {field.name for field in fields(self)}
        first = self.unroll if self.init_from else Recipe.first  # a head that was trained has been unrolled
        return Recipe(**{name: getattr(self, name) for name in names}, first=first)

    def save(self, path: Path) -> None:
        """Writes it as JSON."""
        path.write_text(json.dumps(asdict(self), indent=1) + "\n", "utf-8")


def load(path: Path) -> Plan:
    """A plan that was saved. Raises TrainingError where it is damaged."""
    try:
        values = json.loads(path.read_text("utf-8"))
        for name in ("layers", "prompts"):
            values[name] = tuple(values[name])
        return Plan(**values)
    except (ValueError, TypeError, KeyError) as error:
        raise TrainingError(f"{path} is no plan of this version ({error}): choose another folder with -o") from None


def resumed(saved: Plan, given: dict[str, Any]) -> Plan:
    """The saved plan with what was given anew. Raises InputError for what cannot change in the middle."""
    for name, value in given.items():
        if name not in MAY_CHANGE and value != getattr(saved, name):
            raise InputError(
                f"{name} {value!r} is not what this training began with, {getattr(saved, name)!r}: leave it out, or "
                "choose another folder with -o"
            )
    return replace(saved, **given)
