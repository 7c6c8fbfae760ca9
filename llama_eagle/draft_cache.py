"""Checkpoints converted once: GGUFs in the cache, found again by the content of what they were made from.

Knows what a conversion depends on, not how it is done.
"""

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path

from . import __version__
from .cache import cache_dir, scratch_dir, sha256_of
from .conversion.converter import convert
from .errors import CheckpointError, DownloadError, ModelError
from .gguf_files.check import check_gguf
from .gguf_files.header import read_header

CONVERTER = 3  # raised when the converter writes something else for the same checkpoint
_WEIGHTS = ("*.safetensors", "*.bin")
_TAIL = 1 << 16  # bytes at the end of a target that stand for its weights
_BLOB = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


def converted(source: Path, target: Path | None, say: Callable[[str], None] = lambda line: None) -> Path:
    """The GGUF of a checkpoint folder for a target's GGUF, converted unless the cache has it.

    say: takes one line when there is something to convert. Two processes at once are fine: a file appears whole.
    Raises CheckpointError and ModelError as convert() does, DownloadError where the cache cannot be written.
    """
    name = _name(source)
    try:
        folder = cache_dir() / "drafts"
        out = folder / f"{name}-{_key(source, target)}.gguf"
        if out.is_file() and _is_whole(out):
            return out
        say(f"converting {name} to {out}")
        with scratch_dir(out) as scratch:
            convert(source, target, scratch / out.name)
            _put(scratch / out.name, out)
    except OSError as error:
        if isinstance(error, DownloadError):
            raise
        raise DownloadError(
            f"cannot keep the converted draft: {error}; set LLAMA_EAGLE_CACHE to another folder"
        ) from error
    return out


def _is_whole(out: Path) -> bool:
    """Whether a kept draft can be read to its end; one cut by a full disk or a crash is converted again."""
    try:
        check_gguf(out)
    except ModelError:
        return False
    return True


def _put(fresh: Path, out: Path) -> None:
    try:
        os.replace(fresh, out)
    except PermissionError:  # Windows: another process was faster and has it open
        if not out.is_file():
            raise


def _name(source: Path) -> str:
    """The folder's name, or the repository's for a snapshot in huggingface_hub's cache."""
    folder = source.resolve()
    if folder.parent.name == "snapshots" and folder.parents[1].name.startswith("models--"):
        return folder.parents[1].name.removeprefix("models--")
    return folder.name or "draft"


def _key(source: Path, target: Path | None) -> str:
    """16 hex digits of a hash over all that a conversion depends on."""
    config = source / "config.json"
    if not config.is_file():
        raise CheckpointError(f"{config} is missing: give a folder with an EAGLE checkpoint, or its GGUF")
    digest = hashlib.sha256(f"{__version__} {CONVERTER}\n".encode())
    for path in sorted(path for pattern in ("*.json", *_WEIGHTS) for path in source.glob(pattern) if path.is_file()):
        digest.update(f"{path.name} {_content(path)}\n".encode())
    if target is not None:
        for part in _target_parts(target):
            digest.update(part)
    return digest.hexdigest()[:16]


def _target_parts(target: Path) -> Iterable[bytes]:
    """Metadata, tensor list, size and the last bytes of a target: its head may become the draft's."""
    header = read_header(target)
    with target.open("rb") as file:
        yield file.read(header.data_start)
        file.seek(max(header.size - _TAIL, 0))
        yield file.read()
    yield str(header.size).encode()


def _content(path: Path) -> str:
    """A hash of a file's content: huggingface_hub's name of it, or a SHA-256 that is kept beside the cache."""
    blob = path.resolve()
    if path.is_symlink() and blob.parent.name == "blobs" and _BLOB.fullmatch(blob.name):
        return blob.name
    status = blob.stat()
    state = [str(blob), status.st_size, status.st_mtime_ns]
    note = cache_dir() / "hashes" / hashlib.sha256(str(blob).encode()).hexdigest()
    try:
        kept = json.loads(note.read_text(encoding="utf-8"))
        if kept["state"] == state:
            return str(kept["sha256"])
    except (OSError, ValueError, TypeError, KeyError):
        pass  # not hashed yet
    try:
        found = sha256_of(blob)
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror}") from None
    with scratch_dir(note) as folder:
        (folder / note.name).write_text(json.dumps({"state": state, "sha256": found}), encoding="utf-8")
        os.replace(folder / note.name, note)
    return found
