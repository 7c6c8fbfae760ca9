"""The user's cache directory, and files that appear in it whole or not at all. Knows no models and no network."""

import contextlib
import hashlib
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

_NAME = "llama-eagle"
_SCRATCH = ".fetch-"
_DAY = 24 * 3600


def cache_dir() -> Path:
    """Where fetched files go, existing or not: $LLAMA_EAGLE_CACHE, or llama-eagle in the system's cache folder."""
    own = os.environ.get("LLAMA_EAGLE_CACHE")
    if own:
        return Path(own).expanduser().absolute()
    xdg = os.environ.get("XDG_CACHE_HOME")
    if xdg and Path(xdg).is_absolute():  # relative ones are to be ignored, says the XDG specification
        return Path(xdg) / _NAME
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / _NAME
    if sys.platform == "win32":
        local = os.environ.get("LOCALAPPDATA")
        return (Path(local) if local else Path.home() / "AppData" / "Local") / _NAME / "Cache"
    return Path.home() / ".cache" / _NAME


@contextlib.contextmanager
def scratch_dir(target: Path) -> Iterator[Path]:
    """A folder of one's own next to `target`, on the same file system; gone afterwards."""
    target.parent.mkdir(parents=True, exist_ok=True)
    _sweep(target.parent)
    folder = Path(tempfile.mkdtemp(prefix=_SCRATCH, dir=target.parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _sweep(parent: Path) -> None:
    """Removes what killed processes left here."""
    for folder in parent.glob(_SCRATCH + "*"):
        with contextlib.suppress(OSError):
            if folder.stat().st_mtime < time.time() - _DAY:
                shutil.rmtree(folder)


def sha256_of(path: Path) -> str:
    """Hex SHA-256 of a file."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def is_intact(path: Path, sha256: str) -> bool:
    """Whether the file exists and has that hash.

    A file that passed once is hashed again only when its size or time has changed; a note beside it remembers.
    """
    try:
        stamp = _stamp(path, sha256)
        if _note(path).is_file() and _note(path).read_text(encoding="utf-8") == stamp:
            return True
        if sha256_of(path) != sha256:
            return False
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        return False
    with contextlib.suppress(OSError), scratch_dir(path) as folder:  # the note only saves time
        (folder / "note").write_text(stamp, encoding="utf-8")
        os.replace(folder / "note", _note(path))
    return True


def _note(path: Path) -> Path:
    return path.with_name(path.name + ".verified")


def _stamp(path: Path, sha256: str) -> str:
    status = path.stat()
    return json.dumps({"sha256": sha256, "size": status.st_size, "mtime_ns": status.st_mtime_ns})
