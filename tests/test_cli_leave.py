"""cli/leave.py: Ctrl-C while the command starts or ends is quiet, whatever is being imported."""

import os
import signal
import subprocess
import sys

import pytest

from llama_eagle.cli import main
from llama_eagle.cli.leave import leave_on_ctrl_c, tidying

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals cannot be sent to oneself on Windows")

PRESS = "os.kill(os.getpid(), signal.SIGINT)"
COMMAND = "from llama_eagle.cli import main\nsys.exit(main())\n"
WHILE_IMPORTING = f"""
import os, signal, sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "MODULE":
            {PRESS}
sys.meta_path.insert(0, Finder())
{COMMAND}"""
AT_THE_END = f"import atexit, os, signal, sys\natexit.register(lambda: {PRESS})\n{COMMAND}"


def ends_quietly(code: str, *arguments: str) -> None:
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "")


@pytest.mark.parametrize(
    "name", ["llama_eagle.cli.command", "argparse", "logging", "numpy", "llama_eagle.conversion.converter"]
)
def test_while_starting(name: str) -> None:
    ends_quietly(WHILE_IMPORTING.replace("MODULE", name), "convert", "nothing", "-o", "nothing")


@pytest.mark.parametrize("name", ["numpy", "llama_eagle.ffi"])
def test_while_a_command_imports(name: str) -> None:
    """doctor tidies nothing up: an exception might be swallowed by what it imports."""
    ends_quietly(WHILE_IMPORTING.replace("MODULE", name), "doctor")


@pytest.mark.parametrize("line", ["--version", "doctor --help"])
def test_at_the_end(line: str) -> None:
    ends_quietly(AT_THE_END, *line.split())


def test_the_package_and_the_entry_import_nothing() -> None:
    code = "import sys; before = set(sys.modules); import llama_eagle.cli; print(*sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["llama_eagle", "llama_eagle.cli"]


def test_a_command_may_tidy_up() -> None:
    leave_on_ctrl_c()
    try:
        leaves = signal.getsignal(signal.SIGINT)
        assert leaves is not signal.default_int_handler
        with pytest.raises(KeyboardInterrupt), tidying():
            os.kill(os.getpid(), signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is leaves
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.mark.parametrize("handler", [signal.SIG_IGN, lambda number, frame: None], ids=["ignored", "someone else's"])
def test_other_handlers_stay(handler: object) -> None:
    signal.signal(signal.SIGINT, handler)
    try:
        leave_on_ctrl_c()
        with tidying():
            assert signal.getsignal(signal.SIGINT) is handler
        assert signal.getsignal(signal.SIGINT) is handler
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def test_a_caller_in_the_process_keeps_its_handler(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert capsys.readouterr().out
