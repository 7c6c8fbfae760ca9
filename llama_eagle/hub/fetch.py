"""Targets and drafts by their ids on the hub, fetched once into huggingface_hub's cache.

Uses huggingface_hub throughout: its cache, token, HF_ENDPOINT, offline mode and progress bars. An id is
OWNER/NAME[@REVISION][:QUANT]; one given as text may have meant a path, which errors then say is not there. Every
function raises InputError for an id that is none, and DownloadError, one line with the way out, for all that can go
wrong. Knows which files are needed, not what is in them.
"""

from dataclasses import dataclass
from pathlib import Path

from ..errors import DownloadError
from .names import HubName, choose_checkpoint, choose_gguf, listed
from .repo import HubRepo, open_repo


@dataclass(frozen=True)
class HeadCard:
    """What a person wants to know before a head is fetched. size in bytes; license as its card says it, or None."""

    repo: str
    size: int
    license: str | None

    @property
    def summary(self) -> str:
        """All of it in a line."""
        size = f"{self.size / 1e9:.1f} GB" if self.size >= 1e9 else f"{self.size / 1e6:.0f} MB"
        return f"{self.repo}, {size}, licence {self.license or 'unknown'}"


def fetch_target(given: str | HubName, offline: bool = False) -> Path:
    """The GGUF of a target, its first part if it is split: the file that llama.cpp's -hf would take.

    Without a quant that is Q4_K_M, Q8_0, or the first one there.
    """
    return fetch_gguf(open_repo(_named(given), offline))


def fetch_checkpoint(given: str | HubName, offline: bool = False) -> Path:
    """The folder of a draft checkpoint, config.json and weights; of a repository that has only GGUFs, the GGUF."""
    repo = open_repo(_named(given), offline)
    paths = _draft_files(repo)
    folder = repo.fetch(paths)
    return folder / paths[0] if paths[0].endswith(".gguf") else folder


def fetch_target_config(given: str | HubName, offline: bool = False) -> Path:
    """A folder with a target's config.json; its GGUF if the repository has no config or a quant is asked for."""
    repo = open_repo(_named(given), offline)
    if repo.name.quant or "config.json" not in repo.files:
        return fetch_gguf(repo)
    return repo.fetch(["config.json"])


def head_card(given: str | HubName, offline: bool = False) -> HeadCard:
    """Size and licence of what fetch_checkpoint would fetch."""
    repo = open_repo(_named(given), offline)
    return HeadCard(repo.name.repo, repo.size(_draft_files(repo)), repo.license)


def fetch_gguf(repo: HubRepo) -> Path:
    """As fetch_target, of a repository that was looked up."""
    try:
        paths = choose_gguf(repo.files, repo.name.quant)
    except DownloadError as error:
        raise DownloadError(f"{repo.title}: {error}: name another quant or repository") from None
    return repo.fetch(paths) / paths[0]


def _named(given: str | HubName) -> HubName:
    return given if isinstance(given, HubName) else HubName.parse_path(given)


def _draft_files(repo: HubRepo) -> list[str]:
    paths = None if repo.name.quant else choose_checkpoint(repo.files)
    if paths is not None:
        return paths
    try:
        return choose_gguf(repo.files, repo.name.quant, is_draft=True)
    except DownloadError as error:
        if repo.name.quant:
            raise DownloadError(f"{repo.title}: {error}: name another quant or repository") from None
        there = listed(sorted(repo.files)) or "nothing"
        raise DownloadError(
            f"{repo.title} has neither config.json with weights nor a GGUF: there is {there}; name another repository"
        ) from None
