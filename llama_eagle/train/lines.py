"""JSON lines that a killed program may have left without an end: what is whole is read, the rest is cut off."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..errors import TrainingError


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The objects of a file, none where it is missing. An unfinished last line is removed from the file.

    Raises TrainingError with the line for what is no JSON object.
    """
    if not path.exists():
        return []
    data = path.read_bytes()
    whole = data.rfind(b"\n") + 1
    if whole < len(data):
        with path.open("r+b") as file:
            file.truncate(whole)
    return list(_objects(path, data[:whole]))


def _objects(path: Path, data: bytes) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(data.splitlines(), 1):
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict):
            raise TrainingError(f"{path} line {number} is damaged: delete the lines from there on, they are made again")
        yield value
