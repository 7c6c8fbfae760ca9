"""cli/prompt.py: where a prompt comes from."""

import io
from types import SimpleNamespace

import pytest

from llama_eagle.cli.prompt import read_prompt
from llama_eagle.errors import UsageError


class Pipe(io.TextIOWrapper):
    def __init__(self, raw=b"", terminal=False):
        super().__init__(io.BytesIO(raw), encoding="utf-8")
        self.terminal = terminal

    def isatty(self):
        return self.terminal


def args(prompt=None, file=None):
    return SimpleNamespace(prompt=prompt, file=file)


def test_flag_leaves_stdin_alone(monkeypatch):
    pipe = Pipe(b"piped")
    monkeypatch.setattr("sys.stdin", pipe)
    assert read_prompt(args("given")) == "given"
    assert pipe.read() == "piped"


def test_file_and_its_last_line_end(tmp_path):
    file = tmp_path / "p.txt"
    file.write_bytes("Grüße\n\n".encode())
    assert read_prompt(args(file=str(file))) == "Grüße\n"
    file.write_bytes(b"a\r\n")
    assert read_prompt(args(file=str(file))) == "a"


@pytest.mark.parametrize("file", [None, "-"])
def test_pipe(monkeypatch, file):
    monkeypatch.setattr("sys.stdin", Pipe(b"piped\n"))
    assert read_prompt(args(file=file)) == "piped"


def test_terminal_is_asked_later(monkeypatch):
    monkeypatch.setattr("sys.stdin", Pipe(terminal=True))
    assert read_prompt(args()) is None


def test_dash_reads_a_terminal(monkeypatch):
    monkeypatch.setattr("sys.stdin", Pipe(b"typed\n", terminal=True))
    assert read_prompt(args(file="-")) == "typed"


@pytest.mark.parametrize("stdin", [None, Pipe(b""), Pipe(b"\n")])
def test_empty(monkeypatch, stdin):
    monkeypatch.setattr("sys.stdin", stdin)
    with pytest.raises(UsageError, match="empty"):
        read_prompt(args())


def test_empty_flag():
    with pytest.raises(UsageError, match="-p is empty"):
        read_prompt(args(""))


def test_not_utf8(monkeypatch, tmp_path):
    file = tmp_path / "p.txt"
    file.write_bytes(b"ab\xff")
    with pytest.raises(UsageError, match=r"byte 2"):
        read_prompt(args(file=str(file)))
    with pytest.raises(UsageError, match="UTF-8"):
        read_prompt(args("a\udcff"))
