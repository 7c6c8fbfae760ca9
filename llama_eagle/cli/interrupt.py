"""Ctrl-C that works while the main thread is inside llama.cpp. Knows contexts only by abort() and resume().

Python runs signal handlers between bytecodes, so none runs during a native call. The interpreter does write the
signal's number to a socket at once; a thread waits there and sets the abort flags.
"""

import os
import signal
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any, Protocol

INTERRUPTED = 130


class Abortable(Protocol):
    """A context whose decodes can be stopped from another thread."""

    def abort(self) -> None:
        """Makes a running decode, and those after it, fail soon."""

    def resume(self) -> None:
        """Allows decodes again."""


class Interrupts:
    """While entered, Ctrl-C stops an answer() and raises KeyboardInterrupt elsewhere.

    With a `deadline` in seconds the process ends with status 130 when the main thread needs longer to leave,
    as it does while a model loads. None never ends it.
    """

    def __init__(self, deadline: float | None = 0.3) -> None:
        self.deadline = deadline
        self.stopped = False
        self._contexts: Sequence[Abortable] = ()
        self._writing = False
        self._lock = threading.RLock()
        self._left = threading.Event()
        self._before: Any = None
        self._before_fd = -1
        self._sockets: tuple[socket.socket, socket.socket] | None = None

    def __enter__(self) -> "Interrupts":
        handler = signal.getsignal(signal.SIGINT)
        if threading.current_thread() is not threading.main_thread() or handler in (signal.SIG_IGN, None):
            return self  # not ours to change
        self._sockets = socket.socketpair()
        self._sockets[1].setblocking(False)
        self._before = signal.signal(signal.SIGINT, self._on_signal)
        self._before_fd = signal.set_wakeup_fd(self._sockets[1].fileno(), warn_on_full_buffer=False)
        threading.Thread(target=self._watch, args=(self._sockets[0],), daemon=True, name="ctrl-c").start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._left.set()
        if self._sockets is None:
            return
        signal.set_wakeup_fd(self._before_fd)
        signal.signal(signal.SIGINT, self._before)
        self._sockets[1].close()  # ends the thread, which closes the other one
        self._sockets = None

    @contextmanager
    def answer(self, contexts: Sequence[Abortable]) -> Iterator[None]:
        """Ctrl-C aborts the contexts; `stopped` then says that it was pressed. They are usable again afterwards."""
        with self._lock:
            self.stopped = False
            self._contexts = contexts
        try:
            yield
        finally:
            with self._lock:
                self._contexts = ()
                for context in contexts:
                    context.resume()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Within an answer: Ctrl-C raises, since a pipe that nobody reads may block for ever."""
        self._writing = True
        try:
            if self.stopped:
                raise KeyboardInterrupt
            yield
        finally:
            self._writing = False

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        with self._lock:
            self.stopped = True
            self._abort()
            answering = bool(self._contexts)
        if not answering or self._writing:
            raise KeyboardInterrupt

    def _abort(self) -> None:
        for context in self._contexts:
            context.abort()

    def _watch(self, wake: socket.socket) -> None:
        with wake:
            while numbers := wake.recv(64):
                if signal.SIGINT not in numbers:
                    continue
                with self._lock:
                    self._abort()
                if self.deadline is not None and not self._left.wait(self.deadline):
                    os._exit(INTERRUPTED)
