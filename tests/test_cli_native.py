"""The command as a process, on a tiny pair: texts, JSON, Ctrl-C, closed pipes, a chat on a terminal."""

import json
import os
import select
import signal
import subprocess
import sys
import time

import pytest

from llama_eagle.cache import is_intact
from llama_eagle.embedded import TARGET_SHA256, target_file

pytestmark = [pytest.mark.native, pytest.mark.usefixtures("requires_native")]

KEYS = {
    "text", "tokens", "finish_reason", "prompt_tokens", "completion_tokens", "model", "draft", "seed", "settings",
    "spec", "timings",
}  # fmt: skip
TIMINGS = {
    "load_s", "calibrate_s", "prefill_s", "decode_s", "draft_s", "verify_s", "other_s", "tokens_per_s",
    "plain_tokens_per_s",
}  # fmt: skip
SPECS = ("off", "chain", "tree", "static")
SPEC = set("mode steps drafted accepted tokens_per_step accept_by_depth shapes graphs_built graphs_reused".split())


def command(*line):
    return [sys.executable, "-m", "llama_eagle", *map(str, line)]


def run(*line, **options):
    line = command(*line)
    return subprocess.run(line, capture_output=True, stdin=subprocess.DEVNULL, timeout=120, check=False, **options)


@pytest.fixture
def pair(tiny_good_pair):
    return ["run", "-m", tiny_good_pair.target.path, "-md", tiny_good_pair.path, "-c", "512", "-t", "1", "--temp", "0"]


@pytest.mark.parametrize("flags", [["--raw"], [], ["--temp", "0.8", "-s", "7", "--repeat-penalty", "1.2"]])
def test_the_same_text_whether_drafting_or_not(pair, flags):
    done = [run(*pair, *flags, "-p", "abab", "-n", "40", "--spec", spec, "--json") for spec in SPECS]
    assert [d.stderr for d in done] == [b""] * 4
    documents = [json.loads(d.stdout) for d in done]
    assert len({d["text"] for d in documents}) == 1
    assert [d["spec"]["mode"] for d in documents] == list(SPECS)
    for document in documents:
        assert set(document) == KEYS
        assert set(document["timings"]) == TIMINGS
        assert set(document["spec"]) == SPEC
    assert documents[0]["timings"]["plain_tokens_per_s"] is None
    assert documents[2]["timings"]["plain_tokens_per_s"] > 0
    assert documents[2]["spec"]["tokens_per_step"] > 1
    text = run(*pair, *flags, "-p", "abab", "-n", "40", "--spec", "tree")
    assert text.stdout.decode() == documents[0]["text"].replace("\n", os.linesep)


@pytest.mark.parametrize("sizes", ["-b 3", "-b 3 -ub 2", "-ub 1", "-b 1"])
@pytest.mark.parametrize("spec", ["chain", "tree", "static", "auto"])
def test_small_batches_give_the_same_text(pair, spec, sizes):
    line = [*pair, "--raw", "-p", "abab", "-n", "20", *sizes.split(), "--spec"]
    done = [run(*line, one) for one in ("off", spec)]
    assert [d.stderr for d in done] == [b"", b""]
    assert done[0].stdout == done[1].stdout != b""


@pytest.mark.parametrize("shape", ["4,2,2,1", "eagle1", "file"])
def test_a_static_tree_in_json(tmp_path, pair, shape):
    file = tmp_path / "shape.json"
    file.write_text("[[0], [1], [0, 0], [0, 2]]", encoding="utf-8")
    given = str(file) if shape == "file" else shape
    done = [run(*pair, "--raw", "-p", "abab", "-n", "40", "--json", *flags) for flags in (
        ("--spec", "off"), ("--draft-tree", given))]  # fmt: skip
    plain, document = (json.loads(d.stdout) for d in done)
    assert document["tokens"] == plain["tokens"]
    assert document["spec"]["mode"] == document["settings"]["spec"] == "static"
    assert document["settings"]["draft_tree"] == given
    nodes = {"4,2,2,1": "44", "eagle1": "25", "file": "4"}[shape]
    assert document["spec"]["shapes"][nodes] > 1
    assert document["spec"]["tokens_per_step"] > 1


@pytest.mark.parametrize("flags", [["--draft-tree", "4,0"], ["--draft-tree", "4,2", "--spec", "tree"]])
def test_a_wrong_static_tree_is_one_line(pair, flags):
    done = run(*pair, "-p", "hi", *flags)
    assert (done.returncode, done.stdout, done.stderr.count(b"\n")) == (2, b"", 1)
    assert done.stderr.startswith(b"error: --draft-tree '4,")


def test_context_full(pair):
    done = run(*pair, "--raw", "-p", "a lazy dog. " * 16, "--ignore-eos", "-c", "256", "--spec", "tree")
    assert done.returncode == 0
    assert done.stderr.count(b"\n") == 1
    assert b"is full" in done.stderr
    too_long = run(*pair, "--raw", "-p", "ab" * 600, "-c", "256")
    assert too_long.returncode == 1
    assert too_long.stdout == b""
    assert too_long.stderr.startswith(b"error: ")
    assert too_long.stderr.count(b"\n") == 1


@pytest.mark.parametrize("name", ["target", "head"])
def test_a_broken_file_is_one_line(tmp_path, pair, name):
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF" + b"\x01" * 100)
    pair[{"target": 2, "head": 4}[name]] = broken
    done = run(*pair, "-p", "hi")
    assert done.returncode == 1
    assert done.stdout == b""
    assert done.stderr.startswith(b"error: ")
    assert done.stderr.count(b"\n") == 1


def test_a_head_as_target_is_one_line(pair):
    pair[2] = pair[4]
    done = run(*pair, "-p", "hi")
    assert done.returncode == 1
    assert done.stderr.count(b"\n") == 1
    assert b"draft" in done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="no 2>&- on Windows")
def test_errors_go_nowhere_when_stderr_is_closed():
    line = ["sh", "-c", 'exec "$@" 2>&-', "sh", *command("run", "-n", "x")]
    done = subprocess.run(line, capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (2, b"", b"")


def test_closed_pipe(pair):
    line = command(*pair, "--raw", "-p", "ab", "--ignore-eos", "-c", "4096", "--spec", "off")
    process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.read(1)
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(60) == 0


@pytest.mark.skipif(sys.platform == "win32", reason="signals cannot be sent to one process on Windows")
def test_ctrl_c(pair):
    line = command(*pair, "--raw", "-p", "ab", "--ignore-eos", "-c", "8192", "--spec", "tree")
    process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout.read(1)
    start = time.monotonic()
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=60)[1] == b""
    assert process.returncode == 130
    assert time.monotonic() - start < 5  # 0.5 on an idle machine


class Terminal:
    """The command with a terminal of its own."""

    def __init__(self, *line):
        import pty  # noqa: PLC0415

        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execv(sys.executable, command(*line))
        self.seen = b""

    def until(self, text, seconds=60):
        """Reads until a text appears; what came before it."""
        end = time.monotonic() + seconds
        while text not in self.seen:
            ready, _, _ = select.select([self.fd], [], [], max(end - time.monotonic(), 0))
            assert ready, self.seen
            self.seen += os.read(self.fd, 4096)
        before, _, self.seen = self.seen.partition(text)
        return before

    def type(self, text):
        os.write(self.fd, text)

    def status(self):
        """The exit status; reads what is left meanwhile."""
        try:
            while os.read(self.fd, 4096):
                pass
        except OSError:
            pass
        os.close(self.fd)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


@pytest.mark.skipif(sys.platform == "win32", reason="no pseudo-terminals on Windows")
def test_chat_on_a_terminal(pair):
    terminal = Terminal(*pair, "-n", "2000", "-c", "8192", "--ignore-eos", "--spec", "tree")
    terminal.until(b"> ")
    terminal.type(b"/stats\n")
    terminal.until(b"no answer yet")
    terminal.until(b"> ")
    terminal.type(b"ab\n")
    terminal.until(b"\n")
    time.sleep(0.3)
    terminal.type(b"\x03")
    terminal.until(b"> ", 10)
    terminal.type(b"/clear\n")
    terminal.until(b"forgotten")
    terminal.until(b"> ")
    terminal.type(b"\x04")
    assert terminal.status() == 0


@pytest.mark.skipif(sys.platform == "win32", reason="no pseudo-terminals on Windows")
def test_closing_line_on_a_terminal(pair):
    terminal = Terminal(*pair, "--raw", "-p", "abab", "-n", "40", "--ignore-eos", "--spec", "tree")
    line = terminal.until(b" tokens a step, trees of ").decode("utf-8", "replace").splitlines()[-1]
    assert line.startswith("40 tokens, ")
    assert "x plain (" in line
    assert terminal.status() == 0


def test_the_embedded_pair():
    if not is_intact(target_file(), TARGET_SHA256):
        pytest.skip(f"{target_file()} was not fetched")
    line = ["run", "-p", "Why is the sky blue?", "-n", "12", "-t", "1", "--offline", "-s", "7"]
    done = [run(*line, "--spec", spec) for spec in ("off", "tree")]
    assert done[0].stdout == done[1].stdout != b""
    assert [d.stderr for d in done] == [b"", b""]
