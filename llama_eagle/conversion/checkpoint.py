"""Checkpoint: a folder with config.json and weight files, read without running anything in it.

Knows which files hold the weights, and shards with an index. Does not know their formats, nor what the tensors mean.
"""

import json
import os.path
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import CheckpointError
from .pickle_file import read_pickle_file
from .safetensors_file import read_safetensors
from .stored_tensor import StoredTensor

INDEX = "model.safetensors.index.json"
PICKLE_INDEX = "pytorch_model.bin.index.json"
MAX_JSON = 64 << 20
NO_WEIGHTS = ("training_args.bin", "optimizer.bin", "scheduler.bin")  # what trainers leave in the folder
READERS: dict[str, Callable[[Path], dict[str, StoredTensor]]] = {
    ".safetensors": read_safetensors,
    ".bin": read_pickle_file,
}
_POINTER = b"version https://git-lfs"


class Checkpoint:
    """The config and the tensors of a checkpoint folder. Raises CheckpointError for anything unreadable.

    folder  directory with config.json and one weight file (.safetensors, else .bin) or shards with their index
    config  the parsed config.json
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        _check_folder(self.folder)
        self.config = read_json(self.folder / "config.json")
        self._tensors = _read_weights(self.folder)

    def __contains__(self, name: object) -> bool:
        return name in self._tensors

    @property
    def files(self) -> set[Path]:
        """The files that it was read from."""
        indexes = [file for index in (INDEX, PICKLE_INDEX) if (file := self.folder / index).is_file()]
        return {self.folder / "config.json", *indexes, *(tensor.file for tensor in self._tensors.values())}

    @property
    def names(self) -> list[str]:
        """Names of all tensors, in the order of the files."""
        return list(self._tensors)

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape as PyTorch writes it, rows first. Raises CheckpointError if the tensor is missing."""
        return self._tensor(name).shape

    def dtype(self, name: str) -> str:
        """Number type, one of stored_tensor.DTYPES. Raises CheckpointError if the tensor is missing."""
        return self._tensor(name).dtype

    def floats(self, name: str) -> npt.NDArray[np.float32]:
        """Values of a float tensor as float32. Raises CheckpointError for other types, NaN and infinity."""
        return self._tensor(name).floats()

    def integers(self, name: str) -> npt.NDArray[np.int64]:
        """Values of an integer tensor as int64. Raises CheckpointError for other types."""
        return self._tensor(name).integers()

    def booleans(self, name: str) -> npt.NDArray[np.bool_] | None:
        """Values of a boolean tensor, None where it is stored as something else."""
        return self._tensor(name).booleans()

    def has_as_declared(self, name: str, key: str, said: bool | None) -> bool:
        """Whether a tensor is there. Raises CheckpointError where `said`, the config's word under `key`, denies it."""
        present = name in self
        if said is not None and said != present:
            what = "is in the file" if present else "is missing"
            raise CheckpointError(f"config.json has {key} = {said}, but tensor {name} {what}")
        return present

    def _tensor(self, name: str) -> StoredTensor:
        try:
            return self._tensors[name]
        except KeyError:
            raise CheckpointError(f"tensor {name} is missing from {self.folder}") from None


def _check_folder(folder: Path) -> None:
    if not os.path.isdir(folder):  # Path.is_dir fails for names that are too long
        what = "is a file" if os.path.isfile(folder) else "is no folder" if os.path.exists(folder) else "does not exist"
        raise CheckpointError(
            f"checkpoint {str(folder)[:300]} {what}; give the folder that holds config.json, or a hub id"
        )
    try:
        empty = not any(folder.iterdir())
    except OSError as error:
        raise CheckpointError(f"cannot read folder {folder}: {error.strerror}") from None
    if empty:
        raise CheckpointError(f"checkpoint {folder} is an empty folder; download it again")


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in `path`. Raises CheckpointError if it is missing or is not one."""
    try:
        if path.exists() and not path.is_file():  # a pipe would be waited for
            raise CheckpointError(f"{path} is no file; download it again")
        if path.exists() and path.stat().st_size > MAX_JSON:
            raise CheckpointError(f"{path} has {path.stat().st_size} bytes, which no description of a model has")
        value = json.loads(path.read_text(encoding="utf-8"))
    except CheckpointError:
        raise
    except FileNotFoundError:
        raise CheckpointError(f"{path} is missing; an EAGLE checkpoint has one") from None
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is not valid JSON ({error}); download it again") from None
    if not isinstance(value, dict):
        raise CheckpointError(f"{path} holds a {type(value).__name__}; expected a JSON object")
    return value


def _read_weights(folder: Path) -> dict[str, StoredTensor]:
    for index in (INDEX, PICKLE_INDEX):
        if (folder / index).is_file() and not _is_whole(folder, index):
            return _read_shards(folder, index)
        file = _single_file(folder, index)
        if file is not None:
            return _read_file(file)
    raise CheckpointError(f"{folder} holds no .safetensors file and no pytorch_model.bin; download the weights too")


def _is_whole(folder: Path, index: str) -> bool:
    """True where the index is left over: its shards are gone and one file with all the weights lies beside it."""
    names = _shard_names(folder, index)
    return (folder / index.removesuffix(".index.json")).is_file() and not any(
        os.path.isfile(folder / name) for name in names
    )


def _single_file(folder: Path, index: str) -> Path | None:
    usual = folder / index.removesuffix(".index.json")
    if usual.is_file():
        return usual
    found = sorted(f for f in folder.glob(f"*{usual.suffix}") if f.is_file() and f.name not in NO_WEIGHTS)
    if len(found) > 1:
        raise CheckpointError(f"{folder} has {len(found)} {usual.suffix} files but no {index}; download it again")
    return found[0] if found else None


def _shard_names(folder: Path, index: str) -> list[str]:
    table = read_json(folder / index).get("weight_map")
    if not isinstance(table, dict) or not table:
        raise CheckpointError(f"{folder / index} has no weight_map; download it again")
    for name in table.values():
        if not _is_shard(name):
            text = repr(name)[:80]
            raise CheckpointError(f"{folder / index} names the shard {text}; expected a file name in the same folder")
    return list(dict.fromkeys(table.values()))


def _is_shard(name: Any) -> bool:
    if not isinstance(name, str) or not name.isprintable():
        return False
    return Path(name).name == name and Path(name).suffix in READERS


def _read_shards(folder: Path, index: str) -> dict[str, StoredTensor]:
    tensors: dict[str, StoredTensor] = {}
    for shard in _shard_names(folder, index):
        if not os.path.isfile(folder / shard):
            raise CheckpointError(f"shard {shard[:80]} is missing from {folder}; download it again")
        for name, tensor in _read_file(folder / shard).items():
            if name in tensors:
                raise CheckpointError(f"tensor {name} is in both {tensors[name].file.name} and {shard}")
            tensors[name] = tensor
    lost = sorted(set(read_json(folder / index)["weight_map"]) - set(tensors))
    if lost:
        name = lost[0][:80] if lost[0].isprintable() else repr(lost[0])[:80]
        raise CheckpointError(f"tensor {name} is in {index} but in none of its shards; download them again")
    return tensors


def _read_file(path: Path) -> dict[str, StoredTensor]:
    try:
        with path.open("rb") as file:
            start = file.read(len(_POINTER))
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror}") from None
    if start == _POINTER:
        raise CheckpointError(f"{path} is a Git LFS pointer, not the weights; fetch them with `git lfs pull`")
    return READERS[path.suffix](path)
