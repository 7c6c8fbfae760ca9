"""The models that the flags name: which target, which draft, and what a person is to know about that choice."""

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import DownloadError, InputError, UsageError
from .report import say

_SOURCES = {
    "model": ("-m", "a file"),
    "model_draft": ("-md", "a file"),
    "hf": ("-hf", "an id"),
    "hfd": ("-hfd", "an id"),
}


@dataclass(frozen=True)
class Models:
    """What Engine takes as target and draft, and a note for after the answer, if any."""

    target: Path | None
    draft: Path | str | None
    note: str | None = None


def choose_models(args: argparse.Namespace) -> Models:
    """Fetches and converts what -m, -hf, -md and -hfd name; tells of heads that it fetches.

    Raises UsageError for names that cannot be one, and what model_files.pair_files raises.
    """
    for dest, (flag, what) in _SOURCES.items():
        if getattr(args, dest) == "":
            raise UsageError(f"{flag} is empty: give {what}, or leave it out")
    target, draft = choose_target(args), _draft(args)
    if target is None and args.offline:
        _need_embedded()
    if target is None and draft in ("auto", None):
        return Models(None, draft)
    from ..model_files import pair_files  # noqa: PLC0415

    files = pair_files(target, draft, args.offline, say)
    note = None
    if draft == "auto" and files.draft is None:
        note = _about_plain(args, [row.head for row in files.known])
    return Models(None if target is None else files.target, files.draft, note)


def choose_target(args: argparse.Namespace) -> Any:
    """What -m and -hf name, as model_files.pair_files takes it. Raises UsageError for names that cannot be one."""
    from ..hub.names import HubName, is_hub_name  # noqa: PLC0415

    if args.hf is not None:
        return _id("-hf", args.hf)
    if args.model is None:
        return None
    if not Path(args.model).is_file() and is_hub_name(args.model):
        raise UsageError(
            f"-m {args.model}: no such file; for a model on the hub give -hf {HubName.parse(args.model).repo}"
        )
    return Path(args.model)


def _draft(args: argparse.Namespace) -> Any:
    if args.spec == "off":
        return None
    if args.hfd is not None:
        return _id("-hfd", args.hfd)
    return "auto" if args.model_draft is None else args.model_draft


def _id(flag: str, text: str) -> Any:
    from ..hub.names import HubName  # noqa: PLC0415

    try:
        return HubName.parse(text)
    except InputError as error:
        raise UsageError(f"{flag} {error}") from None


def _about_plain(args: argparse.Namespace, heads: list[str]) -> str | None:
    """One line for a target that runs without a draft."""
    if not heads:
        return (
            "note: no draft head for this model, decoding is plain: give one with -md FILE or -hfd REPO, or --spec off"
        )
    if args.hf is not None:
        return None  # that the known one could not be used was said
    return f"note: decoding is plain without a draft head; one is known for this model: add -hfd {heads[0]}"


def _need_embedded() -> None:
    """Raises DownloadError unless the embedded target was fetched before."""
    from ..cache import is_intact  # noqa: PLC0415
    from ..embedded import TARGET_SHA256, target_file  # noqa: PLC0415

    if not is_intact(target_file(), TARGET_SHA256):
        raise DownloadError(f"--offline, and the model is not at {target_file()} yet: fetch it once without --offline")
