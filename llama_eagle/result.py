"""Result: what a finished generation reports; its fields are the command line's JSON (docs/json.md)."""

from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from .generate import Step
from .logprob import TokenLogprob
from .slot import Seconds

POSITIONS = 1024  # tokens of context that are counted together


class Piece(NamedTuple):
    """A stretch of new text with its tokens; `from_draft` says for each token whether a draft had proposed it.

    logprobs: one for each token where SamplingParams.logprobs asks for them, else empty.
    """

    text: str
    tokens: tuple[int, ...]
    from_draft: tuple[bool, ...]
    logprobs: tuple[TokenLogprob, ...] = ()


@dataclass
class SpecStats:
    """Counts over the steps of one generation; the first token comes from the prefill and is no step.

    A step that several sequences share counts for each, with its own tree. steps: decodes of the target. drafted: nodes
    of all trees. accepted: of them, those emitted. emitted: tokens of all steps. tried_by_depth: steps whose path came
    as far as depth i + 1; accepted_by_depth: those in which it went on. shapes: steps by nodes drafted. graphs_built,
    graphs_reused: of target and draft; a size that was not met lately has its graph built.
    """

    mode: str = "off"
    steps: int = 0
    drafted: int = 0
    accepted: int = 0
    emitted: int = 0
    tried_by_depth: list[int] = field(default_factory=list)
    accepted_by_depth: list[int] = field(default_factory=list)
    shapes: dict[str, int] = field(default_factory=dict)
    graphs_built: int = 0
    graphs_reused: int = 0
    drafts_by_position: dict[int, list[int]] = field(default_factory=dict)  # steps with a draft, tokens they emitted

    def count(self, step: Step, emitted: int, position: int = 0) -> None:
        """Adds a step of which `emitted` tokens became text; what lies behind an end token does not count.

        position: tokens in front of it, the prompt's among them.
        """
        accepted = min(step.accepted, emitted)
        self.steps += 1
        self.emitted += emitted
        self.drafted += step.drafted
        self.accepted += accepted
        self.graphs_built += step.graphs[0]
        self.graphs_reused += step.graphs[1]
        if self.mode != "off":
            shape = str(step.drafted) if step.drafted else "plain"
            self.shapes[shape] = self.shapes.get(shape, 0) + 1
        if step.drafted:
            counts = self.drafts_by_position.setdefault(position - position % POSITIONS, [0, 0])
            counts[0] += 1
            counts[1] += emitted
        # behind an end token nothing was tried
        self._count_depths(accepted, min(step.depth, step.accepted + 1, emitted))

    def _count_depths(self, accepted: int, tried: int) -> None:
        missing = tried - len(self.tried_by_depth)
        if missing > 0:
            self.tried_by_depth += [0] * missing
            self.accepted_by_depth += [0] * missing
        for depth in range(tried):
            self.tried_by_depth[depth] += 1
            self.accepted_by_depth[depth] += depth < accepted

    def by_position(self) -> list[tuple[int, float]]:
        """Tokens a drafted step, for each thousand tokens of context: a draft may go wrong in long texts."""
        return [(first, emitted / steps) for first, (steps, emitted) in sorted(self.drafts_by_position.items())]

    def as_dict(self) -> dict[str, Any]:
        """The JSON object `spec`."""
        rates = [a / t for a, t in zip(self.accepted_by_depth, self.tried_by_depth, strict=True)]
        return {
            "mode": self.mode,
            "steps": self.steps,
            "drafted": self.drafted,
            "accepted": self.accepted,
            "tokens_per_step": self.emitted / self.steps if self.steps else 0.0,
            "accept_by_depth": rates,
            "shapes": self.shapes,
            "graphs_built": self.graphs_built,
            "graphs_reused": self.graphs_reused,
        }


@dataclass
class Timings:
    """Seconds by part. tokens_per_s = completion tokens / decode_s; plain_tokens_per_s: measured at load, or None.

    Of many requests at once each counts the seconds of the steps that it took part in, whole, and of no others: those
    in which another one's prompt was decoded are not among them. A fork's rate leaves out the tokens it began with.
    """

    load_s: float = 0.0
    calibrate_s: float = 0.0
    prefill_s: float = 0.0
    decode_s: float = 0.0
    draft_s: float = 0.0
    verify_s: float = 0.0
    other_s: float = 0.0
    tokens_per_s: float = 0.0
    plain_tokens_per_s: float | None = None

    def take(self, seconds: Seconds, tokens: int) -> None:
        """The times of a text of so many tokens."""
        self.calibrate_s += seconds.calibrate
        self.prefill_s, self.decode_s = seconds.prefill, seconds.decode
        self.draft_s, self.verify_s = seconds.draft, seconds.verify
        self.other_s = max(seconds.decode - seconds.draft - seconds.verify, 0.0)
        self.tokens_per_s = tokens / seconds.decode if seconds.decode else 0.0


@dataclass
class Result:
    """A finished generation. `tokens` are the emitted ids up to and including the end token.

    prompt: the ids it continues, which the JSON leaves out. logprobs: one for each token, empty unless asked for.
    """

    text: str = ""
    tokens: list[int] = field(default_factory=list)
    finish_reason: str = "length"
    prompt_tokens: int = 0
    model: str = ""
    draft: str | None = None
    seed: int = 0
    settings: dict[str, Any] = field(default_factory=dict)
    spec: SpecStats = field(default_factory=SpecStats)
    timings: Timings = field(default_factory=Timings)
    context_full: bool = False
    prompt: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)

    @property
    def completion_tokens(self) -> int:
        """How many tokens were emitted."""
        return len(self.tokens)

    def as_dict(self) -> dict[str, Any]:
        """The document that `llama-eagle run --json` prints; with `logprobs` at its end where they were asked for."""
        asked = self.settings.get("logprobs") is not None
        return {
            "text": self.text,
            "tokens": self.tokens,
            "finish_reason": self.finish_reason,
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "model": self.model,
            "draft": self.draft,
            "seed": self.seed,
            "settings": self.settings,
            "spec": self.spec.as_dict(),
            "timings": asdict(self.timings),
            **({"logprobs": [one.as_dict() for one in self.logprobs]} if asked else {}),
        }
