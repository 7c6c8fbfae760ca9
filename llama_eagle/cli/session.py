"""Session: an engine in the hands of a person at a command line. Streams answers, stops them, and reports.

Knows no flags but those about output; where prompts come from is the business of run.py and chat.py.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import AbortedError
from .color import Underline
from .interrupt import Interrupts
from .report import closing_line, full_context, graphs, note, positions, say

if TYPE_CHECKING:
    from ..result import Piece, Result


@dataclass
class Session:
    """One engine, how its tokens are chosen, how Ctrl-C stops it.

    `reports`: a closing line is wanted. `explains`: so are the measurements behind it.
    """

    engine: Any
    params: Any
    interrupts: Interrupts
    reports: bool
    color: bool = False
    explains: bool = False

    def chat(self, messages: list[dict[str, str]], show: Callable[[Piece], None]) -> Result:
        """Answers a conversation. `interrupts.stopped` says whether Ctrl-C cut it."""
        return self._run(lambda: self.engine.chat(messages, self.params), show)

    def complete(self, prompt: str, show: Callable[[Piece], None]) -> Result:
        """Completes a text as it is."""
        return self._run(lambda: self.engine.stream(prompt, self.params), show)

    def _run(self, start: Callable[[], Generator[Piece, None, None]], show: Callable[[Piece], None]) -> Result:
        pair = self.engine.pair
        contexts = [pair.target] if pair.drafter is None else [pair.target, pair.drafter.context]
        try:
            with self.interrupts.answer(contexts), closing(start()) as pieces:  # closing it completes the result
                for piece in pieces:
                    with self.interrupts.writing():
                        show(piece)
        except (AbortedError, KeyboardInterrupt):
            if not self.interrupts.stopped:
                raise
        result: Result = self.engine.result
        return result

    def printer(self) -> Printer:
        """Prints one answer to stdout."""
        return Printer(Underline(self.engine.pair.model.piece) if self.color else None)

    def report(self, result: Result) -> None:
        """The lines on stderr that follow an answer."""
        full = full_context(result)
        if full:
            note(full)
        if self.reports and result.tokens:
            say(self.closing_line(result))
        if self.explains and self.engine.pair.planner is not None:
            say(self.engine.pair.planner.explain())
        if self.explains and result.spec.drafted:
            say(positions(result))
            say(graphs(result))

    def closing_line(self, result: Result) -> str:
        """What an answer took and what drafting gained."""
        planner = self.engine.pair.planner
        declined = planner is not None and not result.spec.drafted
        return closing_line(result, planner.loss() if declined else None)


class Printer:
    """Writes pieces to stdout as they come."""

    def __init__(self, underline: Underline | None) -> None:
        self._underline = underline
        self._last = ""

    def __call__(self, piece: Piece) -> None:
        text = self._underline.mark(piece) if self._underline else piece.text
        if text and sys.stdout is not None:
            sys.stdout.write(text)
            sys.stdout.flush()
            self._last = piece.text or self._last

    def end(self) -> None:
        """Ends the line on a terminal; a file or pipe gets the text only."""
        if not self._last or self._last.endswith("\n"):
            return
        for stream in (sys.stdout, sys.stderr):
            if stream is not None and stream.isatty():
                print(file=stream, flush=True)
                return
