"""Where log lines go: all of them to stderr with -v; else warnings and errors, once the work has gone well.

A failure is one line, so what llama.cpp logged before it stays unsaid; the error quotes the part that matters.
"""

import logging
import sys

_MOST = 20
_EXPECTED = ("n_ctx_seq (",)  # compares a context with the trained one; -c has a note of its own


class Held(logging.Handler):
    """Keeps warnings and errors until show(); the same line is kept once."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._lines: dict[str, None] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Keeps a log line."""
        if not any(text in record.getMessage() for text in _EXPECTED):
            self.keep(f"{record.levelname.lower()}: {record.getMessage()}")

    def keep(self, line: str) -> None:
        """Keeps a line, the first few of them."""
        if len(self._lines) < _MOST:
            self._lines[line] = None

    def show(self) -> None:
        """Writes the kept lines to stderr and forgets them."""
        lines, self._lines = list(self._lines), {}
        for line in lines:
            print(line, file=sys.stderr)


def follow_log(verbose: bool) -> Held:
    """Sends the package's log to stderr at once (`verbose`), or to what is returned."""
    log = logging.getLogger("llama_eagle")
    held = Held()
    log.handlers.clear()
    log.propagate = False
    if verbose:
        from ..ffi import keep_all_log_lines  # noqa: PLC0415

        log.setLevel(logging.DEBUG)
        log.addHandler(logging.StreamHandler(sys.stderr))
        keep_all_log_lines()
    else:
        log.setLevel(logging.WARNING)
        log.addHandler(held)
    return held
