"""The skeleton of a server, one JSON line in and one out for each piece: python examples/async_server.py [TARGET DRAFT]

{"prompt": "Once upon a time", "max_tokens": 32} is answered by {"text": ...} lines and one with "finish_reason".
Clients are answered side by side; one that leaves frees its cells.
"""

import asyncio
import json
import sys
from functools import partial
from typing import Any

from llama_eagle import AsyncEngine, EagleError, SamplingParams


async def answer(engine: AsyncEngine, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    async def send(document: dict[str, Any]) -> None:
        writer.write(json.dumps(document).encode() + b"\n")
        await writer.drain()  # raises when the client has left, which cancels the stream

    try:
        wanted = json.loads(await reader.readline())
        stream = engine.stream(wanted["prompt"], SamplingParams(max_tokens=wanted.get("max_tokens", 32)))
        async for piece in stream:
            await send({"text": piece.text})
        assert stream.result is not None
        await send({"finish_reason": stream.result.finish_reason, "steps": stream.result.spec.steps})
    except (EagleError, ValueError, LookupError, TypeError) as error:
        await send({"error": f"{type(error).__name__}: {error}"})
    except ConnectionError:
        pass
    finally:
        writer.close()


async def serve(engine: AsyncEngine, port: int) -> asyncio.Server:
    return await asyncio.start_server(partial(answer, engine), "127.0.0.1", port)


async def main(*files: str) -> None:
    async with AsyncEngine(*files, n_parallel=8, n_ctx=4096) as engine, await serve(engine, 8642) as server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
