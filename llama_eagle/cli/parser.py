"""Parser: argparse with llama.cpp's habits. Knows nothing of what the flags mean.

A flag's value is the next word, whatever it looks like; a flag is never abbreviated; `_` in a long flag reads as `-`.
"""

import argparse
import difflib
from collections.abc import Sequence
from typing import Any, NoReturn

from ..errors import UsageError

_WIDTH = 100


class Formatter(argparse.HelpFormatter):
    """Lists the spellings of a flag once, followed by what it takes."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=34, width=_WIDTH)

    def _format_action_invocation(self, action: argparse.Action) -> str:
        if not action.option_strings or action.nargs == 0:
            return super()._format_action_invocation(action)
        value = self._format_args(action, self._get_default_metavar_for_optional(action))
        return f"{', '.join(action.option_strings)} {value}"


class Parser(argparse.ArgumentParser):
    """A command's parser. parse() raises UsageError, one line, for everything it cannot take."""

    def __init__(self, **options: Any) -> None:
        options.setdefault("formatter_class", Formatter)
        super().__init__(allow_abbrev=False, **options)

    @property
    def flags(self) -> dict[str, argparse.Action]:
        """Every spelling of every flag."""
        return self._option_string_actions

    def error(self, message: str) -> NoReturn:
        """Raises UsageError instead of printing the usage and leaving."""
        raise UsageError(f"{message}; see {self.prog} --help")

    def parse(self, argv: Sequence[str]) -> argparse.Namespace:
        """Arguments of a command line."""
        return self.parse_args(self._joined(list(argv)))

    def _joined(self, words: list[str]) -> list[str]:
        """The same line with every flag spelled in full and its value joined to it by `=`."""
        line: list[str] = []
        while words:
            word = words.pop(0)
            if word == "--":
                return [*line, word, *words]
            if not word.startswith("-") or word == "-":
                line.append(word)
                continue
            flag, joined, value = self._split(word)
            action = self.flags.get(flag)
            if action is None:
                raise UsageError(self._unknown(flag))
            if joined and action.nargs == 0:
                raise UsageError(f"{flag} takes no value, got {value!r}")
            if not joined and action.nargs is None:
                if not words:
                    raise UsageError(f"{flag} needs a value ({action.metavar or action.dest}); see {self.prog} --help")
                joined, value = True, words.pop(0)
            elif not joined and action.nargs == "?" and words and _takes(action, words[0]):
                joined, value = True, words.pop(0)
            name = max(action.option_strings, key=len)
            line.append(f"{name}={value}" if joined else name)
        return line

    def _split(self, word: str) -> tuple[str, bool, str]:
        flag, equals, value = word.partition("=")
        if flag not in self.flags and flag.startswith("--"):
            flag = flag.replace("_", "-")
        return flag, bool(equals), value

    def _unknown(self, flag: str) -> str:
        nearest = difflib.get_close_matches(flag, self.flags, n=1, cutoff=0.0)
        return f"unknown flag {flag!r}: the nearest known one is {nearest[0]}; see {self.prog} --help"


def _takes(action: argparse.Action, word: str) -> bool:
    """Whether a word is a value that a flag with an optional value takes."""
    try:
        return bool(action.type(word)) if callable(action.type) else False
    except (ValueError, argparse.ArgumentTypeError):
        return False
