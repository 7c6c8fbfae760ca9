"""HubRepo: a model repository at one commit: its files, and a way to have some of them in huggingface_hub's cache.

Knows the cache's layout as huggingface.co/docs/huggingface_hub documents it (blobs, snapshots, refs), and not what the
files are.
"""

import contextlib
import logging
import os
import re
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..cache import sha256_of
from ..errors import DownloadError
from . import client as hub_client
from .client import short
from .errors import explained, lookup_failed, unfound
from .names import HubName

log = logging.getLogger("llama_eagle")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_MOST_HTTP = 50_000_000_000  # bytes; the hub gives larger files by its own protocol only


@dataclass(frozen=True)
class HubFile:
    """A file in a repository. size in bytes; sha256 of large files only, which the hub keeps by hash."""

    path: str
    size: int = 0
    sha256: str | None = None


@dataclass(frozen=True)
class HubRepo:
    """A repository at one commit. `only_cached`: why nothing but the cache was looked at, empty otherwise.

    license: as its card says it, or None. bases: ids of the models that it says it comes from.
    """

    name: HubName
    commit: str
    files: dict[str, HubFile]
    license: str | None = None
    bases: tuple[str, ...] = ()
    only_cached: str = ""
    _endpoint: str = field(default="", repr=False)

    @property
    def title(self) -> str:
        """The repository in a message."""
        return self.name.repo + (f" in the cache ({self.only_cached})" if self.only_cached else "")

    @property
    def folder(self) -> Path:
        """Where the cache keeps the files of this commit."""
        return _storage(self.name.repo) / "snapshots" / self.commit

    def size(self, paths: Iterable[str]) -> int:
        """Bytes of some files."""
        return sum(self.files[path].size for path in paths)

    def fetch(self, paths: Sequence[str]) -> Path:
        """Has the files in `folder`, which it returns: what is missing is downloaded.

        What an interrupted call got is kept, the next one goes on there. Raises DownloadError.
        """
        missing = [self.files[path] for path in paths if not (self.folder / path).exists()]
        if not missing:
            return self.folder
        if self.only_cached:
            raise DownloadError(f"{missing[0].path} of {self.title} is not there: fetch it once with a network")
        try:
            self._check_room(sum(file.size for file in missing))
            with hub_client.progress_bars():
                for file in missing:
                    self._fetch(file)
            self._note_revision()
        except Exception as error:  # its errors come from three HTTP libraries, depending on its version
            log.debug("fetching %s failed", self.name.repo, exc_info=error)
            raise explained(error, self.name.repo, self._endpoint, str(_cache())) from error
        return self.folder

    def _check_room(self, size: int) -> None:
        cache = _cache()
        cache.mkdir(parents=True, exist_ok=True)
        kept = sum(part.stat().st_size for part in (_storage(self.name.repo) / "blobs").glob("*.incomplete"))
        free = shutil.disk_usage(cache).free
        if size - kept > free:
            raise DownloadError(
                f"{self.name.repo} needs {size / 1e9:.1f} GB, the disk of {cache} has {free / 1e9:.1f} GB free: "
                "free some space, or set HF_HOME to a folder on a larger one"
            )

    def _fetch(self, file: HubFile) -> None:
        import huggingface_hub  # noqa: PLC0415

        if file.sha256 is not None and file.size <= _MOST_HTTP:
            self._fill_blob(file, file.sha256)
        huggingface_hub.hf_hub_download(
            self.name.repo,
            file.path,
            revision=self.commit,
            endpoint=self._endpoint,
            cache_dir=_cache(),
            etag_timeout=hub_client.SECONDS,
        )

    def _fill_blob(self, file: HubFile, sha256: str) -> None:
        """Puts a large file where huggingface_hub looks for it: newer versions of it do not resume, and none hashes."""
        from huggingface_hub.utils import WeakFileLock  # noqa: PLC0415

        blob = _storage(self.name.repo) / "blobs" / sha256
        part = blob.with_name(f"{sha256}.incomplete")
        lock = _cache() / ".locks" / _storage(self.name.repo).name / f"{sha256}.lock"
        for folder in (blob.parent, lock.parent):
            folder.mkdir(parents=True, exist_ok=True)
        with WeakFileLock(lock):
            for last in (False, True):
                if blob.exists():
                    return
                resumed = self._download(file, part)
                found = sha256_of(part)
                if found == sha256:
                    os.replace(part, blob)
                    return
                part.unlink()
                if last or not resumed:
                    raise DownloadError(
                        f"{file.path} of {self.name.repo} came with sha256 {found}, expected {sha256}: "
                        "the transfer was damaged, run it again"
                    )

    def _download(self, file: HubFile, part: Path) -> bool:
        """Completes `part`; returns whether some of it was there before."""
        import huggingface_hub  # noqa: PLC0415
        from huggingface_hub.file_download import http_get  # noqa: PLC0415
        from huggingface_hub.utils import build_hf_headers  # noqa: PLC0415

        url = huggingface_hub.hf_hub_url(self.name.repo, file.path, revision=self.commit, endpoint=self._endpoint)
        if part.exists() and part.stat().st_size > file.size:
            part.unlink()
        with part.open("ab") as out:
            begin = out.tell()
            http_get(
                url,
                out,
                resume_size=begin,
                headers=build_hf_headers(),
                expected_size=file.size,
                displayed_filename=file.path,
            )
        return begin > 0

    def _note_revision(self) -> None:
        """Remembers the branch's commit for offline use: huggingface_hub does so only when it is given the branch."""
        revision = self.name.revision or "main"
        if _COMMIT.fullmatch(revision):
            return
        ref = _storage(self.name.repo) / "refs" / revision
        ref.parent.mkdir(parents=True, exist_ok=True)
        fresh = ref.with_name(f"{ref.name}.{os.getpid()}")
        fresh.write_text(self.commit, encoding="utf-8")
        with contextlib.suppress(PermissionError):  # Windows: another process has it open and says the same
            os.replace(fresh, ref)


def open_repo(name: HubName, offline: bool = False) -> HubRepo:
    """Looks a repository up: at the hub, or offline and where the hub cannot be reached in the cache.

    Raises DownloadError that says what to do.
    """
    if offline or hub_client.is_offline():
        reason = "--offline" if offline else "HF_HUB_OFFLINE is set"
        cached = _cached(name, reason)
        if cached is None:
            raise unfound(name, f"{name.repo} is not in the cache ({reason}): fetch it once with a network")
        return cached
    endpoint = hub_client.endpoint()
    try:
        with hub_client.progress_bars(False):
            info = hub_client.in_time(lambda: _ask(name, endpoint), hub_client.SECONDS)
    except Exception as error:  # as above
        status = getattr(getattr(error, "response", None), "status_code", 500)
        cached = _cached(name, f"the hub gave no answer: {short(error)}") if status >= 500 else None
        if cached is None:
            raise lookup_failed(error, name, endpoint, str(_cache())) from error
        log.info("%s: %s", name.repo, cached.only_cached)
        return cached
    return _from_info(name, info, endpoint)


def _ask(name: HubName, endpoint: str) -> Any:
    import huggingface_hub  # noqa: PLC0415

    hub = huggingface_hub.HfApi(endpoint=endpoint)
    later = 2 * hub_client.SECONDS  # than in_time(), which has the clearer words
    return hub.model_info(name.repo, revision=name.revision, files_metadata=True, timeout=later)


def _from_info(name: HubName, info: Any, endpoint: str) -> HubRepo:
    files = {}
    for sibling in info.siblings or []:
        path = str(sibling.rfilename)
        if not _is_inside(path):
            raise DownloadError(f"{name.repo} lists the file {path!r}, which would lie outside the cache")
        sha256 = sibling.lfs.sha256 if sibling.lfs else None
        if sha256 is not None and not re.fullmatch(r"[0-9a-f]{64}", sha256):
            raise DownloadError(f"{name.repo} gives {path} the hash {sha256!r}, which is no sha256")
        files[path] = HubFile(path, int(sibling.size or 0), sha256)
    if not _COMMIT.fullmatch(info.sha or ""):
        raise DownloadError(f"{name.repo}: the hub names the commit {info.sha!r}, expected 40 hex digits")
    tags = [tag for tag in info.tags or [] if isinstance(tag, str)]
    license = next((tag.partition(":")[2] for tag in tags if tag.startswith("license:")), None)
    bases = {tag.rpartition(":")[2] for tag in tags if tag.startswith("base_model:")}
    return HubRepo(name, info.sha, files, license, tuple(sorted(bases)), _endpoint=endpoint)


def _is_inside(path: str) -> bool:
    return not path.startswith("/") and "\\" not in path and ":" not in path and ".." not in path.split("/")


def _cached(name: HubName, reason: str) -> HubRepo | None:
    """The commit of a repository that the cache holds, if any."""
    storage = _storage(name.repo)
    commit = name.revision or "main"
    with contextlib.suppress(OSError):
        commit = (storage / "refs" / commit).read_text(encoding="utf-8").strip()
    folder = storage / "snapshots" / commit
    if not _COMMIT.fullmatch(commit) or not folder.is_dir():
        return None
    paths = [path for path in folder.rglob("*") if path.is_file()]
    files = [HubFile(path.relative_to(folder).as_posix(), path.stat().st_size) for path in paths]
    return HubRepo(name, commit, {file.path: file for file in files}, only_cached=reason)


def _cache() -> Path:
    return Path(hub_client.settings().HF_HUB_CACHE)


def _storage(repo: str) -> Path:
    return _cache() / ("models--" + repo.replace("/", "--"))
