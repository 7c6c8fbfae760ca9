"""Which tokens a head can draft: the most frequent ones of the target's own answers. Pure."""

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from .example import Text

COVER = 0.99  # share of the answers' tokens, where no size is given
_MULTIPLE = 256

Ids = npt.NDArray[np.int64]


def choose(texts: Iterable[Text], n_vocab: int, size: int = 0, known: Sequence[int] = ()) -> Ids:
    """Ascending target ids, int64[size]: the most frequent tokens, the smaller id first where they are equally so.

    size 0: as many as cover COVER of the answers, in multiples of 256. At most n_vocab. known: what a head drafted
    before, each as if it had been seen once more.
    """
    counts = np.zeros(n_vocab, np.int64)
    counts[list(known)] = 1
    for text in texts:
        np.add.at(counts, np.asarray(text.answer), 1)
    order = np.argsort(-counts, kind="stable")
    size = min(size or covering(counts[order]), n_vocab)
    chosen: Ids = np.sort(order[:size])
    return chosen


def as_ids(numbers: Sequence[int]) -> Ids:
    """A list of target ids as an array."""
    return np.asarray(numbers, np.int64)


def covering(counts: npt.NDArray[np.int64]) -> int:
    """How many of the counts, the largest first, make COVER of their sum, rounded up."""
    needed = int(np.searchsorted(np.cumsum(counts), COVER * counts.sum())) + 1
    return -(-needed // _MULTIPLE) * _MULTIPLE


def inverse(ids: Ids, n_vocab: int) -> Ids:
    """int64[n_vocab]: the draft's number of each target id, -1 for those that it cannot draft."""
    numbers = np.full(n_vocab, -1, np.int64)
    numbers[ids] = np.arange(len(ids))
    return numbers


def covered(texts: Iterable[Text], ids: Ids, n_vocab: int) -> float:
    """The share of the answers' tokens that are among `ids`."""
    kept = inverse(ids, n_vocab) >= 0
    hits = [kept[np.asarray(text.answer)] for text in texts]
    return float(np.concatenate(hits).mean()) if hits else 0.0
