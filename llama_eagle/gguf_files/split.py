"""The parts of a split GGUF file, `name-00001-of-0000N.gguf`: found, read and checked against each other.

Knows the `split.*` keys and the names that llama.cpp derives from the first part's, and no architecture.
"""

import re
from pathlib import Path

import numpy as np

from ..errors import ModelError
from .header import GgufHeader, read_header

_NAME = re.compile(r"(?P<prefix>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.DOTALL)
_U16, _INT = (2,), (2, 3, 4, 5)  # llama.cpp aborts on split.no of any other type


def read_parts(path: Path, header: GgufHeader) -> list[tuple[Path, GgufHeader]]:
    """The parts of the file whose header this is, itself first. Raises ModelError where one is missing or does not fit.

    A file that is not split is its only part.
    """
    count = _key(header, "split.count", _INT)
    name = _NAME.fullmatch(path.name)
    if count is None or count <= 1:
        if name is not None and int(name["count"]) > 1:
            raise ModelError(f"it is named like part {int(name['number'])} of {int(name['count'])}, and is not split")
        return [(path, header)]
    number = _key(header, "split.no", _U16)
    if number is None:
        raise ModelError(f"split.count is {count}, and there is no split.no")
    if name is None or int(name["count"]) != count or int(name["number"]) != number + 1:
        raise ModelError(f"it is part {number + 1} of {count} and not named so: expected NAME-{_suffix(number, count)}")
    files = [path.with_name(f"{name['prefix']}-{_suffix(index, count)}") for index in range(count)]
    if number:
        raise ModelError(f"it is part {number + 1} of {count}: open the first, {files[0].name}")
    for file in files:
        if not file.is_file():
            raise ModelError(f"its part {file.name} is missing: all {count} must lie in one folder")
    parts = [(path, header)] + [(file, _read_part(file, index)) for index, file in enumerate(files) if index]
    _check_names(parts, header)
    return parts


def _suffix(index: int, count: int) -> str:
    return f"{index + 1:05d}-of-{count:05d}.gguf"


def _key(header: GgufHeader, key: str, kinds: tuple[int, ...]) -> "int | None":
    value = header.values.get(key)
    if value is None:
        return None
    if value.is_array or value.kind not in kinds or not isinstance(value.data, np.ndarray):
        raise ModelError(f"{key} has the type {value.kind}, expected a {'u16' if kinds is _U16 else 'whole number'}")
    number = int(value.data[0])
    if not 0 <= number < 1 << (16 if key != "split.tensors.count" else 31):
        raise ModelError(f"{key} is {number}")
    return number


def _read_part(file: Path, index: int) -> GgufHeader:
    try:
        header = read_header(file)
        number = _key(header, "split.no", _U16)
    except ModelError as error:
        raise ModelError(f"its part {file.name} is broken: {error}") from None
    if number != index:
        raise ModelError(f"its part {file.name} has split.no {number}, expected {index}")
    return header


def _check_names(parts: list[tuple[Path, GgufHeader]], first: GgufHeader) -> None:
    """No tensor twice, and as many as the first part says."""
    owner: dict[str, Path] = {}
    for file, header in parts:
        for entry in header.tensors:
            other = owner.setdefault(entry.name, file)
            if other is not file:
                raise ModelError(f"tensor {entry.name} is in {other.name} and again in {file.name}")
    total = _key(first, "split.tensors.count", _INT)
    if total != len(owner):
        raise ModelError(f"split.tensors.count is {total}, its parts have {len(owner)} tensors")
