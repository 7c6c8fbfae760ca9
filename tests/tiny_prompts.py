"""Prompts for tiny targets."""

import json
from pathlib import Path


def words(count: int) -> list[str]:
    """The first `count` of them."""
    return [f"{a}{b} {c}" for a in "abcdefg" for b in "klmno" for c in "uvwx"][:count]


def write(path: Path, count: int = 140) -> Path:
    """Writes the first `count` of them as JSON lines."""
    path.write_text("\n".join(json.dumps({"prompt": text}) for text in words(count)))
    return path
