"""cli/chat.py with a fake engine: history, commands, ways to leave."""

import os
import signal
import sys
import threading
from types import SimpleNamespace

import pytest

from fake_engine import FakeEngine
from llama_eagle.cli.chat import chat
from llama_eagle.cli.interrupt import Interrupts
from llama_eagle.cli.session import Session
from llama_eagle.errors import ContextFullError


class Typist:
    """Standard input: lines, or exceptions, typed one after the other; then Ctrl-D."""

    def __init__(self, *lines):
        self.lines = list(lines)

    def readline(self):
        line = self.lines.pop(0) if self.lines else ""
        if isinstance(line, str):
            return line + "\n" * bool(line)
        raise line


@pytest.fixture
def talk(monkeypatch):
    """talk(lines...) -> the engine, after the chat has ended with status 0."""

    def run(*lines, system=None, single=False, **settings):
        monkeypatch.setattr(sys, "stdin", Typist(*lines))
        monkeypatch.setattr(FakeEngine, "made", None, raising=False)
        for name, value in settings.items():
            monkeypatch.setattr(FakeEngine, name, value)
        engine = FakeEngine()
        with Interrupts() as interrupts:
            assert chat(Session(engine, SimpleNamespace(), interrupts, reports=False), system, single) == 0
        return engine

    return run


def test_history(talk, capsys):
    engine = talk("one", " ", "two", system="be kind")
    system = {"role": "system", "content": "be kind"}
    one = [{"role": "user", "content": "one"}, {"role": "assistant", "content": "Hello world!"}]
    assert engine.asked == [[system, one[0]], [system, *one, {"role": "user", "content": "two"}]]
    assert capsys.readouterr().out == "Hello world!" * 2


def test_clear_stats_help(talk, capsys):
    engine = talk("one", "/stats", "/clear", "/help", "/bye", "two", system="be kind")
    assert len(engine.asked) == 2
    assert [message["role"] for message in engine.asked[1]] == ["system", "user"]
    out, err = capsys.readouterr()
    assert out == "Hello world!" * 2
    assert "answers: 1, 3 tokens; context: 8 of 64" in err
    assert "unknown command /bye" in err
    assert err.count("/clear ") == 1


def test_a_path_is_no_command(talk):
    assert talk("/etc/passwd is what?").asked


def test_single_turn(talk):
    assert len(talk("one", "two", single=True).asked) == 1


def test_ctrl_c_at_the_prompt_leaves(talk):
    assert len(talk("one", KeyboardInterrupt(), "two").asked) == 1


def test_an_error_is_one_line_and_the_chat_goes_on(talk, capsys):
    engine = talk("one", "two", error=ContextFullError("the prompt has\n99 tokens"))
    assert len(engine.asked) == 2
    assert len(engine.asked[1]) == 1  # what failed is not kept
    assert capsys.readouterr().err.count("error: the prompt has 99 tokens\n") == 2


@pytest.mark.skipif(sys.platform == "win32", reason="signals cannot be sent to oneself on Windows")
def test_ctrl_c_stops_the_answer_and_the_chat_goes_on(talk, monkeypatch):
    class Once(FakeEngine):
        def _wait(self):
            self.seconds = 20.0 if len(self.asked) == 1 else 0.0
            super()._wait()

    monkeypatch.setattr(sys.modules[__name__], "FakeEngine", Once)
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    engine = talk("one", "two")
    assert len(engine.asked) == 2
    assert len(engine.asked[1]) == 1  # an answer without text is no turn
    assert engine.result.text == "Hello world!"
