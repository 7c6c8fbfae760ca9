"""Audit: is a drafted text the one that plain decoding gives, but for floating-point ties?

Works on token ids and one plain context; knows nothing of trees, since a difference is judged without the tree path.
Greedy texts and sampled ones of one seed: there a tie is a number that lies at a boundary between two tokens.
"""

from dataclasses import dataclass

import numpy as np

from .batch import Batch
from .context import Context
from .sampler import Sampler
from .sampling import SamplingParams
from .uniforms import uniform

LARGEST_DIFFERENCE = 0.5  # two scorings of one prefix that lie further apart are an error, whatever the gap


@dataclass(frozen=True)
class Verdict:
    """kind: "identical", "tie" or "error". at: the first token that differs, -1 when none does.

    gap: between the target's two best logits there, or between the random number and the boundary. difference: the
    largest between two scorings of the same prefix, of logits or of cumulative probabilities.
    """

    kind: str
    at: int = -1
    gap: float = 0.0
    difference: float = 0.0


class Audit:
    """Compares texts with plain decoding's on a context of the same target, without features.

    record: the largest difference between two scorings that this build has shown; more is an error.
    """

    def __init__(self, context: Context, record: float = LARGEST_DIFFERENCE) -> None:
        self.context = context
        self.limit = min(record, LARGEST_DIFFERENCE)

    def judge(self, prompt: list[int], plain: list[int], drafted: list[int], step: int) -> Verdict:
        """Verdict over two greedy continuations of a prompt; `step` is the size of the drafted run's batches."""
        at = _first_difference(plain, drafted)
        if at is None:
            return Verdict("identical")
        if at == min(len(plain), len(drafted)):
            return Verdict("error", at)
        single = self._logits(prompt, plain[:at], 1)
        linear = self._logits(prompt, plain[:at], step)
        difference = float(np.abs(single - linear).max())
        best = np.argsort(-single, kind="stable")[:2]
        gap = float(single[best[0]] - single[best[1]])
        tie = {plain[at], drafted[at]} == set(best.tolist()) and gap < 2 * difference and difference < self.limit
        return Verdict("tie" if tie else "error", at, gap, difference)

    def judge_sampled(
        self, prompt: list[int], plain: list[int], drafted: list[int], step: int, params: SamplingParams
    ) -> Verdict:
        """The same for texts drawn with the numbers of one seed; params: with that seed.

        A tie: the number that decided lies within the largest difference of the two cumulative distributions, over
        ascending token ids, from all boundaries that separate both tokens.
        """
        at = _first_difference(plain, drafted)
        if at is None:
            return Verdict("identical")
        if at == min(len(plain), len(drafted)):
            return Verdict("error", at)
        rows = [self._logits(prompt, plain[:at], size) for size in (1, step)]
        with Sampler(self.context.model, params) as sampler:
            sampler.prompt(prompt)
            for token in plain[:at]:
                sampler.accept(token)
            single, linear = (np.cumsum(sampler.distribution(row)) for row in rows)
        logits = float(np.abs(rows[0] - rows[1]).max())
        difference = float(np.abs(single - linear).max())
        number = uniform(params.seed or 0, at)
        low, high = sorted((plain[at], drafted[at]))
        gap = max(abs(float(edge) - number) for edge in (single[low], single[high - 1]))
        tie = gap <= difference and logits < self.limit
        return Verdict("tie" if tie else "error", at, gap, difference)

    def _logits(self, prompt: list[int], text: list[int], step: int) -> np.ndarray:
        """float32 [n_vocab]: the logits behind prompt + text, the text decoded `step` tokens at a time."""
        self.context.clear()
        pieces = [prompt[i : i + self.context.n_batch] for i in range(0, len(prompt), self.context.n_batch)]
        first = len(text) % step  # the scored token lies at the end of a whole step
        cuts = [text[:first]] if first else []
        cuts += [text[i : i + step] for i in range(first, len(text), step)]
        for piece in pieces:
            self.context.decode(Batch(piece))
        for cut in cuts:
            self.context.decode(Batch(cut, outputs=[True] * len(cut)))  # rows that round as those of steps
        return np.asarray(self.context.logits()[-1])


def _first_difference(plain: list[int], drafted: list[int]) -> int | None:
    """Where two texts part: a place of one of them, the end of the shorter one, or None when they are equal."""
    at = next((i for i, (a, b) in enumerate(zip(plain, drafted, strict=False)) if a != b), None)
    return at if at is not None or len(plain) == len(drafted) else min(len(plain), len(drafted))
