"""Packs what a check on another machine needs into parts below a limit, and puts it together again there.

One compressed archive, cut into parts: the checkout's tracked files, the patched llama.cpp with its stamp (so that no
network and no git is needed to build), the embedded target, and what else is named. Knows neither CUDA nor tests.
unpack() needs this file alone.
"""

import gzip
import hashlib
import json
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

MANIFEST = "parts.json"
SOURCE = "build/llama.cpp-source"  # where CMake looks for the patched tree, and finds its stamp


class PackError(Exception):
    """Parts that cannot be put together; the text says which."""


class _Parts:
    """A file to write to that is cut into several, each of `size` bytes at most."""

    def __init__(self, folder: Path, size: int) -> None:
        self._folder, self._size = folder, size
        self.names: list[str] = []

    def write(self, data: bytes) -> int:
        view = memoryview(data)
        while view:
            if not self.names or self._last.stat().st_size == self._size:
                self.names.append(f"part-{len(self.names):02d}")
                self._last.touch()
            room = self._size - self._last.stat().st_size
            with self._last.open("ab") as file:
                file.write(view[:room])
            view = view[room:]
        return len(data)

    @property
    def _last(self) -> Path:
        return self._folder / self.names[-1]


def pack(out: Path, members: dict[str, Path], size: int) -> list[Path]:
    """Writes files and folders, each under its name, as parts of at most `size` bytes and a list of them."""
    out.mkdir(parents=True, exist_ok=True)
    for old in [*out.glob("part-*"), out / MANIFEST]:
        old.unlink(missing_ok=True)
    parts = _Parts(out, size)
    with gzip.open(parts, "wb", compresslevel=1) as stream, tarfile.open(fileobj=stream, mode="w|") as archive:
        for name, path in members.items():
            archive.add(path, name)
    listed = [{"name": name, "sha256": _sha256(out / name)} for name in parts.names]
    (out / MANIFEST).write_text(json.dumps(listed, indent=1) + "\n", "utf-8")
    return [out / name for name in parts.names]


def unpack(parts: Path, dest: Path) -> list[str]:
    """Takes in the parts that are there; the names of those still missing, none when everything lies in `dest`.

    Parts may come one by one, each time with the list. Raises PackError for one that was damaged on its way.
    """
    kept = dest / "parts"
    kept.mkdir(parents=True, exist_ok=True)
    listed = json.loads((parts / MANIFEST).read_text("utf-8"))
    for entry in listed:
        here, there = parts / entry["name"], kept / entry["name"]
        if here.is_file():
            if _sha256(here) != entry["sha256"]:
                raise PackError(f"{here} is damaged: its sha256 is not that of {MANIFEST}")
            shutil.copyfile(here, there)
    names = [entry["name"] for entry in listed]
    missing = [name for name in names if not (kept / name).is_file()]
    if not missing:
        joined = _Joined([kept / name for name in names])
        with gzip.open(joined) as stream, tarfile.open(fileobj=stream, mode="r|") as archive:
            for member in archive:
                _extract(archive, member, dest)
        shutil.rmtree(kept)
    return missing


def _extract(archive: tarfile.TarFile, member: tarfile.TarInfo, dest: Path) -> None:
    """A plain file or folder below dest; tarfile's own filters came with Python 3.12."""
    there = (dest / member.name).resolve()
    if not there.is_relative_to(dest.resolve()) or not (member.isfile() or member.isdir()):
        raise SystemExit(f"{member.name} is no file or folder below {dest}")
    archive.extract(member, dest)


class _Joined:
    """Several files to read from as if they were one."""

    def __init__(self, paths: list[Path]) -> None:
        self._blocks = self._read(paths)
        self._rest = b""

    @staticmethod
    def _read(paths: list[Path]) -> Iterator[bytes]:
        for path in paths:
            with path.open("rb") as file:
                while block := file.read(1 << 20):
                    yield block

    def read(self, size: int) -> bytes:
        while len(self._rest) < size and (block := next(self._blocks, b"")):
            self._rest += block
        data, self._rest = self._rest[:size], self._rest[size:]
        return data


def members(scratch: Path, target: Path, extra: list[Path]) -> dict[str, Path]:
    """What is packed, by name: the checkout, the patched source, the target for the cache, and `extra/`."""
    from patches import ROOT, apply  # noqa: PLC0415 - where parts arrive there is nothing else yet

    checkout, source = scratch / "checkout", scratch / "source"
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True).stdout
    for name in filter(None, listed.split("\0")):
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, checkout / name)
    apply(source, "")
    found = {"checkout": checkout, SOURCE: source, f"cache/{target.name}": target}
    return found | {f"extra/{path.name}": path for path in extra}


def pack_all(out: Path, target: Path, extra: list[Path], size: int) -> list[Path]:
    """Packs a whole check; `extra`: wheels, a library built elsewhere."""
    with tempfile.TemporaryDirectory() as scratch:
        return pack(out, members(Path(scratch), target, extra), size)


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
