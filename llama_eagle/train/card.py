"""The model card that lies beside an exported head: data, figures, licence, target. Pure text."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .evaluate import Gain
from .plan import Plan


@dataclass(frozen=True)
class Facts:
    """What a card tells besides the plan. licence: the target's own, "" where its file does not say."""

    target: str
    licence: str
    texts: int
    tokens: int
    draft_vocab: int
    covered: float
    rows: int
    seconds: float
    loss: float
    parameters: int


def card(plan: Plan, facts: Facts, gains: Sequence[Gain], foretold: Sequence[float]) -> str:
    """README.md of the checkpoint."""
    data = f"prompts of {', '.join(plan.prompts)}" if plan.prompts else "prompts that the target thought of itself"
    licence = facts.licence or "that of the target, whose file names none"
    lines = [
        f"# EAGLE-3 head for {facts.target}",
        "",
        f"Trained by `llama-eagle train`. {facts.parameters / 1e6:.1f} M parameters, draft vocabulary "
        f"{facts.draft_vocab:,} ({facts.covered:.1%} of the answers' tokens), features: inputs of layers "
        f"{', '.join(map(str, plan.layers))}.",
        "",
        f"* Target: `{facts.target}`, identity {plan.identity}.",
        f"* Data: {facts.texts:,} answers of the target, {facts.tokens:,} tokens, to {data}.",
        f"* Training: {facts.rows:,} rows in {facts.seconds / 3600:.2f} h, unroll up to {plan.unroll}, seed "
        f"{plan.seed}; loss of the first step on held-out answers {facts.loss:.3f}.",
        f"* Licence: {licence}.",
        "",
        *_table(gains, foretold),
    ]
    return "\n".join(lines) + "\n"


def _table(gains: Sequence[Gain], foretold: Sequence[float]) -> list[str]:
    if not gains:
        return ["Not evaluated yet."]
    lines = [
        "Held-out prompts, through the runtime:",
        "",
        "| drafts | temperature | tokens a step | accepted by depth |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| {gain.mode} | {gain.temperature:g} | {gain.tokens_per_step:.2f} | {_rates(gain.accept_by_depth)} |"
        for gain in gains
    ]
    return [*lines, f"| {gains[0].mode}, foretold by torch | 0 | | {_rates(foretold)} |"]


def _rates(values: Sequence[float] | Any) -> str:
    return " ".join(f"{value:.3f}".removeprefix("0") for value in values)
