"""Where the prompt comes from: -p, -f, or a pipe. Knows nothing of models or templates."""

import argparse
import sys
from pathlib import Path

from ..errors import UsageError


def read_prompt(args: argparse.Namespace) -> str | None:
    """The prompt, or None when a person at a terminal is to be asked. Raises UsageError for an empty or unreadable one.

    One line end at the end of a file or pipe is dropped, as llama.cpp does.
    """
    if args.prompt is not None:
        return _checked(args.prompt, "-p")
    if args.file is not None and args.file != "-":
        return _checked(_decoded(Path(args.file).read_bytes(), args.file), args.file)
    if args.file is None and sys.stdin is not None and sys.stdin.isatty():
        return None
    return _checked(_stdin(), "standard input")


def _stdin() -> str:
    if sys.stdin is None:
        return ""
    return _decoded(sys.stdin.buffer.read(), "standard input")


def _decoded(raw: bytes, name: str) -> str:
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"{name} is not UTF-8 text (byte {error.start}): convert it first") from error
    return text.removesuffix("\n").removesuffix("\r")


def _checked(text: str, name: str) -> str:
    if not text:
        raise UsageError(f"the prompt from {name} is empty: give one with -p TEXT, -f FILE or a pipe")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise UsageError(f"the prompt from {name} is not UTF-8 text (character {error.start})") from error
    return text
