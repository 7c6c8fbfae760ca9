"""Extractor: what the target computes of a text, read from llama.cpp, so that a head learns what it will meet."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ..batch import Batch
from ..context import Context
from ..model import Model
from .example import Computed, Example, Text, usual_sizes

TOP_K = 64  # likeliest tokens that are kept of each distribution: nearly all of its mass
_LOGITS_BYTES = 1 << 27  # of one decode


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
        """float32[layers]: the usual size of each layer's rows."""
        return usual_sizes(np.concatenate([self._raw(text).features for text in texts]), len(self.layers))

    def __call__(self, text: Text) -> Example:
        """The example of a text. Raises TrainingError where the target computes no numbers."""
        return self._raw(text).example(text, self.scales)

    def _raw(self, text: Text) -> Computed:
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
        return Computed(features[:-1], np.concatenate(ids), np.concatenate(logp))
