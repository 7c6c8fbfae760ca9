"""`llama-eagle inspect`: what a file is, and whether a head fits a target. Arguments in, exit status out.

Reads headers, configs and vocabulary maps; loads no model.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import CheckpointError, InputError, ModelError
from .inspect_report import draft_document, lines, refused_document, target_document
from .parser import Parser
from .report import say

if TYPE_CHECKING:
    from ..target_side import TargetSide

OK, NO_FIT = 0, 1


def add_parser(commands: Any) -> Parser:
    """Adds the `inspect` command and returns its parser."""
    parser: Parser = commands.add_parser(
        "inspect",
        description="Says what a GGUF or a draft checkpoint is and, with -m, whether it fits that target. "
        "The exit status is 1 where it does not.",
    )
    parser.add_argument("file", metavar="FILE", help="a GGUF, the folder of a checkpoint, or a hub id")
    parser.add_argument(
        "-m", "--model", metavar="TARGET", help="the target: a GGUF, an HF folder or a hub id (default: none)"
    )
    parser.add_argument("--offline", action="store_true", help="fetch nothing (default: off)")
    parser.add_argument("--json", action="store_true", help="print one JSON document (default: off)")
    return parser


def run(args: argparse.Namespace) -> int:
    """Prints what is known and returns the exit status. Raises EagleError for a file that is none of these."""
    document = inspect(args.file, args.model, args.offline)
    print(json.dumps(document) if args.json else "\n".join(lines(document)))
    return NO_FIT if document["problems"] else OK


def inspect(file: str, target: str | None, offline: bool = False) -> dict[str, Any]:
    """The document that --json prints (docs/json.md)."""
    path = _found(file, offline)
    side = None if target is None else _target_of(target, offline)
    if path.is_dir():
        return _checkpoint(path, side)
    return _gguf(path, side)


def _found(name: str, offline: bool) -> Path:
    """The file or folder of that name; an id on the hub is fetched, its size said first."""
    path = Path(name)
    if name and path.exists():
        if not path.is_file() and not path.is_dir():  # a pipe would be waited for
            raise InputError(f"{name} is a device or pipe; give a GGUF or the folder of a checkpoint")
        return path
    from ..hub.names import is_hub_name  # noqa: PLC0415

    if not is_hub_name(name):
        raise InputError(f"{name!r} is neither a file nor a folder nor a hub id (OWNER/NAME)")
    from ..hub.fetch import fetch_checkpoint, head_card  # noqa: PLC0415

    say(head_card(name, offline).summary)
    return fetch_checkpoint(name, offline)


def _target_of(name: str, offline: bool) -> TargetSide:
    from ..gguf_files.check import check_gguf  # noqa: PLC0415
    from ..gguf_files.model_header import kept_headers  # noqa: PLC0415
    from ..hub.names import is_hub_name  # noqa: PLC0415
    from ..target_side import read_target_side  # noqa: PLC0415

    path = Path(name)
    if is_hub_name(name):
        from ..hub.fetch import fetch_target  # noqa: PLC0415

        path = fetch_target(name, offline)
    if path.is_dir():
        from ..checkpoint_info import folder_side  # noqa: PLC0415

        return folder_side(path)
    with kept_headers():
        if path.is_file():
            check_gguf(path)
        return read_target_side(path)


def _gguf(path: Path, side: TargetSide | None) -> dict[str, Any]:
    from ..fit import fit  # noqa: PLC0415
    from ..gguf_files.check import check_gguf  # noqa: PLC0415
    from ..gguf_files.head import HEADS  # noqa: PLC0415
    from ..gguf_files.model_header import kept_headers, metadata_of, model_header  # noqa: PLC0415
    from ..head_info import read_head  # noqa: PLC0415

    with kept_headers():
        check_gguf(path)
        if metadata_of(model_header(path)).arch in HEADS:
            head = read_head(path)
            return draft_document(path, head, side, None if side is None else fit(head, side))
        return _plain_target(path, side)


def _plain_target(path: Path, side: TargetSide | None) -> dict[str, Any]:
    from ..gguf_files.model_header import metadata_of, model_header, named_errors  # noqa: PLC0415
    from ..gguf_files.split import read_parts  # noqa: PLC0415
    from ..head_info import file_sizes  # noqa: PLC0415
    from ..model_files import heads_of_file  # noqa: PLC0415
    from ..target_side import target_side  # noqa: PLC0415

    header = model_header(path)
    meta = metadata_of(header)
    with named_errors(path):
        shown = target_side(path.name, meta)
        parts = [part for _, part in read_parts(path, header)]
    document = target_document(path, shown, file_sizes(meta, parts), None if side is None else side.name)
    document["notes"] += [f"known head: {head.head}, {head.source.address}" for head in heads_of_file(path)]
    return document


def _checkpoint(path: Path, side: TargetSide | None) -> dict[str, Any]:
    from ..checkpoint_info import read_checkpoint_head  # noqa: PLC0415
    from ..fit import fit  # noqa: PLC0415

    try:
        head = read_checkpoint_head(path, side)
    except (CheckpointError, ModelError) as error:
        return refused_document(path, str(error), None if side is None else side.name)
    return draft_document(path, head, side, None if side is None else fit(head, side))
