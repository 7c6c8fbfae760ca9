"""cli/command.py: commands found, failures in one line, closed pipes quiet."""

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from llama_eagle import __version__
from llama_eagle.cli import command, main
from llama_eagle.errors import DownloadError, ModelError, UsageError


def one_line(capsys):
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    return err


@pytest.fixture
def failing(monkeypatch):
    """failing(error) makes `run` raise it."""

    def install(error):
        def run(args):
            raise error

        module = SimpleNamespace(add_parser=lambda commands: commands.add_parser("run"), run=run)
        monkeypatch.setattr(command.importlib, "import_module", lambda name: module)

    return install


def test_overview(capsys):
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in ("run", "convert", "bench", "doctor"))
    assert main(["--version"]) == 0
    assert __version__ in capsys.readouterr().out


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ([], "run, convert, inspect, bench, train, doctor"),
        (["serve"], "unknown command 'serve': there are run, convert, inspect, bench, train, doctor"),
        (["-p", "hi"], "llama-eagle run -p"),
        (["run", "--promt", "x"], "--prompt"),
        (["doctor", "extra"], "extra"),
        (["convert"], "CHECKPOINT"),
    ],
)
def test_misuse(capsys, line, words):
    assert main(line) == 2
    assert words in one_line(capsys)


@pytest.mark.parametrize(
    ("error", "status", "words"),
    [
        (ModelError("no such\nmodel"), 1, "no such model"),
        (UsageError("odd"), 2, "odd"),
        (DownloadError("cannot fetch it"), 1, "cannot fetch it"),
        (FileNotFoundError(2, "No such file", "x.txt"), 1, "x.txt: No such file"),
        (OSError("plain"), 1, "plain"),
        (MemoryError(), 1, "memory"),
        (ValueError("a bug"), 1, "unexpected ValueError: a bug"),
    ],
)
def test_failures_are_one_line(capsys, failing, error, status, words):
    failing(error)
    assert main(["run"]) == status
    assert words in one_line(capsys)


def test_ctrl_c_and_closed_pipe(capsys, failing):
    failing(KeyboardInterrupt())
    assert main(["run"]) == 130
    failing(BrokenPipeError())
    with open(os.devnull, "w") as null:
        before = sys.stdout, sys.stderr
        sys.stdout = sys.stderr = null
        try:
            assert main(["run"]) == 0
        finally:
            sys.stdout, sys.stderr = before
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("line", [["--help"], ["run", "--help"], ["doctor", "--help"], ["--version"], ["serve"]])
def test_no_library_is_opened_for_these(line):
    env = {**os.environ, "LLAMA_EAGLE_LIBRARY": "/no/such/library"}
    command = [sys.executable, "-m", "llama_eagle", *line]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert "library" not in done.stderr
    assert done.returncode == (2 if line == ["serve"] else 0)


def test_closed_pipe_of_a_process():
    code = "import sys; from llama_eagle.cli import main; sys.exit(main(['run', '--help']))"
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run([sys.executable, "-c", code], stdout=writing, stderr=subprocess.PIPE, check=False)
    os.close(writing)
    assert done.stderr == b""
    assert done.returncode == 0
