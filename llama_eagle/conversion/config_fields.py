"""Typed values of a config.json: each function reads one key and refuses what is of the wrong type, by name.

Knows JSON, not what the keys mean. All raise CheckpointError.
"""

from collections.abc import Mapping
from typing import Any

from ..errors import CheckpointError

Fields = Mapping[str, Any]
_LEAST, _MOST = 1e-30, 1e30
_SHOWN = 120  # characters of a value in a message


def shown(value: Any) -> str:
    """A value in a message, cut where it is long."""
    text = repr(value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."


def mapping(table: Fields, key: str) -> Fields:
    """The object under `key`, empty where there is none."""
    value = table.get(key)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise CheckpointError(f"config.json has {key} = {shown(value)}; expected an object")
    return value


def switch(key: str, *tables: Fields) -> bool | None:
    """The first true or false under `key` in `tables`, None where all are silent."""
    for table in tables:
        value = table.get(key)
        if value is None:
            continue
        if not isinstance(value, bool):
            raise CheckpointError(f"config.json has {key} = {shown(value)}; expected true or false")
        return value
    return None


def count(table: Fields, key: str, default: int | None = None) -> int:
    """A number from 1 on; `default` where there is none."""
    value = table.get(key)
    if value is None:
        if default is None:
            raise CheckpointError(f"config.json has no {key}; is this the draft's own config?")
        return default
    if type(value) is not int or not 0 < value < 1 << 31:
        raise CheckpointError(f"config.json has {key} = {shown(value)}; expected a positive number")
    return value


def positive(table: Fields, key: str, default: float | None = None) -> float:
    """A number above 0 that float32 can hold with room; `default` where there is none."""
    value = table.get(key)
    if value is None:
        if default is None:
            raise CheckpointError(f"config.json has no {key} for its rope type; is this the draft's own config?")
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or not _LEAST < value < _MOST:
        raise CheckpointError(f"config.json has {key} = {shown(value)}; expected a positive number")
    return float(value)


def layer_numbers(table: Fields, key: str, label: str) -> list[int]:
    """The list of layer numbers under `key`, empty where there is none; `label` names it in the error."""
    value = table.get(key)
    if value is None:
        return []
    if not isinstance(value, list) or any(type(i) is not int for i in value):
        raise CheckpointError(f"config.json has {label} = {shown(value)}; expected a list of layer numbers")
    return value
