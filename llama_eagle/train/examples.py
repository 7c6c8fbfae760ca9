"""Examples: what a head learns from, from disk where it is stored, else computed by the target when it is asked for."""

import json
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

import numpy as np
import numpy.typing as npt

from ..errors import TrainingError
from ..model import Model
from .example import Computed, Example, Text, usual_sizes
from .extract import TOP_K, Extractor
from .features import FeatureStore
from .folder import Folder
from .plan import Plan
from .progress import Progress, Say
from .shape import HeadShape

_MEASURED = 32  # texts that the scales are taken from


class Examples:
    """The examples of texts, for a head of a shape. The target is loaded when something has to be computed."""

    def __init__(self, folder: Folder, plan: Plan, target: Path, shape: HeadShape, texts: Sequence[Text]) -> None:
        self.folder, self.plan, self.target, self.shape, self.texts = folder, plan, target, shape, list(texts)
        self._model: Model | None = None
        self._extractor: Extractor | None = None
        self._store: FeatureStore | None = None
        self._early: list[Computed] = []  # the last texts, while there are too few of them for scales

    def __enter__(self) -> "Examples":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Frees the target."""
        if self._extractor is not None:
            self._extractor.close()
        if self._model is not None:
            self._model.close()
        self._model = self._extractor = None

    @property
    def scales(self) -> npt.NDArray[np.float32]:
        """float32 [layers]: what the features are divided by; measured once, then kept in a file."""
        path = self.folder.scales
        if not path.exists():
            self._write_scales(self._raw().measure(self.texts[:_MEASURED]))
        try:
            values = np.array(json.loads(path.read_text("utf-8")), np.float32)
        except ValueError:
            values = np.zeros(0, np.float32)
        if values.shape != (len(self.shape.layers),):
            raise TrainingError(f"{path} is damaged: delete it and the features, they are made again")
        return values

    def _write_scales(self, found: npt.NDArray[np.float32]) -> None:
        self.folder.scales.write_text(json.dumps([float(scale) for scale in found]) + "\n", "utf-8")

    def add(self, text: Text, computed: Computed) -> None:
        """Stores what the target computed of a further text, if the plan's disk allows it."""
        self.texts.append(text)
        self._early.append(computed)
        if not self.folder.scales.exists():
            if len(self._early) < _MEASURED:
                return
            rows = np.concatenate([computed.features for computed in self._early])
            self._write_scales(usual_sizes(rows, len(self.shape.layers)))
        store, first = self._stored(), len(self.texts) - len(self._early)
        for number, early in enumerate(self._early, first):
            if store.has_room(number):
                store.add(number, early.example(self.texts[number], self.scales))
        self._early = []

    def store(self, say: Say) -> None:
        """Computes and stores the examples that are not stored yet, as many as the plan's disk allows."""
        store, extract = self._stored(), None
        missing = [number for number in range(len(self.texts)) if number not in store]
        progress = Progress(say, "features", "rows", sum(text.rows for text in self.texts))
        done = sum(text.rows for number, text in enumerate(self.texts) if number in store)
        progress.at(done)
        for number in missing:
            if not store.has_room(number):
                break
            extract = extract or self._scaled()
            store.add(number, extract(self.texts[number]))
            done += self.texts[number].rows
            progress.at(done)
        left = len(self.texts) - len(store)
        if missing:
            note = f"; {left:,} of {len(self.texts):,} texts are computed anew in each epoch" if left else ""
            progress.end(f", {store.used / 1e9:.2f} GB{note}")

    def __call__(self, number: int) -> Example:
        """The example of a text."""
        store = self._stored()
        return store[number] if number in store else self._scaled()(self.texts[number])

    def _stored(self) -> FeatureStore:
        if self._store is None:
            width, top_k = len(self.shape.layers) * self.shape.n_embd, min(TOP_K, self.shape.n_vocab)
            limit = int(self.plan.disk * 1e9)
            self._store = FeatureStore(self.folder.path, self.texts, width, top_k, limit)
        return self._store

    def _scaled(self) -> Extractor:
        extractor = self._raw()
        extractor.scales = self.scales
        return extractor

    def _raw(self) -> Extractor:
        if self._extractor is None:
            self._model = Model(self.target)
            self._extractor = Extractor(self._model, self.shape.layers, self.plan.length, self.plan.threads)
        return self._extractor
