"""The stage `evaluate`: what a head gains on held-out prompts, through the runtime that will use it."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import product, zip_longest
from pathlib import Path
from typing import Any

from ..engine import Engine
from ..result import SpecStats
from ..sampling import SamplingParams
from .example import Text

DEPTH = 5  # of the chains that torch foretells, too
MODES: dict[str, dict[str, Any]] = {
    f"chain {DEPTH}": {"spec": "chain", "draft_max": DEPTH},
    "tree 8": {"spec": "tree", "draft_nodes": 8},
    "tree 16": {"spec": "tree", "draft_nodes": 16},
    "tree 32": {"spec": "tree", "draft_nodes": 32, "draft_depth": 6, "draft_top_k": 8},
}
TEMPERATURES = (0.0, 1.0)


@dataclass(frozen=True)
class Gain:
    """tokens_per_step: emitted by a decode of the target. accept_by_depth: of the paths that came so far, went on."""

    mode: str
    temperature: float
    steps: int
    emitted: int
    tokens_per_step: float
    accept_by_depth: list[float]

    def as_dict(self) -> dict[str, Any]:
        """The fields."""
        return asdict(self)


def evaluate(
    target: Path, head: Path, texts: Sequence[Text], options: dict[str, Any], known: Sequence[Gain] = ()
) -> Iterator[Gain]:
    """The gain of each mode at each temperature but those known. Answers are as long as those of the texts.

    options: of Engine.
    """
    modes = MODES
    if not _trees(target, options):  # recurrent ones verify chains, of one sequence at a time
        modes = {name: mode for name, mode in MODES.items() if mode["spec"] == "chain"}
        options = {**options, "n_parallel": 1}
    done = {(gain.mode, gain.temperature) for gain in known}
    for what in product(modes, TEMPERATURES):
        if what not in done:
            yield _gain(target, head, texts, what, {**options, **modes[what[0]]})


def _gain(target: Path, head: Path, texts: Sequence[Text], what: tuple[str, float], options: dict[str, Any]) -> Gain:
    stats = SpecStats(mode="tree")
    with Engine(target, head, **options) as engine:
        requests = []
        for number, text in enumerate(texts):
            params = SamplingParams(temperature=what[1], top_k=0, top_p=1.0, min_p=0.0, seed=number)
            requests.append(engine.submit(text.prompt, _limited(params, len(text.answer))))
        for request in requests:
            _add(stats, request.wait().spec)
    return Gain(*what, stats.steps, stats.emitted, stats.emitted / max(stats.steps, 1), _rates(stats))


def _limited(params: SamplingParams, tokens: int) -> SamplingParams:
    return SamplingParams(**{**vars(params), "max_tokens": tokens})


def _add(total: SpecStats, part: SpecStats) -> None:
    total.steps += part.steps
    total.emitted += part.emitted
    total.tried_by_depth = _sum(total.tried_by_depth, part.tried_by_depth)
    total.accepted_by_depth = _sum(total.accepted_by_depth, part.accepted_by_depth)


def _sum(one: list[int], other: list[int]) -> list[int]:
    return [a + b for a, b in zip_longest(one, other, fillvalue=0)]


def _rates(stats: SpecStats) -> list[float]:
    return [a / t for a, t in zip(stats.accepted_by_depth, stats.tried_by_depth, strict=True)]


def _trees(target: Path, options: dict[str, Any]) -> bool:
    with Engine(target, None, **{**options, "spec": "off"}) as engine:
        return engine.pair.target.has_tree
