"""Python code in a process of its own, so that a native abort is a failed test with the signal's name."""

import os
import signal
import subprocess
import sys
from pathlib import Path

HEADER = """
import gc, sys, threading, time
from pathlib import Path
import numpy as np
from llama_eagle import Batch, Context, Drafter, DraftTree, EagleError, InputError, Model, TreeShape, grow
path = Path(sys.argv[1])

def refused(call, *args, **named):
    try:
        result = call(*args, **named)
    except EagleError as error:
        return error
    raise SystemExit(f"{call} took {args} {named} and returned {result!r}")

def rss():
    return int(open("/proc/self/statm").read().split()[1]) * 4096 / 2**20  # MiB
"""


def run_python(code: str, *arguments: str | Path, timeout: float = 120) -> str:
    """Runs code behind HEADER with sys.argv[1:] = arguments; returns what it printed, fails unless it ends with 0."""
    package = Path(__file__).resolve().parents[1]
    environment = {**os.environ, "GGML_NO_BACKTRACE": "1", "OMP_WAIT_POLICY": "passive"}
    if (package / "llama_eagle" / "_eagle_cffi.py").is_file():
        environment["PYTHONPATH"] = str(package)
    command = [sys.executable, "-c", HEADER + code, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, env=environment, check=False)
    died = f" ({signal.Signals(-done.returncode).name})" if done.returncode < 0 else ""
    assert done.returncode == 0, f"exit status {done.returncode}{died}\n{done.stdout}\n{done.stderr[-3000:]}"
    return done.stdout
