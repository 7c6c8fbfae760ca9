"""Extractor: what the target computes of a text, read from llama.cpp, so that a head learns what it will meet."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ..batch import Batch
from ..context import Context
from ..errors import TrainingError
from ..model import Model
from .example import Example, Text

TOP_K = 64  # likeliest tokens that are kept of each distribution: nearly all of its mass
_LOGITS_BYTES = 1 << 27  # of one decode
_LARGEST = 60000.0  # of float16, which ends at 65504


class Extractor:
    """A context of a target that gives the inputs of `layers`, with room for texts of `length` tokens.

    scales: what each layer's numbers are divided by; all 1 until measure() was called.
    """

    def __init__(self, model: Model, layers: Sequence[int], length: int, n_threads: int = 0) -> None:
        info = model.info
        batch = max(min(512, length, _LOGITS_BYTES // (4 * info.n_vocab)), 16)
        self.context = Context(model, tuple(layers), n_ctx=length, n_batch=batch, n_ubatch=batch, n_threads=n_threads)
        self.layers = tuple(layers)
        self.width = len(self.layers) * info.n_embd
        self.top_k = min(TOP_K, info.n_vocab)
        self.scales = np.ones(len(self.layers), np.float32)

    def close(self) -> None:
        """Frees the context."""
        self.context.close()

    def measure(self, texts: Sequence[Text]) -> npt.NDArray[np.float32]:
        """float32[layers]: the root mean square of each layer's usual row. The first token's may be a thousandfold."""
        rows = np.concatenate([self._raw(text)[0] for text in texts])
        squares = (rows.reshape(len(rows), len(self.layers), -1) ** 2).mean(axis=2)
        found: npt.NDArray[np.float32] = np.sqrt(np.median(squares, axis=0)).astype(np.float32)
        if not (np.isfinite(found).all() and (found > 0).all()):
            raise TrainingError(f"the target's features at layers {self.layers} are zero or no numbers: is it damaged?")
        return found

    def __call__(self, text: Text) -> Example:
        """The example of a text. Raises TrainingError where the target computes no numbers."""
        features, ids, logp = self._raw(text)
        scaled = features.reshape(len(features), len(self.layers), -1) / self.scales[:, None]
        if not (np.isfinite(scaled).all() and np.isfinite(logp[:, 0]).all()):
            raise TrainingError("the target computed NaN for one of its own answers: its file is damaged")
        half = np.clip(scaled, -_LARGEST, _LARGEST).astype(np.float16).reshape(len(features), -1)
        return Example(text, half, ids, np.maximum(logp, -_LARGEST).astype(np.float16))

    def _raw(self, text: Text) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int32], npt.NDArray[np.float32]]:
        tokens = np.array([*text.prompt, *text.answer[:-1]], np.int32)
        wanted = np.arange(len(tokens)) >= len(text.prompt)
        features = np.empty((len(tokens), self.width), np.float32)
        ids, logp = [], []
        self.context.clear()
        for first in range(0, len(tokens), self.context.n_batch):
            part = slice(first, first + self.context.n_batch)
            self.context.decode(Batch(tokens[part], outputs=wanted[part]))
            features[part] = self.context.features()
            if wanted[part].any():
                best = self.context.top_k(self.top_k)
                ids.append(best[0])
                logp.append(best[1])
        return features[:-1], np.concatenate(ids), np.concatenate(logp)
