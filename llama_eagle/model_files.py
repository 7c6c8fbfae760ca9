"""Which files a target and its draft are: paths, checkpoint folders and hub ids become GGUFs on this disk.

Fetches and converts through hub and draft_cache; loads nothing.
"""

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from .embedded import TARGET_BYTES, TARGET_NAME, head_path, target_path
from .errors import EagleError, InputError, ModelError
from .fit import fit
from .gguf_files.header import read_header
from .gguf_files.metadata import Metadata
from .head_info import read_head
from .hub import fetch as hub
from .hub.known_heads import KnownHead, heads_for
from .hub.names import HubName, is_hub_name
from .hub.repo import open_repo
from .target_side import read_target_side

log = logging.getLogger("llama_eagle")
Say = Callable[[str], None]


@dataclass(frozen=True)
class PairFiles:
    """The GGUFs of a target and its draft. `known`: heads that are known for the target where none was given."""

    target: Path
    draft: Path | None
    known: tuple[KnownHead, ...] = ()


def pair_files(
    target: str | os.PathLike[str] | HubName | None,
    draft: str | os.PathLike[str] | HubName | None,
    offline: bool = False,
    say: Say = log.info,
) -> PairFiles:
    """Finds, fetches and converts what a pair needs.

    target, draft: a path, an id on the hub, or an id as text where no such file is. target None: the embedded one.
    draft None: none; "auto": the embedded head for the embedded target, a known one for a target from the hub, else
    none. say: takes a line about a head that is fetched or converted. Raises InputError for what is no name,
    DownloadError, and ModelError or CheckpointError where a draft cannot be converted.
    """
    _check_names(target, draft)
    if target is None:
        given = draft if draft != "auto" else head_path()
        return PairFiles(target_path(), _draft_or_none(given, None, offline, say))
    name = _hub_name(target)
    if name is None:
        path = Path(target)  # type: ignore[arg-type] # a HubName has a name
        if not os.path.isfile(path):  # before a draft is fetched for it
            raise ModelError(f"no such model file: {path}; give a GGUF or OWNER/NAME")
        if draft == "auto" and _is_embedded(path):
            return PairFiles(path, head_path())
        known = tuple(heads_of_file(path)) if draft == "auto" else ()
        return PairFiles(path, _draft_or_none(None if draft == "auto" else draft, path, offline, say), known)
    repo = open_repo(name, offline)
    path = hub.fetch_gguf(repo)
    if draft != "auto":
        return PairFiles(path, _draft_or_none(draft, path, offline, say))
    known = tuple(heads_for(name.repo, repo.bases))
    return PairFiles(path, _known_draft(known, path, offline, say), known)


def draft_file(
    given: str | os.PathLike[str] | HubName, target: Path | None, offline: bool = False, say: Say = log.info
) -> Path:
    """The GGUF of a draft given by a GGUF, a checkpoint folder or an id; what is no GGUF is converted for `target`.

    target None: the embedded one, fetched only where it is needed.
    """
    name = _hub_name(given)
    path = Path(given) if name is None else hub.fetch_checkpoint(name, offline)  # type: ignore[arg-type]
    if os.path.isdir(path):  # Path.is_dir fails for names that are too long
        from .draft_cache import converted  # noqa: PLC0415 - the converter is slow to import

        return converted(path, target or target_path(), say)
    if not os.path.isfile(path):
        raise ModelError(f"draft {given}: no such file or folder; give a GGUF, a checkpoint folder or OWNER/NAME")
    return path


def _is_embedded(path: Path) -> bool:
    """Whether a file is the embedded target, wherever it lies; the fit of its head is checked when it is loaded."""
    return path.name == TARGET_NAME and path.stat().st_size == TARGET_BYTES


def _check_names(*names: object) -> None:
    for name in names:
        if not isinstance(name, str | os.PathLike | HubName | None) or name == "":
            raise InputError(f"{name!r:.80} names no model: give a file, a folder or an id (OWNER/NAME), or None")


def _hub_name(given: str | os.PathLike[str] | HubName) -> HubName | None:
    if isinstance(given, HubName):
        return given
    return HubName.parse_path(given) if isinstance(given, str) and is_hub_name(given) else None


def _draft_or_none(
    given: str | os.PathLike[str] | HubName | None, target: Path | None, offline: bool, say: Say
) -> Path | None:
    return None if given is None else draft_file(given, target, offline, say)


def _known_draft(heads: tuple[KnownHead, ...], target: Path, offline: bool, say: Say) -> Path | None:
    """The first of the known heads, fetched and converted once its id, size and licence are said; None if that fails.

    A head that nobody asked for must not keep the target from answering.
    """
    if not heads:
        return None
    head = heads[0]
    try:
        name = HubName.parse(head.head)
        say(f"draft head {hub.head_card(name, offline).summary}: {head.source.address}")
        path = draft_file(name, target, offline, say)
        _refuse_misfit(path, target)
        return path
    except EagleError as error:
        say(f"the draft head {head.head} cannot be used, decoding is plain: {error}")
        return None


def _refuse_misfit(draft: Path, target: Path) -> None:
    """Raises ModelError for a draft that loading would refuse."""
    found = fit(read_head(draft), read_target_side(target))
    if not found.fits:
        raise ModelError(f"it does not fit {target.name}: {found.problems[0]}")


def heads_of_file(target: Path) -> list[KnownHead]:
    """Known heads for a target's GGUF, by the name that it carries; none for a file that cannot be read."""
    if not target.is_file():
        return []
    try:
        return heads_for(Metadata(read_header(target)).text("general.name"))
    except ModelError:
        return []
