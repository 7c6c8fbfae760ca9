"""Engines in event loops: texts of each alone, cells freed by cancelling, errors for who waits, loops that go on."""

import asyncio
import gc
import threading
from collections.abc import Callable
from typing import Any

import pytest

from engines import cells, engine, params
from llama_eagle import AsyncEngine, ClosedError, ContextFullError, Engine, InputError, NativeError, SamplingParams
from llama_eagle.async_stream import AsyncStream
from loops import EXACT, prompt
from tiny import TinyPair

pytestmark = pytest.mark.native

LONG = SamplingParams(temperature=0, max_tokens=1500, ignore_eos=True)
Open = Callable[..., AsyncEngine]


@pytest.fixture
def make(tiny_good_pair: TinyPair) -> Open:
    def opened(**options: Any) -> AsyncEngine:
        given = {"spec": "tree", "n_ctx": 2048, "n_parallel": 8, **EXACT, **options}
        return AsyncEngine(tiny_good_pair.target.path, tiny_good_pair.path, **given)

    return opened


async def idle(made: AsyncEngine) -> None:
    """Until the worker has ended."""
    while made._worker is not None:
        await asyncio.sleep(0.005)


async def free(made: AsyncEngine) -> bool:
    """Whether nothing is left of requests that were all cancelled."""
    await idle(made)
    return not made._running and not made.engine.scheduler.running and cells(made.engine) == 0


@pytest.mark.parametrize("options", [{}, {"n_parallel": 3}, {"spec": "off"}])
def test_texts_are_those_of_each_alone(make: Open, alone: Engine, options: dict[str, Any]) -> None:
    async def main() -> None:
        async with make(**options) as made:
            results = await asyncio.gather(*(made.generate(prompt(10 + 7 * i, i), params(i)) for i in range(12)))
            for i, result in enumerate(results):
                expected = alone.generate(prompt(10 + 7 * i, i), params(i))
                assert (result.tokens, result.text) == (expected.tokens, expected.text)
            await idle(made)
            decodes, tokens = made.engine.pair.target.stats().n_decode, sum(len(result.tokens) for result in results)
            assert decodes < tokens / min(2, made.engine.options.n_parallel)

    asyncio.run(main())


def test_pieces_and_chats_as_the_engine_gives_them(make: Open, tiny_good_pair: TinyPair) -> None:
    messages = [{"role": "user", "content": "Why is the sky blue?"}]

    async def main() -> None:
        async with make() as made:
            stream = made.stream("Once upon", params(0))
            assert stream.result is None
            pieces = [piece async for piece in stream]
            assert stream.result is not None
            assert "".join(piece.text for piece in pieces) == stream.result.text
            assert [token for piece in pieces for token in piece.tokens] == stream.result.tokens
            assert [piece async for piece in stream] == []
            answer = "".join([piece.text async for piece in made.chat(messages, params(1))])
        with engine(tiny_good_pair) as plain:
            assert plain.generate("Once upon", params(0)).text == stream.result.text
            assert "".join(piece.text for piece in plain.chat(messages, params(1))) == answer

    asyncio.run(main())


def test_the_loop_goes_on_meanwhile(make: Open) -> None:
    async def main() -> None:
        async with make() as made:
            task = asyncio.create_task(made.generate(prompt(500), params(0, 200)))
            ticks = 0
            while not task.done():
                await asyncio.sleep(0)
                ticks += 1
            assert ticks > task.result().spec.steps > 50

    asyncio.run(main())


async def _cancel_the_task(made: AsyncEngine) -> None:
    task = asyncio.create_task(made.generate(prompt(300), LONG))
    await asyncio.sleep(0.1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def _cancel_before_it_began(made: AsyncEngine) -> None:
    task = asyncio.create_task(made.generate(prompt(300), LONG))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def _break_out(made: AsyncEngine) -> None:
    async for piece in made.stream(prompt(300), LONG):
        if piece.tokens:
            break


async def _raise_out(made: AsyncEngine) -> None:
    async def read() -> None:
        async for _ in made.stream(prompt(300), LONG):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await read()


async def _drop(made: AsyncEngine) -> None:
    made.stream(prompt(300), LONG)
    gc.collect()


async def _time_out(made: AsyncEngine) -> None:
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(made.generate(prompt(300), LONG), 0.1)


async def _close_it(made: AsyncEngine) -> None:
    stream = made.stream(prompt(300), LONG)
    shown = [token for _ in range(3) for token in (await anext(stream)).tokens]
    await stream.aclose()
    assert stream.result is not None
    assert stream.result.tokens[: len(shown)] == shown
    assert not made._running
    await stream.aclose()


GIVE_UP = (_cancel_the_task, _cancel_before_it_began, _break_out, _raise_out, _drop, _time_out, _close_it)


@pytest.mark.parametrize("give_up", GIVE_UP)
def test_giving_up_frees_cells(make: Open, give_up: Callable[[AsyncEngine], Any]) -> None:
    async def main() -> None:
        async with make() as made:
            await give_up(made)
            assert await asyncio.wait_for(free(made), 20)

    asyncio.run(main())


def test_others_go_on_when_one_is_cancelled(make: Open, alone: Engine) -> None:
    async def main() -> None:
        async with make(n_parallel=4) as made:
            tasks = [asyncio.create_task(made.generate(prompt(20, i), params(i, 60))) for i in range(8)]
            await asyncio.sleep(0.03)
            for task in tasks[::2]:
                task.cancel()
            done = await asyncio.gather(*tasks, return_exceptions=True)
            for i in range(1, 8, 2):
                result = done[i]
                assert not isinstance(result, BaseException)
                assert result.tokens == alone.generate(prompt(20, i), params(i, 60)).tokens

    asyncio.run(main())


def test_errors_reach_who_waits(make: Open) -> None:
    async def main() -> None:
        async with make(n_ctx=256) as made:
            bad: list[Any] = [[], [1.5], [65] * 257, [70], "ok"]
            grammar = SamplingParams(grammar="no grammar")
            calls = [made.generate(one, grammar if one == "ok" else params(0, 5)) for one in bad]
            found = await asyncio.gather(*calls, return_exceptions=True)
            assert [type(one).__name__ for one in found] == [
                *("InputError", "InputError", "ContextFullError", "Result", "InputError"),
            ]
            with pytest.raises(InputError, match="messages must be"):
                await anext(made.chat([]))
            assert isinstance(found[2], ContextFullError)
            assert (await made.generate([70], params(0, 0))).tokens == []

    asyncio.run(main())


def test_an_error_of_a_step_reaches_all_and_the_next_ones_run(make: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with make() as made:
            whole = await made.generate(prompt(20), params(0))
            step, calls = made.engine.loop.step, []

            def failing(slots: Any) -> Any:
                calls.append(len(slots))
                if len(calls) == 3:
                    raise NativeError("the machine is on fire")
                return step(slots)

            monkeypatch.setattr(made.engine.loop, "step", failing)
            found = await asyncio.gather(
                *(made.generate(prompt(20, i), params(0, 500)) for i in range(3)), return_exceptions=True
            )
            assert [str(one) for one in found] == ["the machine is on fire"] * 3
            assert (await made.generate(prompt(20), params(0))).tokens == whole.tokens

    asyncio.run(main())


def test_closing_ends_what_runs(make: Open) -> None:
    async def main() -> list[Any]:
        made = make(n_parallel=2)
        tasks = [asyncio.create_task(made.generate(prompt(300, i), LONG)) for i in range(4)]
        await asyncio.sleep(0.1)
        await asyncio.wait_for(made.aclose(), 20)
        await made.aclose()
        with pytest.raises(ClosedError, match="closed"):
            made.stream("more")
        return await asyncio.gather(*tasks, return_exceptions=True)

    before = threading.active_count()
    assert all(isinstance(error, ClosedError) for error in asyncio.run(main()))
    assert threading.active_count() == before


def test_no_thread_runs_without_requests_and_loops_may_change(make: Open) -> None:
    made = make()

    async def once() -> list[int]:
        result = await made.generate(prompt(20), params(0))
        await idle(made)
        assert not any(thread.name == "llama-eagle" for thread in threading.enumerate())
        return result.tokens

    async def leave() -> AsyncStream:
        """A stream that outlives its loop."""
        stream = made.stream(prompt(20), LONG)
        await anext(stream)
        return stream

    assert asyncio.run(once()) == asyncio.run(once())
    left = asyncio.run(leave())
    assert asyncio.run(once())
    del left
    asyncio.run(made.aclose())
