"""TrainBatch: several examples as one flat set of rows, without padding; torch tensors."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from .example import Example


class TrainBatch:
    """Rows of several texts, back to back; those that are trained on, the last ones of each text, are `trained`.

    numbers: int64 [n_vocab], the draft's number of each target id or -1.
    spans: rows and trained rows of each text. words [rows]: the token of each row. count: all trained rows.
    """

    def __init__(self, examples: Sequence[Example], numbers: Tensor) -> None:
        texts = [example.text for example in examples]
        device = numbers.device
        self.spans = [(text.rows, text.count) for text in texts]
        self.count = sum(text.count for text in texts)
        self.features = torch.from_numpy(np.concatenate([e.features for e in examples])).to(device).float()
        self.words = _ids([(*text.prompt, *text.answer)[1:-1] for text in texts], device)
        self.positions = torch.cat([torch.arange(text.rows, device=device) for text in texts])
        first = np.cumsum([0, *(rows for rows, _ in self.spans)])
        self.trained = _ids([range(f + n - c, f + n) for f, (n, c) in zip(first, self.spans, strict=False)], device)
        self._answers = _ids([text.answer[:-1] for text in texts], device)
        self._following = _ids([text.answer[1:] for text in texts], device)
        ends = np.cumsum([count for _, count in self.spans])
        self._last = _ids([[end - 1] * count for end, (_, count) in zip(ends, self.spans, strict=True)], device)
        self._numbers = numbers[torch.from_numpy(np.concatenate([e.ids for e in examples])).to(device).long()]
        logp = torch.from_numpy(np.concatenate([e.logp for e in examples])).to(device).float()
        self._probabilities = _kept(logp, self._numbers)
        self._numbers = self._numbers.clamp(min=0)

    def _rows(self, step: int) -> Tensor:
        """Where in the answers each trained row is in a step; rows behind the end stay on the last."""
        return torch.minimum(torch.arange(self.count, device=self._last.device) + step, self._last)

    def inside(self, step: int) -> Tensor:
        """bool [count]: rows that are not behind their text's end in a step."""
        return torch.arange(self.count, device=self._last.device) + step <= self._last

    def answer(self, step: int) -> Tensor:
        """[count]: the token that each trained row reads in a step."""
        return self._answers[self._rows(step)]

    def following(self, step: int) -> Tensor:
        """[count]: the token of the text that each trained row is to guess in a step."""
        return self._following[self._rows(step)]

    def targets(self, step: int) -> tuple[Tensor, Tensor]:
        """Draft numbers [count, k] and probabilities [count, k] of the tokens to guess.

        The probabilities of a row are those of the target over the draft vocabulary. They are 0 where the target's
        likeliest token is outside it, and behind the end.
        """
        rows = self._rows(step)
        return self._numbers[rows], self._probabilities[rows] * self.inside(step)[:, None]


def _kept(logp: Tensor, numbers: Tensor) -> Tensor:
    """Probabilities over the draft vocabulary; rows whose likeliest token is outside it are 0."""
    p = logp.exp() * (numbers >= 0)
    return p / p.sum(-1, keepdim=True).clamp(min=1e-9) * (numbers[:, :1] >= 0)


def _ids(parts: Sequence[Sequence[int]], device: torch.device) -> Tensor:
    return torch.from_numpy(np.concatenate([np.asarray(part, np.int64) for part in parts])).to(device)
