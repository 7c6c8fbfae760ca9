"""The interactive chat: a prompt, answers, a history. Knows no flags.

Ctrl-C stops an answer; at the prompt it leaves, as Ctrl-D does.
"""

from __future__ import annotations

import importlib
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..errors import ContextFullError, EagleError
from .report import say
from .session import Session

if TYPE_CHECKING:
    from ..result import Result

_HELP = """/clear   forget the conversation
/stats   tokens and speed so far
/help    this list
Ctrl-C stops an answer, Ctrl-D leaves."""


@dataclass
class Conversation:
    """The messages so far and the counts of this chat."""

    system: str | None
    messages: list[dict[str, str]] = field(default_factory=list)
    last: Result | None = None
    answers: int = 0
    tokens: int = 0

    def clear(self) -> None:
        """Forgets all but the system message."""
        self.messages = []

    def asked(self, text: str) -> list[dict[str, str]]:
        """All messages with a new one from the user."""
        system = [] if self.system is None else [{"role": "system", "content": self.system}]
        return [*system, *self.messages, {"role": "user", "content": text}]

    def answered(self, text: str, result: Result) -> None:
        """Adds a question with its answer, which may have been cut; a turn without any text is as if never asked."""
        if not result.text:
            return
        self.messages += [{"role": "user", "content": text}, {"role": "assistant", "content": result.text}]
        self.last = result
        self.answers += 1
        self.tokens += result.completion_tokens


def chat(session: Session, system: str | None, single_turn: bool) -> int:
    """Talks until the person leaves; returns the exit status, 0."""
    conversation = Conversation(system)
    session.interrupts.leaves = False
    _prepare_input()
    if not single_turn:
        say(f"{session.engine.pair.model.path.name}: /help lists commands, Ctrl-D leaves")
    while True:
        try:
            line = _ask()
            if line.split(" ")[0] in _COMMANDS:
                _COMMANDS[line.split(" ")[0]](session, conversation)
            elif line.startswith("/") and line[1:].isalpha():
                say(f"unknown command {line}: there are {', '.join(_COMMANDS)}")
            elif line:
                _turn(session, conversation, line)
                if single_turn:
                    return 0
        except EagleError as error:
            if single_turn:
                raise
            hint = "; /clear forgets what was said" if conversation.messages else ""
            say(f"error: {' '.join(str(error).split())}{hint if isinstance(error, ContextFullError) else ''}")
        except (EOFError, KeyboardInterrupt):
            say("")
            return 0


def _turn(session: Session, conversation: Conversation, text: str) -> None:
    printer = session.printer()
    try:
        result = session.chat(conversation.asked(text), printer)
    finally:
        printer.end()
    conversation.answered(text, result)
    session.report(result)


def _prepare_input() -> None:
    with suppress(ImportError):
        importlib.import_module("readline")  # arrow keys and history
    if hasattr(sys.stdin, "reconfigure"):
        sys.stdin.reconfigure(encoding="utf-8", errors="replace")


def _ask() -> str:
    if sys.stdout is not None and sys.stdout.isatty():
        return input("> ").strip()
    sys.stderr.write("> ")
    sys.stderr.flush()
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line.strip()


def _clear(session: Session, conversation: Conversation) -> None:
    conversation.clear()
    say("the conversation is forgotten")


def _stats(session: Session, conversation: Conversation) -> None:
    if conversation.last is None:
        say("no answer yet")
        return
    last = conversation.last
    say(f"last answer: {session.closing_line(last)}")
    used = last.prompt_tokens + last.completion_tokens
    room = session.engine.pair.target.n_ctx
    say(f"answers: {conversation.answers}, {conversation.tokens} tokens; context: {used} of {room} tokens")


def _help(session: Session, conversation: Conversation) -> None:
    say(_HELP)


_COMMANDS = {"/clear": _clear, "/stats": _stats, "/help": _help}
