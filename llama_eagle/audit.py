"""Audit: is a drafted text the one that plain decoding gives, but for floating-point ties?

Works on token ids and one plain context; knows nothing of trees, since a difference is judged without the tree path.
"""

from dataclasses import dataclass

import numpy as np

from .batch import Batch
from .context import Context

LARGEST_DIFFERENCE = 0.5  # two scorings of one prefix that lie further apart are an error, whatever the gap


@dataclass(frozen=True)
class Verdict:
    """kind: "identical", "tie" or "error". at: the first token that differs, -1 when none does.

    gap: between the target's two best logits there. difference: the largest between two scorings of the same prefix.
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
        """Verdict over two continuations of a prompt; `step` is the size of the drafted run's batches."""
        at = next((i for i, (a, b) in enumerate(zip(plain, drafted, strict=False)) if a != b), -1)
        if at < 0 and len(plain) == len(drafted):
            return Verdict("identical")
        if at < 0:
            return Verdict("error", min(len(plain), len(drafted)))
        single = self._logits(prompt, plain[:at], 1)
        linear = self._logits(prompt, plain[:at], step)
        difference = float(np.abs(single - linear).max())
        best = np.argsort(-single, kind="stable")[:2]
        gap = float(single[best[0]] - single[best[1]])
        tie = {plain[at], drafted[at]} == set(best.tolist()) and gap < 2 * difference and difference < self.limit
        return Verdict("tie" if tie else "error", at, gap, difference)

    def _logits(self, prompt: list[int], text: list[int], step: int) -> np.ndarray:
        """float32 [n_vocab]: the logits behind prompt + text, the text decoded `step` tokens at a time."""
        self.context.clear()
        pieces = [prompt[i : i + self.context.n_batch] for i in range(0, len(prompt), self.context.n_batch)]
        first = len(text) % step  # the scored token lies at the end of a whole step
        cuts = [text[:first]] if first else []
        cuts += [text[i : i + step] for i in range(first, len(text), step)]
        for piece in pieces + cuts:
            self.context.decode(Batch(piece))
        return np.asarray(self.context.logits()[-1])
