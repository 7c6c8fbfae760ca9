#!/usr/bin/env python3
"""Calls the C ABI with random arguments on live handles, each case in a process of its own.

No function may end the process because of its arguments, nor read or write past the arrays that it was given, which
are as long as eagle_api.h asks: run it under sanitizers, `python scripts/sanitize.py run python scripts/fuzz_calls.py`.
Pointers are always valid; numbers are anything. Case N of a seed is always the same: `--seed S --only N` shows its
calls as they are made.
"""

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from native_case import CALLS, Case  # noqa: E402 - opens the library once, before the cases' processes are forked
from tiny import good_pair, random_pair, target_shape  # noqa: E402


def in_child(folder: Path, seed: int, number: int, verbose: bool) -> int:
    """Runs a case. Returns the status of its process."""
    child = os.fork()
    if child == 0:
        try:
            Case(folder, random.Random(f"{seed}/{number}"), verbose).run()
        except BaseException as error:
            print(f"case {number}: {type(error).__name__}: {error}", flush=True)
            os._exit(3)
        os._exit(0)
    deadline = time.monotonic() + 120
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return status
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
        time.sleep(0.01)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=2.0, help="how long (default: 2)")
    parser.add_argument("--seed", type=int, default=0, help="another seed, other cases (default: 0)")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--only", type=int, help="run this case alone and show its calls")
    args = parser.parse_args()
    end, number, failed = time.monotonic() + 60 * args.minutes, args.first if args.only is None else args.only, 0
    with tempfile.TemporaryDirectory() as name:
        folders = [Path(name) / "plain", Path(name) / "window"]
        for folder in folders:
            folder.mkdir()
        good_pair(folders[0])
        random_pair(folders[1], shape=target_shape("gemma2"))
        first = number
        while time.monotonic() < end:
            status = in_child(folders[number % 2], args.seed, number, args.only is not None)
            if status:
                failed += 1
                print(f"case {number} ended with status {status:#x}", flush=True)
            number += 1
            if args.only is not None:
                break
    print(f"seed {args.seed}: {number - first} cases of {CALLS} calls, {failed} findings")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
