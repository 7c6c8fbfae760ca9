"""Ctrl-C while nothing has to be tidied up, as during imports and at the end: the process ends at once, quietly.

Knows no command. An exception would not do there: modules and finalizers that it passes through print it.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

INTERRUPTED = 130


def leave_on_ctrl_c() -> None:
    """From now on Ctrl-C ends the process with INTERRUPTED, unless it is ignored or someone else's."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return
    try:
        signal.signal(signal.SIGINT, _leave)
    except ValueError:  # not the main thread
        return


@contextmanager
def tidying() -> Iterator[None]:
    """Within it Ctrl-C raises KeyboardInterrupt again, where leave_on_ctrl_c() was called."""
    if signal.getsignal(signal.SIGINT) is not _leave:
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, _leave)


def _leave(number: int, frame: "FrameType | None") -> None:
    os._exit(INTERRUPTED)
