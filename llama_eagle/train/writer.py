"""Writer: many texts of a target at a time, a token of each in every decode, and what a head learns from them.

Tokens that are given are fed as those that it chooses, one by one: in a decode of many rows a row costs the same
whatever it is for, and every row's features are taken as they pass. Knows no prompts.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ..batch import Batch
from ..context import Context
from ..errors import InputError
from ..model import Model
from .example import Computed
from .extract import TOP_K

_MIN_P = 0.02
_CELLS = 256  # llama.cpp gives a sequence a multiple of so many
_TAIL, _PERIOD = 64, 32  # a text whose last tokens repeat themselves so soon will not end


class Writer:
    """`parallel` texts of `length` tokens at most, by their row.

    tokens int32 [parallel, length]; known int [parallel]: how many of them there are; fed: how many were decoded.
    """

    def __init__(self, model: Model, layers: Sequence[int], sizes: tuple[int, int], threads: int, seed: object) -> None:
        parallel, length = sizes[0], -(-sizes[1] // _CELLS) * _CELLS
        self.context = Context(
            model, tuple(layers), n_ctx=parallel * length, n_batch=parallel, n_ubatch=parallel, n_seq_max=parallel,
            n_threads=threads, kv_unified=False,
        )  # fmt: skip
        self.top_k = min(TOP_K, model.info.n_vocab)
        self.tokens = np.zeros(sizes, np.int32)
        self.known, self.fed, self.limit = (np.zeros(parallel, np.int64) for _ in range(3))
        self.temperature = np.zeros(parallel)
        self._busy = np.zeros(parallel, np.bool_)
        self._features = np.empty((*sizes, self.context.feature_width), np.float32)  # pages come as they are used
        self._ids = np.empty((*sizes, self.top_k), np.int32)
        self._logp = np.empty((*sizes, self.top_k), np.float32)
        self._random = np.random.default_rng(seed)  # type: ignore[arg-type]
        self._ends = np.array([model.is_eog(token) for token in range(model.info.n_vocab)])

    def close(self) -> None:
        """Frees the context."""
        self.context.close()

    def give(self, row: int, tokens: Sequence[int], temperature: float, limit: int) -> None:
        """Begins another text, which ends at an end token or with `limit` tokens; keeps what both have in common."""
        new, old = np.asarray(tokens, np.int32), self.tokens[row, : self.fed[row]]
        most = min(len(new) - 1, len(old))
        differ = np.flatnonzero(new[:most] != old[:most])
        same = int(differ[0]) if len(differ) else most
        try:
            self.context.seq_rm(row, same)
        except InputError:  # a state that cannot go back
            same = 0
            self.context.seq_rm(row, 0)
        self.tokens[row, : len(new)] = new
        self.fed[row], self.known[row], self.limit[row] = same, len(new), limit
        self.temperature[row], self._busy[row] = temperature, True

    def step(self) -> list[int]:
        """Decodes a token of each text that has not ended; returns the rows whose text has ended with that."""
        rows = np.flatnonzero(self._busy)
        at = self.fed[rows]
        wanted = at + 1 == self.known[rows]
        self.context.decode(_one_each(self.tokens[rows, at], rows, wanted))
        self._features[rows, at] = self.context.features()
        self.fed[rows] += 1
        if not wanted.any():
            return []
        rows, at = rows[wanted], at[wanted]
        ids, logp = self.context.top_k(self.top_k)
        self._ids[rows, at], self._logp[rows, at] = ids, logp
        chosen = ids[np.arange(len(rows)), self._choices(logp, self.temperature[rows])]
        self.tokens[rows, at + 1] = chosen
        self.known[rows] += 1
        ended = self._ends[chosen] | (self.known[rows] >= self.limit[rows])
        over = [int(row) for row, end in zip(rows, ended, strict=True) if end or self._repeats(row)]
        self._busy[over] = False
        return over

    def computed(self, row: int, prompt: int) -> Computed:
        """What the target computed of a text that has ended, whose first `prompt` tokens were given."""
        last = self.known[row] - 1
        answer = slice(prompt, last)
        parts = self._features[row, : last - 1], self._ids[row, answer], self._logp[row, answer]
        return Computed(*(part.copy() for part in parts))

    def _choices(self, logp: npt.NDArray[np.float32], temperature: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
        """Numbers among the likeliest tokens, [n]: the first where the temperature is 0, else drawn."""
        scaled = (logp - logp[:, :1]) / np.maximum(temperature, 1e-3)[:, None]
        weights = np.exp(scaled) * (logp >= logp[:, :1] + np.log(_MIN_P))
        sums = weights.cumsum(axis=1)
        drawn = (sums < self._random.random(len(sums))[:, None] * sums[:, -1:]).sum(axis=1)
        return np.where(temperature > 0, drawn, 0)

    def _repeats(self, row: int) -> bool:
        n = self.known[row]
        if n < 2 * _TAIL or n % 16:
            return False
        tail = self.tokens[row, n - _TAIL : n]
        return any((tail[period:] == tail[:-period]).all() for period in range(1, _PERIOD + 1))


def _one_each(tokens: npt.NDArray[np.int32], rows: npt.NDArray[np.int64], wanted: npt.NDArray[np.bool_]) -> Batch:
    """A token of each of several sequences."""
    batch = Batch(tokens, outputs=wanted)
    batch.seq_ids = rows.astype(np.int32)
    batch.single = True
    return batch
