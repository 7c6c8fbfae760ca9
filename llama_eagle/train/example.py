"""Example: one text that the target wrote, with all that a head learns from. Plain arrays.

Row t of a text is what a draft sees at position t: the features of token t, and token t + 1. It predicts token t + 2.
The last `count` rows, from the prompt's last token on, are those that a head is trained on.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class Text:
    """Token ids of a prompt and of its answer. greedy: each token of the answer was the likeliest."""

    prompt: tuple[int, ...]
    answer: tuple[int, ...]
    greedy: bool = False

    @property
    def count(self) -> int:
        """Rows to train on: one less than the answer's tokens, as nothing follows the last."""
        return len(self.answer) - 1

    @property
    def rows(self) -> int:
        """All rows."""
        return len(self.prompt) - 1 + self.count


@dataclass(frozen=True)
class Example:
    """A text and what the target computed of it.

    features  float16 [rows, features x width], each feature divided by its scale
    ids       int32 [count, k], the target's likeliest tokens behind answer[0], answer[1], ...
    logp      float16 [count, k], their log probabilities
    """

    text: Text
    features: npt.NDArray[np.float16]
    ids: npt.NDArray[np.int32]
    logp: npt.NDArray[np.float16]
