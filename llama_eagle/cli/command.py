"""Finds the command, runs it, and turns every failure into one line and an exit status.

Knows the commands' names only: each one's module is imported when it is asked for.
"""

import argparse
import importlib
import logging
import os
import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from ..errors import EagleError, UsageError
from .leave import INTERRUPTED, tidying
from .parser import Parser

OK, FAILED, MISUSED = 0, 1, 2
PROGRAM = "llama-eagle"


@dataclass(frozen=True)
class Command:
    """A module with add_parser(subparsers) and run(args), and one line about it.

    tidies: it has something to tidy up when Ctrl-C is pressed, and wants an exception.
    """

    module: str
    help: str
    tidies: bool = False


COMMANDS = {
    "run": Command("llama_eagle.cli.run", "answer a prompt or chat, faster with a draft head"),
    "convert": Command("llama_eagle.cli.convert", "make a GGUF of a draft checkpoint", tidies=True),
    "inspect": Command("llama_eagle.cli.inspect", "say what a head or model is, and whether they fit"),
    "bench": Command("llama_eagle.cli.bench", "measure what drafting gains on this machine, and audit the texts"),
    "train": Command("llama_eagle.cli.train", "train a draft head for a model", tidies=True),
    "doctor": Command("llama_eagle.cli.doctor", "say what works on this machine: paste it into a report"),
}


class Commands:
    """Stands in for argparse's subparsers, so that one command's module is imported and not all."""

    def add_parser(self, name: str, *, help: str = "", description: str = "") -> Parser:
        """A parser of its own for one command."""
        return Parser(prog=f"{PROGRAM} {name}", description=description or help)


def main(argv: list[str] | None = None) -> int:
    """Runs the command line; returns the exit status: 0, 1 failed, 2 misused, 130 stopped by Ctrl-C."""
    _speak_utf8()
    try:
        status = _status_of(sys.argv[1:] if argv is None else list(argv))
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
        return status
    except BrokenPipeError:
        _forget_output()
        return OK
    except KeyboardInterrupt:
        return INTERRUPTED
    except UsageError as error:
        return _fail(str(error), MISUSED)
    except Exception as error:
        return _fail(_message(error), FAILED)


def _status_of(argv: list[str]) -> int:
    try:
        return _dispatch(argv)
    except SystemExit as leave:  # argparse after --help, whose text may still wait to be written
        return leave.code if isinstance(leave.code, int) else OK


def _message(error: Exception) -> str:
    if isinstance(error, EagleError):
        return str(error)
    if isinstance(error, OSError):
        return f"{error.filename}: {error.strerror}" if error.filename is not None else error.strerror or str(error)
    if isinstance(error, MemoryError):
        return "out of memory: try a smaller -c or model"
    # a bug of ours; its traceback is in the log of -v
    logging.getLogger("llama_eagle").debug("traceback", exc_info=error)
    return f"unexpected {type(error).__name__}: {error}; please report it with what `{PROGRAM} doctor` says"


def _dispatch(argv: list[str]) -> int:
    name, rest = (argv[0], argv[1:]) if argv else ("", [])
    if name in ("-h", "--help", "help"):
        print(_overview())
        return OK
    if name == "--version":
        from .. import __version__  # noqa: PLC0415

        print(f"{PROGRAM} {__version__}")
        return OK
    if name not in COMMANDS:
        raise UsageError(_no_command(name))
    module: Any = importlib.import_module(COMMANDS[name].module)
    parser: Parser = module.add_parser(Commands())
    run: Callable[[argparse.Namespace], int] = module.run
    args = parser.parse(rest)
    with tidying() if COMMANDS[name].tidies else nullcontext():
        return run(args)


def _no_command(name: str) -> str:
    known = ", ".join(COMMANDS)
    if not name:
        return f"no command given: there are {known}; see {PROGRAM} --help"
    if name.startswith("-"):
        return f"a command comes before flags, got {name!r}: {PROGRAM} run {name} ..."
    return f"unknown command {name!r}: there are {known}"


def _overview() -> str:
    lines = [f"  {name:9}{command.help}" for name, command in COMMANDS.items()]
    return "\n".join(
        [
            f"usage: {PROGRAM} COMMAND [FLAGS]",
            "",
            "EAGLE draft trees for every model that llama.cpp runs: the same text, faster.",
            "",
            *lines,
            "",
            f"{PROGRAM} COMMAND --help lists a command's flags with their defaults; {PROGRAM} --version.",
        ]
    )


def _speak_utf8() -> None:
    if sys.stderr is None:  # closed by the caller; print() would take stdout instead
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(encoding="utf-8", errors="replace")


def _forget_output() -> None:
    """Nobody reads any more: what is buffered must not fail again when the interpreter ends."""
    try:
        null = os.open(os.devnull, os.O_WRONLY)
        for stream in (sys.stdout, sys.stderr):
            os.dup2(null, stream.fileno())
    except (OSError, ValueError, AttributeError):
        pass


def _fail(message: str, status: int) -> int:
    try:
        line = "".join(letter if letter.isprintable() else "?" for letter in " ".join(message.split()))
        print("error:", line, file=sys.stderr, flush=True)
    except BrokenPipeError:
        _forget_output()
    return status
