"""cli/run.py and cli/session.py with a fake engine: what goes to stdout, what to stderr, and the status."""

import io
import json
import os
import signal
import sys
import threading
import time
from types import SimpleNamespace

import pytest

from fake_engine import FakeEngine
from llama_eagle.cli import main
from llama_eagle.errors import ContextFullError

pytestmark = pytest.mark.usefixtures("requires_native")  # engine.py imports it; no model is loaded


@pytest.fixture
def engine(monkeypatch):
    class Engine(FakeEngine):
        pass

    monkeypatch.setattr("llama_eagle.engine.Engine", Engine)
    monkeypatch.setattr(Engine, "made", None, raising=False)
    monkeypatch.setattr("fake_engine.FakeModel.tokenize", lambda self, text: [1, 2, 3], raising=False)
    return Engine


def stdin_of(monkeypatch, raw, terminal=False):
    stdin = SimpleNamespace(buffer=io.BytesIO(raw), isatty=lambda: terminal)
    monkeypatch.setattr(sys, "stdin", stdin)


def test_text_and_nothing_else(engine, capsys):
    assert main(["run", "-p", "hi", "-sys", "be kind"]) == 0
    assert capsys.readouterr() == ("Hello world!", "")
    asked = [{"role": "system", "content": "be kind"}, {"role": "user", "content": "hi"}]
    assert engine.made.asked == [asked]
    assert engine.made.given == (None, "auto")
    assert engine.made.closed


def test_raw(engine, capsys):
    assert main(["run", "--raw", "-p", "hi"]) == 0
    assert engine.made.asked == ["hi"]


def test_pipe(engine, monkeypatch):
    stdin_of(monkeypatch, b"from a pipe\n")
    assert main(["run"]) == 0
    assert engine.made.asked == [[{"role": "user", "content": "from a pipe"}]]


def test_json_is_one_document(engine, capsys):
    assert main(["run", "-p", "hi", "--json", "--spec", "tree"]) == 0
    out, err = capsys.readouterr()
    document = json.loads(out)
    assert document["text"] == "Hello world!"
    assert document["timings"]["plain_tokens_per_s"] is None
    assert err == ""


@pytest.fixture
def model(tmp_path):
    """A file that is there; what it holds is the engine's business, and that is a stand-in here."""
    path = tmp_path / "x.gguf"
    path.touch()
    return path


def test_local_model_without_a_head_says_so(engine, capsys, model):
    assert main(["run", "-m", str(model), "-p", "hi"]) == 0
    out, err = capsys.readouterr()
    assert out == "Hello world!"
    assert err.count("\n") == 1
    assert "-md" in err
    assert engine.made.given == (model, None)
    assert main(["run", "-m", str(model), "-p", "hi", "--spec", "off"]) == 0
    assert capsys.readouterr().err == ""


def test_full_context_says_so(engine, capsys):
    engine.context_full = True
    assert main(["run", "-p", "hi"]) == 0
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "-c" in err


def test_failure_is_one_line(engine, capsys, model):
    engine.error = ContextFullError("the prompt has 99 tokens, the context holds 64: raise -c")
    assert main(["run", "-m", str(model), "-p", "hi"]) == 1
    assert capsys.readouterr() == ("", "error: the prompt has 99 tokens, the context holds 64: raise -c\n")


def test_closing_line_of_auto(engine, capsys):
    engine.planner = SimpleNamespace(loss=lambda: 0.12, explain=lambda: "measured in ms")
    engine.steps = (((1,), 0), ((2, 3), 0))
    assert main(["run", "-p", "hi", "-v"]) == 0
    assert "3 tokens, plain: drafting would have cost 12%, -v explains\nmeasured in ms\n" in capsys.readouterr().err


def test_color(engine, capsys):
    assert main(["run", "-p", "hi", "--color", "on"]) == 0
    assert capsys.readouterr().out == "Hello\x1b[4m world\x1b[24m!"
    assert main(["run", "-p", "hi", "--color"]) == 0  # no terminal
    assert capsys.readouterr().out == "Hello world!"


def test_template_file(engine, tmp_path):
    file = tmp_path / "t.jinja"
    file.write_text("{{ bos_token }}{{ messages[0].content }}!")
    assert main(["run", "-p", "hi", "--chat-template-file", str(file)]) == 0
    assert engine.made.template.render([{"role": "user", "content": "hi"}]) == "Hellohi!"


@pytest.mark.parametrize("flag", ["--json", "--raw"])
def test_no_chat_with_these(engine, monkeypatch, capsys, flag):
    stdin_of(monkeypatch, b"", terminal=True)
    assert main(["run", flag]) == 2
    assert flag in capsys.readouterr().err


def test_offline_without_the_file(engine, monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("LLAMA_EAGLE_CACHE", str(tmp_path))
    assert main(["run", "-p", "hi", "--offline"]) == 1
    assert "--offline" in capsys.readouterr().err


@pytest.mark.skipif(sys.platform == "win32", reason="signals cannot be sent to oneself on Windows")
@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_ctrl_c_stops_an_answer(engine, monkeypatch, capsys, flags):
    monkeypatch.setattr("os._exit", lambda status: None)
    engine.seconds = 20.0
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    start = time.monotonic()
    assert main(["run", "-p", "hi", *flags]) == 130
    assert time.monotonic() - start < 5
    assert capsys.readouterr() == ("", "")
    assert engine.made.pair.target.aborts
    assert not engine.made.pair.target.aborted  # resumed
