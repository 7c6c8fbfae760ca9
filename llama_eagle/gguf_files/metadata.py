"""Metadata: typed and bounded look-ups in the metadata of a model, whose errors name key and value.

Knows how an architecture's keys are spelled, and no rule of any architecture.
"""

import numpy as np

from ..errors import ModelError
from .header import BOOL, WHOLE, GgufHeader, TensorEntry, Value

MOST_LAYERS, MOST_SIZE = 512, 1 << 24  # the first is llama.cpp's LLAMA_MAX_LAYERS


class Metadata:
    """One model's header. tensors: of all parts of a split file. Keys of the architecture come without its prefix."""

    def __init__(self, header: GgufHeader, tensors: "list[TensorEntry] | None" = None) -> None:
        self.values = header.values
        self.tensors = header.tensors if tensors is None else tensors
        self.arch = self.text("general.architecture")
        self.shapes = {entry.name: entry.shape for entry in self.tensors}  # as GGUF orders it
        self._n_layer = 0

    @property
    def n_layer(self) -> int:
        """All blocks of the model. Raises ModelError unless there are 1 to MOST_LAYERS."""
        self._n_layer = self._n_layer or self.size("block_count", 0, 1, MOST_LAYERS)
        return self._n_layer

    def get(self, key: str) -> "Value | None":
        """The architecture's value."""
        return self.values.get(f"{self.arch}.{key}")

    def text(self, key: str, default: str = "") -> str:
        """A text under its full key. Raises ModelError for other types and for what cannot be printed."""
        value = self.values.get(key)
        if value is None:
            return default
        if value.is_array or not isinstance(value.data, bytes):
            raise ModelError(f"{key} is no text")
        text = value.data.decode("utf-8", "replace")
        if not text.isprintable():
            raise ModelError(f"{key} is {text[:40]!r}")
        return text

    def number(self, key: str) -> "float | None":
        """A number under its full key, the first of an array; None where it is absent or something else."""
        value = self.values.get(key)
        usable = value is not None and value.count and isinstance(value.data, np.ndarray)
        return float(value.data[0]) if value is not None and usable else None

    def flag(self, key: str) -> bool:
        """A switch of the architecture, false where it is absent. Raises ModelError for another type."""
        value = self.get(key)
        if value is not None and (value.is_array or value.kind != BOOL):
            raise ModelError(f"{self.arch}.{key} is no bool")
        return value is not None and isinstance(value.data, np.ndarray) and bool(value.data[0])

    def size(self, key: str, default: int, least: int, most: int) -> int:
        """A whole number of the architecture. Raises ModelError unless it is in [least, most]."""
        value = self.get(key)
        return default if value is None else int(self.sizes(key, value, least, most)[0])

    def sizes(self, key: str, value: Value, least: int, most: int) -> np.ndarray:
        """The whole numbers of a value, int64. Raises ModelError unless there are some, all in [least, most]."""
        name = f"{self.arch}.{key}"
        if value.kind not in WHOLE or not isinstance(value.data, np.ndarray) or not value.count:
            raise ModelError(f"{name} is no whole number")
        wrong = value.data[(value.data < least) | (value.data > most)]
        if wrong.size:
            raise ModelError(f"{name} is {int(wrong[0])}, expected {least} to {most}")
        return value.data.astype(np.int64)

    def per_layer(self, key: str, default: "np.ndarray | int", least: int, most: int) -> np.ndarray:
        """One number a layer, int64[n_layer]; one for all is repeated."""
        value = self.get(key)
        found = np.asarray(default) if value is None else self.sizes(key, value, least, most)
        if value is not None and value.is_array and len(found) != self.n_layer:
            raise ModelError(f"{self.arch}.{key} has {len(found)} entries, the model has {self.n_layer} layers")
        return np.broadcast_to(found, (self.n_layer,)).astype(np.int64)
