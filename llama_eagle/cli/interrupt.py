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

from .leave import INTERRUPTED

_PAUSES = (0.05, 0.1, 0.15)  # seconds
_NUDGE: Any = getattr(signal, "SIGURG", None)  # ignored by default, absent on Windows


class Abortable(Protocol):
    """A context whose decodes can be stopped from another thread."""

    def abort(self) -> None:
        """Makes a running decode, and those after it, fail soon."""

    def resume(self) -> None:
        """Allows decodes again."""


class Interrupts:
    """While entered, Ctrl-C stops an answer() and raises KeyboardInterrupt elsewhere.

    `leaves`: Ctrl-C is to end the process, with status 130 at once if the main thread does not come out of native
    code, as while a model loads. `stopped`: Ctrl-C was pressed during the last answer.
    """

    def __init__(self) -> None:
        self.leaves = True
        self.stopped = False
        self._contexts: Sequence[Abortable] = ()
        self._writing = False
        self._lock = threading.RLock()
        self._left = threading.Event()
        self._before: list[Any] = []
        self._before_fd = -1
        self._sockets: tuple[socket.socket, socket.socket] | None = None

    def __enter__(self) -> "Interrupts":
        handler = signal.getsignal(signal.SIGINT)
        if threading.current_thread() is not threading.main_thread() or handler in (signal.SIG_IGN, None):
            return self  # not ours to change
        self._sockets = socket.socketpair()
        self._sockets[1].setblocking(False)
        self._before = [signal.signal(signal.SIGINT, self._on_signal)]
        if _NUDGE is not None:
            self._before.append(signal.signal(_NUDGE, lambda number, frame: None))
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
        for number, handler in zip((signal.SIGINT, _NUDGE), self._before, strict=False):
            signal.signal(number, handler)
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
            leaving = self.stopped and self.leaves  # a second one must not cut the tidying up
            self.stopped = True
            self._abort()
            answering = bool(self._contexts)
        if not leaving and (not answering or self._writing):
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
                    answering = bool(self._contexts)
                if self._stays(answering) and self.leaves:
                    os._exit(INTERRUPTED)

    def _stays(self, answering: bool) -> bool:
        """Waits for the main thread to leave, reminding it; False when it has.

        A signal that comes just before a system call is noticed after it only, which may be never: at the prompt
        another, harmless signal gets it out.
        """
        for pause in _PAUSES:
            if self._left.wait(pause):
                return False
            if not answering and _NUDGE is not None:
                signal.pthread_kill(threading.main_thread().ident or 0, _NUDGE)
        return True
