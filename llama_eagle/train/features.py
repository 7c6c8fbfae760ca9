"""FeatureStore: examples on disk, appended one by one and read through a memory map, each with a checksum.

`features.bin` holds the arrays back to back, `features.jsonl` a line for each: what it is of, where, and its CRC-32. A
line is written after its bytes, so that whatever a killed run left unfinished is cut off. Knows no model.
"""

import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import TrainingError
from .example import Example, Text
from .lines import read_lines


class FeatureStore:
    """The examples of `texts`, by their numbers, of `width` numbers a row and `top_k` likeliest tokens.

    limit: bytes that it may fill; texts beyond that are not in it.
    """

    def __init__(self, folder: Path, texts: list[Text], width: int, top_k: int, limit: int) -> None:
        self.texts, self.width, self.top_k, self.limit = texts, width, top_k, limit
        self._data, self._index = folder / "features.bin", folder / "features.jsonl"
        self._entries = {int(line["text"]): (int(line["offset"]), int(line["crc"])) for line in self._lines()}
        self.used = max((offset + self.size(texts[i]) for i, (offset, _) in self._entries.items()), default=0)
        self._map: np.ndarray | None = None
        if self._data.exists() and self._data.stat().st_size < self.used:
            raise TrainingError(f"{self._data} is shorter than {self._index} says: delete both, they are made again")

    def _lines(self) -> Iterator[dict[str, Any]]:
        return (line for line in read_lines(self._index) if 0 <= int(line["text"]) < len(self.texts))

    def __contains__(self, number: int) -> bool:
        return number in self._entries

    def __len__(self) -> int:
        return len(self._entries)

    def size(self, text: Text) -> int:
        """Bytes of a text's example."""
        return text.rows * self.width * 2 + text.count * self.top_k * 6

    def has_room(self, number: int) -> bool:
        """Whether a text's example may still be added."""
        return self.used + self.size(self.texts[number]) <= self.limit

    def add(self, number: int, example: Example) -> None:
        """Appends the example of a text."""
        block = example.features.tobytes() + example.ids.tobytes() + example.logp.tobytes()
        with open(self._data, "r+b" if self._data.exists() else "w+b") as file:
            file.truncate(self.used)
            file.seek(self.used)
            file.write(block)
        entry = {"text": number, "offset": self.used, "crc": zlib.crc32(block)}
        with open(self._index, "a", encoding="utf-8") as lines:
            lines.write(json.dumps(entry) + "\n")
        self._entries[number] = entry["offset"], entry["crc"]
        self.used += len(block)
        self._map = None

    def __getitem__(self, number: int) -> Example:
        """The example of a text. Raises KeyError where it is not stored, TrainingError where it is damaged."""
        offset, crc = self._entries[number]
        text = self.texts[number]
        if self._map is None:
            self._map = np.memmap(self._data, np.uint8, "r")
        block = self._map[offset : offset + self.size(text)]
        if zlib.crc32(block.tobytes()) != crc:
            raise TrainingError(f"{self._data} is damaged at byte {offset}: delete it and {self._index}")
        features, rest = np.split(block, [text.rows * self.width * 2])
        ids, logp = np.split(rest, [text.count * self.top_k * 4])
        return Example(
            text,
            features.view(np.float16).reshape(text.rows, self.width),
            ids.view(np.int32).reshape(text.count, self.top_k),
            logp.view(np.float16).reshape(text.count, self.top_k),
        )
