"""Checks of arguments that several modules share: whole numbers in a range and arrays of numbers. Knows no model."""

import os
from pathlib import Path
from typing import Any

import numpy as np

from .errors import InputError

INT32 = 2**31 - 1


def whole(name: str, value: Any, least: int = -INT32 - 1, most: int = INT32) -> int:
    """`value` as an int. Raises InputError unless it is a whole number (no bool) in [least, most]."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not least <= value <= most:
        raise InputError(f"{name} {value!r} is not in [{least}, {most}]")
    return int(value)


def file_path(value: Any) -> Path:
    """`value` as a path. Raises InputError for what names no file."""
    if not isinstance(value, str | os.PathLike) or not os.fspath(value) or "\0" in os.fsdecode(value):
        raise InputError(f"a path must be a text or a Path without NUL, got {value!r}")
    return Path(os.fsdecode(value))


def vector(name: str, values: Any, dtype: type) -> np.ndarray:
    """`values` as a contiguous array of whole numbers, one dimension. Raises InputError where a value would change."""
    try:
        given = np.asarray(values)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(f"{name} must be numbers, got {type(values).__name__}: {error}") from None
    if given.dtype.kind not in "iubf":
        raise InputError(f"{name} must be whole numbers, got {type(values).__name__} of {given.dtype}")
    if given.ndim != 1:
        raise InputError(f"{name} must have one dimension, got shape {given.shape}")
    if given.dtype == dtype:
        return np.ascontiguousarray(given)
    with np.errstate(invalid="ignore"):
        array: np.ndarray = np.ascontiguousarray(given, dtype=dtype)
    if not np.array_equal(given, array):
        raise InputError(f"{name} must be whole numbers of {array.dtype}, got others")
    return array


def matrix(name: str, values: Any) -> np.ndarray:
    """`values` as a contiguous float32 array of two dimensions. Raises InputError when they are no such thing."""
    try:
        array = np.ascontiguousarray(values, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} must be float32 rows: {error}") from None
    if array.ndim != 2:
        raise InputError(f"{name} must have shape [n, width], got {array.shape}")
    return array
