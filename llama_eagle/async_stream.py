"""AsyncStream: the pieces of one text in an event loop. What makes them is a thread, which it can only tell to stop."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from .result import Piece, Result


@dataclass(frozen=True)
class End:
    """Behind the last piece. result: None where nothing began. error: why it ended, if something went wrong."""

    result: Result | None = None
    error: BaseException | None = None


class Channel:
    """Carries pieces and their end from any thread to the event loop that it was made in."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[Piece | End] = asyncio.Queue()

    def put(self, item: Piece | End) -> None:
        """From any thread. Raises RuntimeError when the loop is closed."""
        self._loop.call_soon_threadsafe(self._queue.put_nowait, item)

    def end(self, end: End) -> None:
        """The last that is put; where the loop is closed nobody waits for it."""
        with suppress(RuntimeError):
            self.put(end)

    async def get(self) -> Piece | End:
        """In the loop: the next piece, or the end."""
        return await self._queue.get()


class AsyncStream:
    """Read it with `async for`. It raises what went wrong with its text, behind the pieces that came before.

    Leaving the loop, dropping the stream or cancelling the task that reads it cancels the request and frees its cells,
    behind the step that runs. result: complete when the stream is over, None before.
    """

    def __init__(self, channel: Channel, give_up: Callable[[], None]) -> None:
        self.result: Result | None = None
        self._channel = channel
        self._give_up = give_up
        self._over = False

    def __aiter__(self) -> "AsyncStream":
        return self

    async def __anext__(self) -> Piece:
        if self._over:
            raise StopAsyncIteration
        item = await self._next()
        if isinstance(item, Piece):
            return item
        if item.error is not None:
            raise item.error
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """Gives the text up and returns when its cells are free; `result` has what was emitted. Twice is fine."""
        if not self._over:
            self._give_up()
        while not self._over:
            await self._next()

    async def _next(self) -> Piece | End:
        try:
            item = await self._channel.get()
        except BaseException:  # the task was cancelled
            self._over = True
            self._give_up()
            raise
        if isinstance(item, End):
            self._over, self.result = True, item.result
        return item

    def __del__(self) -> None:
        if not self._over:
            self._give_up()
