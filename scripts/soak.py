#!/usr/bin/env python3
"""Random requests against an Engine for a while: prompts, lengths, samplers, cancellations, forks.

    python scripts/soak.py --minutes 30 [--seed S] [--only ROUND]
    python scripts/sanitize.py soak --minutes 30       # the same with sanitizers in the native code

Each round opens an engine of up to six sequences over a tiny pair, serves forty requests and closes it. Checked: a
completed text is that of plain decoding of one sequence with the same parameters and seed (floating-point ties are
counted), except where accept "residual" keeps the distribution only; no cell is in use that no sequence accounts for,
and none at all when all are forgotten; memory grows no further once warm. Round R of a seed is always the same unless
the time ends it: `--seed S --only R` runs it again, whole. Exit status 1 when something was found.
"""

import argparse
import logging
import random
import statistics
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from llama_eagle import ffi  # noqa: E402
from soak_requests import Plain  # noqa: E402
from soak_round import Driver, Round, random_options  # noqa: E402
from tiny import good_pair, random_pair, target_shape  # noqa: E402

GROWTH = 24.0  # MiB that memory may vary by when warm: the allocator's, Python's and the kept texts


class Soak:
    """Rounds until the time is over."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.seed, self.folder = seed, folder
        self.counts: Counter[str] = Counter()
        self.findings: list[str] = []
        self.memory: list[float] = []  # MiB behind each round
        self.pairs = {"good": good_pair(_below(folder, "good")), "random": random_pair(_below(folder, "random"))}
        for name in ("gemma2", "deepseek2"):  # a sliding window, and MLA
            self.pairs[name] = random_pair(_below(folder, name), shape=target_shape(name, n_layer=6))
        self.plain = {name: Plain(pair.target.path) for name, pair in self.pairs.items()}

    def round(self, number: int, end: float) -> None:
        """Runs a round, until `end` at most, and keeps what it found. end: of time.monotonic()."""
        rng = random.Random(f"{self.seed}/{number}")
        name, options = rng.choice(["good", *self.pairs]), random_options(rng)
        driver = Driver(self.pairs[name], options, self.folder / "saved")
        try:
            one = Round(driver, self.plain[name], rng, self.counts)
            one.run(end)
        finally:
            driver.close()
        for text in one.findings:
            print(f"round {number} ({name}, {options}): {text}", flush=True)
        self.findings += one.findings
        self.memory.append(_resident())

    def growth(self) -> float:
        """MiB that memory grew by from the second fifth of the rounds to the last."""
        fifth = len(self.memory) // 5
        if fifth < 2:
            return 0.0
        return statistics.median(self.memory[-fifth:]) - statistics.median(self.memory[fifth : 2 * fifth])


def _below(folder: Path, name: str) -> Path:
    (folder / name).mkdir()
    return folder / name


def _resident() -> float:
    """MiB of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 2**20


def soak(args: argparse.Namespace, folder: Path) -> int:
    """Runs rounds until the time is over. Returns the number of findings."""
    run = Soak(folder, args.seed)
    start = told = time.monotonic()
    number = args.first if args.only is None else args.only
    end = start + 60 * args.minutes
    while time.monotonic() < end:
        run.round(number, end if args.only is None else float("inf"))
        if args.only is not None:
            break
        number += 1
        if time.monotonic() - told > 60:
            told = time.monotonic()
            print(f"{(told - start) / 60:.0f} min: {dict(run.counts)}, {run.memory[-1]:.0f} MiB", flush=True)
    growth = run.growth()
    if growth > args.growth:
        run.findings.append(f"memory grew by {growth:.0f} MiB when warm")
        print(run.findings[-1])
    for plain in run.plain.values():
        plain.close()
    shown = ", ".join(f"{count} {what}" for what, count in run.counts.items())
    print(
        f"seed {args.seed}, {len(run.memory)} rounds: {shown}; memory {growth:+.1f} MiB, {len(run.findings)} findings"
    )
    return len(run.findings)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30.0, help="how long (default: 30)")
    parser.add_argument("--seed", type=int, default=0, help="another seed, other requests (default: 0)")
    parser.add_argument("--first", type=int, default=0, help="number of the first round (default: 0)")
    parser.add_argument("--growth", type=float, default=GROWTH, help=f"MiB memory may grow by (default: {GROWTH:.0f})")
    parser.add_argument("--only", type=int, help="run this round alone")
    args = parser.parse_args()
    logging.getLogger("llama_eagle").setLevel(logging.CRITICAL)  # each abort is an error to llama.cpp
    print(f"native library: {ffi.native_library()}")
    with tempfile.TemporaryDirectory() as folder:
        return 1 if soak(args, Path(folder)) else 0


if __name__ == "__main__":
    sys.exit(main())
