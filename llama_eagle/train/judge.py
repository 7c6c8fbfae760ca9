"""Judge: how good a head is on held-out texts, as torch foretells it, and a line in the log about it."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict

from torch import Tensor

from . import log
from .batch import TrainBatch
from .example import Example, Text
from .fit import Report
from .folder import Folder
from .head import Head
from .predict import Foretold, foretell

EVERY, FEWEST = 25, 8  # of the greedy texts one of so many is held out, where there are few one of fewer
DEPTH = 5
_ROWS = 2048  # of a batch


def held_out(texts: Sequence[Text], most: int) -> list[int]:
    """The numbers of texts that nothing is trained on: at most `most` of the greedy ones, one at least."""
    greedy = [number for number, text in enumerate(texts) if text.greedy] or list(range(len(texts)))
    every = min(EVERY, max(FEWEST, len(greedy) // most))
    return greedy[::every][:most]


class Judge:
    """Judges heads by held-out texts, given by their numbers."""

    def __init__(self, folder: Folder, numbers: Sequence[int], get: Callable[[int], Example]) -> None:
        self.folder, self.numbers, self.get = folder, numbers, get

    def judge(self, head: Head, inverse: Tensor, most: int | None = None) -> Foretold:
        """What chains would be accepted of the first `most` texts."""
        return foretell(head, self._batches(inverse, self.numbers[:most]), DEPTH)

    def log(self, report: Report, found: Foretold) -> None:
        """A line about where the training is."""
        values = asdict(report.place) | {
            "unroll": report.unroll,
            "loss": report.loss,
            "rows_per_s": report.rate,
            "held_out_loss": found.loss,
            "tokens_per_step": found.tokens_per_step,
        }
        log.append(self.folder.log, values, found.rates)

    def _batches(self, inverse: Tensor, numbers: Sequence[int]) -> Iterator[TrainBatch]:
        examples: list[Example] = []
        for number in numbers:
            examples.append(self.get(number))
            if sum(example.text.count for example in examples) >= _ROWS:
                yield TrainBatch(examples, inverse)
                examples = []
        if examples:
            yield TrainBatch(examples, inverse)
