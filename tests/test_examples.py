"""The programs of examples/, run on a tiny pair: they end and print what they promise. Signatures of docs/python.md."""

import asyncio
import importlib.util
import inspect
import json
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import llama_eagle
from engines import cells
from llama_eagle import async_stream, request
from test_async_engine import idle
from tiny import TinyPair

pytestmark = pytest.mark.native

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", ROOT / "examples" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def printed(name: str, pair: TinyPair, capsys: pytest.CaptureFixture[str]) -> list[str]:
    load(name).main(str(pair.target.path), str(pair.path))
    return capsys.readouterr().out.splitlines()


def test_every_example_is_here() -> None:
    source = Path(__file__).read_text("utf-8")
    assert len(EXAMPLES) == 6
    for path in EXAMPLES:
        assert f'("{path.stem}"' in source, f"no test runs {path.name}"


def test_chat(tiny_good_pair: TinyPair, capsys: pytest.CaptureFixture[str]) -> None:
    out = printed("chat", tiny_good_pair, capsys)
    assert sum(line.startswith("> ") for line in out) >= 2
    assert len([line for line in out if re.fullmatch(r"\(\d+ tokens in \d+ steps, \d+ tokens a second\)", line)]) == 2


def test_batch(tiny_good_pair: TinyPair, capsys: pytest.CaptureFixture[str]) -> None:
    assert len(printed("batch", tiny_good_pair, capsys)) == 20


def test_logprobs(tiny_good_pair: TinyPair, capsys: pytest.CaptureFixture[str]) -> None:
    *tokens, last = printed("logprobs", tiny_good_pair, capsys)
    assert 1 <= len(tokens) <= 8
    assert last.startswith("perplexity ")


def test_json_schema(tiny_good_pair: TinyPair, capsys: pytest.CaptureFixture[str]) -> None:
    (line,) = printed("json_schema", tiny_good_pair, capsys)
    assert set(json.loads(line)) == {"name", "job", "happy"}


def test_fork(tiny_good_pair: TinyPair, capsys: pytest.CaptureFixture[str]) -> None:
    out = printed("fork", tiny_good_pair, capsys)
    assert [line.split(":")[0] for line in out[:4]] == ["seed 7", "seed 8", "seed 9", "seed 10"]
    assert not out[4:] or out[4].startswith("forked behind ")


def opened(pair: TinyPair) -> llama_eagle.AsyncEngine:
    return llama_eagle.AsyncEngine(str(pair.target.path), str(pair.path), n_parallel=4, n_ctx=1024)


async def ask(port: int, line: bytes) -> list[dict[str, Any]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(line + b"\n")
    answer = [json.loads(each) async for each in reader]
    writer.close()
    return answer


def test_async_server(tiny_good_pair: TinyPair) -> None:
    async def main() -> None:
        async with opened(tiny_good_pair) as engine, await load("async_server").serve(engine, 0) as server:
            port = server.sockets[0].getsockname()[1]
            good = [json.dumps({"prompt": f"Number {i}", "max_tokens": 20}).encode() for i in range(6)]
            answers = await asyncio.gather(*(ask(port, line) for line in [*good, b"{", b'{"prompt": ""}', b"{}"]))
        for answer in answers[:6]:
            assert all("text" in line for line in answer[:-1])
            assert answer[-1]["finish_reason"] in ("stop", "length")
        assert [list(answer[0]) for answer in answers[6:]] == [["error"]] * 3

    asyncio.run(main())


def test_a_client_that_leaves_frees_its_cells(tiny_good_pair: TinyPair) -> None:
    async def main() -> None:
        async with opened(tiny_good_pair) as engine, await load("async_server").serve(engine, 0) as server:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.sockets[0].getsockname()[1])
            writer.write(b'{"prompt": "Once", "max_tokens": 1000}\n')
            assert await reader.readline()
            writer.transport.abort()
            await asyncio.wait_for(idle(engine), 20)
            assert cells(engine.engine) == 0

    asyncio.run(main())


def signatures() -> list[tuple[str, str]]:
    """Each name and signature of docs/python.md, `await` left out."""
    text = (ROOT / "docs" / "python.md").read_text("utf-8")
    blocks = re.findall(r"```text\n(.*?)```", text, re.S)
    joined = re.sub(r"\n +", " ", "\n".join(blocks))  # a long one goes on in an indented line
    lines = [line.removeprefix("await ") for line in joined.splitlines() if "(" in line]
    return [(line[: line.index("(")], line[line.index("(") :]) for line in lines]


def flat(signature: str) -> str:
    """Without modules, quotes and spaces, and with abbreviations written out."""
    signature = signature.replace("Prompt", "str | Sequence[int]").replace("OnPiece", "Callable[[Piece], None]")
    return re.sub(r"\b(?:[A-Za-z_]\w*\.)+(?=\w)", "", signature).replace("'", '"').replace('"', "").replace(" ", "")


@pytest.mark.parametrize(("name", "signature"), signatures())
def test_the_documented_signatures(name: str, signature: str) -> None:
    first, *rest = name.split(".")
    thing: Any = {"Request": request.Request, "AsyncStream": async_stream.AsyncStream}.get(first)
    thing = thing or getattr(llama_eagle, first)
    for part in rest:
        thing = getattr(thing, part)
    found = str(inspect.signature(thing)).replace("(self, ", "(").replace("(self)", "()")
    assert flat(found.replace(" -> None", "")) == flat(signature.replace(" -> None", ""))
