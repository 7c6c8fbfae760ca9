"""What the runtime would accept of a head's chains, foretold by torch: the same network over the same features.

A chain's later tokens follow its own earlier ones, and these are the text's as long as they were accepted: so the
unrolled rows tell all. Texts must be greedy ones.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch

from .batch import TrainBatch
from .head import Head
from .loss import soft_cross_entropy
from .unroll import unroll

Hits = npt.NDArray[np.bool_]


@dataclass
class Foretold:
    """Counts over chains, as SpecStats has them; loss: mean of the first step's rows."""

    tried: list[int] = field(default_factory=list)
    accepted: list[int] = field(default_factory=list)
    chains: int = 0
    emitted: int = 0
    loss: float = 0.0

    @property
    def rates(self) -> list[float]:
        """Of each depth: the share of the chains that came so far and went on."""
        return [a / t if t else 0.0 for a, t in zip(self.accepted, self.tried, strict=True)]

    @property
    def tokens_per_step(self) -> float:
        """Tokens that a step emits, the target's own among them."""
        return self.emitted / self.chains if self.chains else 0.0

    def walk(self, hits: Hits) -> None:
        """Adds the chains of a text: hits [count, depth], whether row j guesses right in step i when it starts there.

        A chain that is accepted for n tokens is followed by one that starts n + 1 rows on. The text's last token is
        never drafted: a step emits one that is the target's own.
        """
        count, depth = hits.shape
        row = 0
        while row < count:
            most = min(depth, count - row - 1)
            misses = np.flatnonzero(~hits[row, :most])
            accepted = int(misses[0]) if len(misses) else most
            for i in range(min(accepted + 1, most)):
                self.tried[i] += 1
                self.accepted[i] += i < accepted
            self.chains += 1
            self.emitted += accepted + 1
            row += accepted + 1


@torch.no_grad()
def foretell(head: Head, batches: Iterable[TrainBatch], depth: int) -> Foretold:
    """Chains of `depth` over the texts of some batches."""
    found = Foretold([0] * depth, [0] * depth)
    rows = 0
    for batch in batches:
        hits = np.empty((batch.count, depth), np.bool_)
        for step, states in enumerate(unroll(head, batch, depth)):
            if step == 0:
                weight = head.lm_head.weight
                found.loss += float(soft_cross_entropy(states, weight, *batch.targets(0), len(weight)))
            guesses = head.ids[(states @ head.lm_head.weight.T).argmax(-1)]
            hits[:, step] = ((guesses == batch.following(step)) & batch.inside(step)).cpu().numpy()
        for part in _by_text(hits, [count for _, count in batch.spans]):
            found.walk(part)
        rows += batch.count
    found.loss /= max(rows, 1)
    return found


def _by_text(hits: Hits, counts: Sequence[int]) -> list[Hits]:
    return np.split(hits, np.cumsum(counts)[:-1])
