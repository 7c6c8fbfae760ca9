"""AsyncEngine: an Engine for event loops. One thread runs it while there is something to run; all else is Engine's."""

import asyncio
import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Any

from .async_stream import AsyncStream, Channel, End
from .engine import Engine, Message
from .errors import ClosedError
from .request import Request
from .result import Result
from .sampling import SamplingParams

Prompt = str | Sequence[int]


class AsyncEngine:
    """Takes Engine's arguments; give n_parallel, by default 1: so many requests run in one batch, others wait.

    Loading takes seconds and blocks: `await asyncio.to_thread(AsyncEngine, ...)` where that matters. Requests may come
    from several event loops. engine: for its options, pair and template; it generates nothing beside this one.
    """

    def __init__(
        self,
        target: str | os.PathLike[str] | None = None,
        draft: str | os.PathLike[str] | None = "auto",
        **options: Any,
    ) -> None:
        self.engine = Engine(target, draft, **options)
        self._lock = threading.RLock()  # of the next three; a stream may be collected, and cancelled, while it is held
        self._orders: deque[Callable[[], None]] = deque()
        self._worker: threading.Thread | None = None
        self._closed = False
        self._running: dict[Channel, Request] = {}  # the worker's own

    def stream(self, prompt: Prompt, params: SamplingParams | None = None) -> AsyncStream:
        """Queues a completion of a text or of token ids at once; read its pieces with `async for`.

        Raises ClosedError here, and what is wrong with the prompt or its parameters where it is read.
        """
        return self._stream(lambda: prompt, params)

    def chat(self, messages: Sequence[Message], params: SamplingParams | None = None) -> AsyncStream:
        """The same for the answer to a list of {"role", "content"} messages."""
        return self._stream(lambda: self.engine.chat_prompt(messages), params)

    async def generate(self, prompt: Prompt, params: SamplingParams | None = None) -> Result:
        """The whole completion. Cancelling it cancels the request."""
        stream = self.stream(prompt, params)
        async for _ in stream:
            pass
        assert stream.result is not None
        return stream.result

    async def aclose(self) -> None:
        """Ends what runs with ClosedError, then frees models and contexts; closing twice is fine."""
        with self._lock:
            self._closed = True
            worker = self._worker
            if worker is not None:
                self._orders.append(self._end_all)
                self._abort()
        await asyncio.to_thread(self._free, worker)

    async def __aenter__(self) -> "AsyncEngine":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def _stream(self, prompt: Callable[[], Prompt], params: SamplingParams | None) -> AsyncStream:
        channel = Channel()
        with self._lock:
            if self._closed:
                raise ClosedError("the engine is closed")
            self._orders.append(partial(self._start, channel, prompt, params))
            if self._worker is None:
                self._worker = threading.Thread(target=self._work, name="llama-eagle")
                self._worker.start()
        return AsyncStream(channel, partial(self._give_up, channel))

    def _give_up(self, channel: Channel) -> None:
        with self._lock:
            if self._worker is not None:  # else nothing runs
                self._orders.append(partial(self._cancel, channel))

    def _abort(self) -> None:
        pair = self.engine.pair
        pair.target.abort()
        if pair.drafter is not None:
            pair.drafter.context.abort()

    def _free(self, worker: threading.Thread | None) -> None:
        if worker is not None:
            worker.join()
        self.engine.close()

    # what follows runs in the worker: an event loop never waits for a step

    def _work(self) -> None:
        while self._obey():
            if self._running:
                self._step()

    def _obey(self) -> bool:
        """Does what was ordered meanwhile. False: nothing was, and nothing runs, so the worker ends."""
        with self._lock:
            orders, self._orders = self._orders, deque()
            if not orders and not self._running:
                self._worker = None
                return False
        for order in orders:
            order()
        return True

    def _start(self, channel: Channel, prompt: Callable[[], Prompt], params: SamplingParams | None) -> None:
        try:
            self._running[channel] = self.engine.submit(prompt(), params, channel.put)
        except Exception as error:
            channel.end(End(error=error))
        else:
            self._end_done()  # no tokens were wanted

    def _step(self) -> None:
        try:
            self.engine.step()
        except Exception as error:  # of all that took part
            self._fail(error)
        self._end_done()

    def _end_done(self) -> None:
        for channel, request in list(self._running.items()):
            if request.done:
                del self._running[channel]
                channel.end(End(request.result, request.error))

    def _fail(self, error: Exception) -> None:
        for request in self._running.values():
            if not request.done:
                request.error = _closed() if self._closed else error
                _drop(request)

    def _end_all(self) -> None:
        self._fail(_closed())
        self._end_done()

    def _cancel(self, channel: Channel) -> None:
        if channel in self._running:
            _drop(self._running[channel])
            self._end_done()


def _drop(request: Request) -> None:
    with suppress(Exception):  # a cache that cannot be cleared says so to the next request
        request.cancel()


def _closed() -> ClosedError:
    return ClosedError("the engine was closed while the request ran")
