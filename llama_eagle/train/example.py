"""Example: one text that the target wrote, with all that a head learns from. Plain arrays.

Row t of a text is what a draft sees at position t: the features of token t, and token t + 1. It predicts token t + 2.
The last `count` rows, from the prompt's last token on, are those that a head is trained on.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..errors import TrainingError

_LARGEST = 60000.0  # that float16 holds


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


@dataclass(frozen=True)
class Computed:
    """What a target computed of a text: an Example's arrays as float32, features as they are."""

    features: npt.NDArray[np.float32]
    ids: npt.NDArray[np.int32]
    logp: npt.NDArray[np.float32]

    def example(self, text: Text, scales: npt.NDArray[np.float32]) -> Example:
        """The example of the text. scales [layers]: what features are divided by. Raises TrainingError for NaN."""
        scaled = self.features.reshape(len(self.features), len(scales), -1) / scales[:, None]
        if not (np.isfinite(scaled).all() and np.isfinite(self.logp[:, 0]).all()):
            raise TrainingError("the target computed NaN for one of its own answers: its file is damaged")
        half = np.clip(scaled, -_LARGEST, _LARGEST).astype(np.float16).reshape(len(scaled), -1)
        return Example(text, half, self.ids, np.maximum(self.logp, -_LARGEST).astype(np.float16))


def usual_sizes(features: npt.NDArray[np.float32], layers: int) -> npt.NDArray[np.float32]:
    """float32[layers]: the root mean square of each layer's usual row. The first token's may be a thousandfold.

    features [rows, layers x width]. Raises TrainingError where they are zero or no numbers.
    """
    squares = (features.reshape(len(features), layers, -1) ** 2).mean(axis=2)
    found: npt.NDArray[np.float32] = np.sqrt(np.median(squares, axis=0)).astype(np.float32)
    if not (np.isfinite(found).all() and (found > 0).all()):
        raise TrainingError("the target's features are zero or no numbers: is it damaged?")
    return found
