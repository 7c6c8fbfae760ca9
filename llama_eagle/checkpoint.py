"""Checkpoint: a folder with config.json and safetensors files, read without running anything in it.

Knows the safetensors format (github.com/huggingface/safetensors, "Format": an 8-byte length, a JSON header, raw
little-endian data) and shards with an index. Does not know what the tensors mean.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from .errors import CheckpointError

MAX_HEADER = 100 << 20  # the format's own limit
INDEX = "model.safetensors.index.json"
# numpy has no bfloat16: it is read as 16-bit patterns and widened by a shift.
DTYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2",
    "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1", "U8": "u1", "BOOL": "?",
}  # fmt: skip
FLOATS = ("F64", "F32", "F16", "BF16")
INTEGERS = ("I64", "I32")


@dataclass(frozen=True)
class Entry:
    """Where one tensor lies: `offset` in bytes from the start of `file`."""

    file: Path
    dtype: str
    shape: tuple[int, ...]
    offset: int
    count: int


class Checkpoint:
    """The config and the tensors of a checkpoint folder. Raises CheckpointError for anything unreadable.

    folder  directory with config.json and either one .safetensors file or shards with their index
    config  the parsed config.json
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        if not self.folder.is_dir():
            what = "is a file" if self.folder.is_file() else "does not exist"
            raise CheckpointError(f"checkpoint {self.folder} {what}; give the folder that holds config.json")
        if not any(self.folder.iterdir()):
            raise CheckpointError(f"checkpoint {self.folder} is an empty folder; download it again")
        self.config = read_json(self.folder / "config.json")
        self._entries: dict[str, Entry] = {}
        for file in _weight_files(self.folder):
            for name, entry in _read_header(file).items():
                if name in self._entries:
                    raise CheckpointError(f"tensor {name} is in both {self._entries[name].file.name} and {file.name}")
                self._entries[name] = entry

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    @property
    def names(self) -> list[str]:
        """Names of all tensors, in the order of the files."""
        return list(self._entries)

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape as PyTorch writes it, rows first. Raises CheckpointError if the tensor is missing."""
        return self._entry(name).shape

    def floats(self, name: str) -> npt.NDArray[np.float32]:
        """Values of a float tensor as float32. Raises CheckpointError for other types, NaN and infinity."""
        entry = self._entry(name)
        if entry.dtype not in FLOATS:
            raise CheckpointError(f"tensor {name} is {entry.dtype}; weights must be one of {', '.join(FLOATS)}")
        raw = _read(entry, name)
        if entry.dtype == "BF16":
            wide = raw.astype(np.uint32)
            wide <<= 16
            values = wide.view(np.float32)
        else:
            with np.errstate(over="ignore"):  # a float64 that overflows is reported below
                values = raw.astype(np.float32, copy=False)
        if not np.isfinite(values).all():
            bad = int(values.size - np.isfinite(values).sum())
            raise CheckpointError(
                f"tensor {name} holds {bad} values that are NaN or infinite; the checkpoint is broken"
            )
        return values

    def integers(self, name: str) -> npt.NDArray[np.int64]:
        """Values of an integer tensor as int64. Raises CheckpointError for other types."""
        entry = self._entry(name)
        if entry.dtype not in INTEGERS:
            raise CheckpointError(f"tensor {name} is {entry.dtype}; it must be one of {', '.join(INTEGERS)}")
        return _read(entry, name).astype(np.int64, copy=False)

    def booleans(self, name: str) -> npt.NDArray[np.bool_] | None:
        """Values of a boolean tensor, None where it is stored as something else."""
        entry = self._entry(name)
        return _read(entry, name).astype(np.bool_) if entry.dtype in ("BOOL", "U8") else None

    def _entry(self, name: str) -> Entry:
        try:
            return self._entries[name]
        except KeyError:
            raise CheckpointError(f"tensor {name} is missing from {self.folder}") from None


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in `path`. Raises CheckpointError if it is missing or is not one."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError(f"{path} is missing; an EAGLE checkpoint has one") from None
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise CheckpointError(f"{path} holds a {type(value).__name__}; expected a JSON object")
    return value


def _weight_files(folder: Path) -> list[Path]:
    if (folder / INDEX).is_file():
        return _shards(folder)
    if (folder / "model.safetensors").is_file():
        return [folder / "model.safetensors"]
    found = sorted(folder.glob("*.safetensors"))
    if len(found) == 1:
        return found
    if found:
        raise CheckpointError(f"{folder} has {len(found)} .safetensors files but no {INDEX}; download it again")
    pickles = sorted(folder.glob("*.bin"))
    if pickles:
        raise CheckpointError(f"{pickles[0]} is a pickle, which this version does not read; save it as safetensors")
    raise CheckpointError(f"{folder} holds no .safetensors file; download the weights too")


def _shards(folder: Path) -> list[Path]:
    table = read_json(folder / INDEX).get("weight_map")
    if not isinstance(table, dict) or not table:
        raise CheckpointError(f"{folder / INDEX} has no weight_map; download it again")
    names = list(dict.fromkeys(table.values()))
    for name in names:
        if not isinstance(name, str) or Path(name).name != name:
            raise CheckpointError(f"{folder / INDEX} names the shard {name!r}; expected a file name in the same folder")
        if not (folder / name).is_file():
            raise CheckpointError(f"shard {folder / name} is missing; download it again")
    files = [folder / name for name in names]
    present = {name for file in files for name in _read_header(file)}
    lost = sorted(set(table) - present)
    if lost:
        raise CheckpointError(f"tensor {lost[0]} is in {INDEX} but in none of its shards; download them again")
    return files


def _read_header(path: Path) -> dict[str, Entry]:
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if size < 8 or length > min(MAX_HEADER, size - 8):
                raise CheckpointError(f"{path} is truncated or no safetensors file ({size} bytes); download it again")
            header = json.loads(file.read(length))
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        if isinstance(error, CheckpointError):
            raise
        raise CheckpointError(f"{path} has a broken header: {error}") from None
    if not isinstance(header, dict):
        raise CheckpointError(f"{path} has a broken header: expected a JSON object")
    start = 8 + length
    return {name: _entry(path, name, value, start) for name, value in header.items() if name != "__metadata__"}


def _entry(path: Path, name: str, value: Any, data_start: int) -> Entry:
    if not name.isprintable():
        raise CheckpointError(f"{path} has a broken header: tensor name {name!r}")
    try:
        dtype, shape, (begin, end) = value["dtype"], tuple(value["shape"]), value["data_offsets"]
        whole = all(type(n) is int and n >= 0 for n in (*shape, begin, end))
    except (TypeError, KeyError, ValueError):
        whole = False
    if not whole:
        raise CheckpointError(f"{path} has a broken header entry for tensor {name}; download it again")
    if dtype not in DTYPES:
        raise CheckpointError(f"tensor {name} has type {dtype!r}; supported are {', '.join(DTYPES)}")
    count = 1
    for n in shape:
        count *= n
    if end - begin != count * np.dtype(DTYPES[dtype]).itemsize:
        raise CheckpointError(f"tensor {name} of shape {list(shape)} {dtype} has {end - begin} bytes of data in {path}")
    if data_start + end > path.stat().st_size:
        raise CheckpointError(f"{path} is truncated: tensor {name} ends after the file; download it again")
    return Entry(path, dtype, shape, data_start + begin, count)


def _read(entry: Entry, name: str) -> npt.NDArray[Any]:
    try:
        flat = np.fromfile(entry.file, np.dtype(DTYPES[entry.dtype]), entry.count, offset=entry.offset)
    except OSError as error:
        raise CheckpointError(f"cannot read {entry.file}: {error.strerror or error}") from None
    if flat.size != entry.count:
        raise CheckpointError(f"{entry.file} changed while tensor {name} was read; try again")
    return flat.reshape(entry.shape)
