"""Mutations of files for the fuzzer: bytes, whole numbers, JSON values. Deterministic given the random generator."""

import copy
import json
import random
from typing import Any

NUMBERS = (0, 1, 2, 7, 31, 255, 256, 65535, 1 << 20, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 40, 1 << 62, 1 << 63)
HOSTILE: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2, 3, 17, 1 << 31, 1 << 63, 10**30, -0.5, 0.5, 1e308, float("nan"), float("inf"), "",
    "x", "\n", "\ud800", "a" * 5000, "../../x", [], [[]], {}, [1, 2], {"x": 1}, [None], "llama", "yarn",
)  # fmt: skip


def mutate_bytes(rng: random.Random, data: bytes, focus: int) -> bytes:
    """A few changes, most of them within the first `focus` bytes (the header)."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4))):
        reach = max(1, min(len(changed), focus) if rng.random() < 0.9 else len(changed))
        rng.choice((_flip, _overwrite, _number, _remove, _repeat, _cut))(rng, changed, rng.randrange(reach))
    return bytes(changed)


def mutate_json(rng: random.Random, text: str) -> str:
    """A JSON object with a few of its values, at any depth, replaced, removed or copied elsewhere."""
    value = copy.deepcopy(json.loads(text))
    for _ in range(rng.choice((1, 1, 2, 3))):
        places = list(_places(value))
        if not places:
            break
        owner, key = rng.choice(places)
        action = rng.random()
        if action < 0.2:
            del owner[key]
        elif action < 0.4:
            other, place = rng.choice(places)
            owner[key] = copy.deepcopy(other[place]) if place in _keys(other) else None
        else:
            owner[key] = copy.deepcopy(rng.choice(HOSTILE))
    return json.dumps(value)


def _places(value: Any) -> Any:
    """Every (container, key or index) inside `value`."""
    for key in _keys(value):
        yield value, key
        yield from _places(value[key])


def _keys(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value)
    return list(range(len(value))) if isinstance(value, list) else []


def _flip(rng: random.Random, data: bytearray, at: int) -> None:
    if data:
        data[at] ^= 1 << rng.randrange(8)


def _overwrite(rng: random.Random, data: bytearray, at: int) -> None:
    size = rng.randrange(1, 9)
    data[at : at + size] = rng.choice((b"\0", b"\xff", rng.randbytes(1))) * size


def _number(rng: random.Random, data: bytearray, at: int) -> None:
    size = rng.choice((1, 2, 4, 8))
    data[at : at + size] = (rng.choice(NUMBERS) & ((1 << 8 * size) - 1)).to_bytes(size, "little")


def _remove(rng: random.Random, data: bytearray, at: int) -> None:
    del data[at : at + rng.choice((1, 2, 4, 8, 64))]


def _repeat(rng: random.Random, data: bytearray, at: int) -> None:
    data[at:at] = data[at : at + rng.choice((1, 4, 16, 100))] * rng.choice((1, 2, 50))


def _cut(rng: random.Random, data: bytearray, at: int) -> None:
    if rng.random() < 0.3:
        del data[at:]
