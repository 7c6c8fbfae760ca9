#!/usr/bin/env python3
"""Random requests against an Engine for a while: prompts, lengths, samplers, cancellations, forks.

    python scripts/soak.py --minutes 30 [--seed S] [--only ROUND]
    python scripts/sanitize.py soak --minutes 30       # the same with sanitizers in the native code

Each round opens an engine over a tiny pair, serves forty requests and closes it. Checked: a completed text is that
of plain decoding with the same parameters and seed (floating-point ties are counted); no cell is in use that no text
accounts for, and none at all when all are forgotten; memory grows no further once warm. Round R of a seed is always
the same: `--seed S --only R` runs it again. Exit status 1 when something was found.
"""

import argparse
import logging
import random
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from llama_eagle import Engine, Piece, ffi  # noqa: E402
from llama_eagle.errors import AbortedError  # noqa: E402
from soak_requests import EXACT, N_CTX, Plain, Wanted, random_params, random_wanted  # noqa: E402
from tiny import TinyPair, good_pair, random_pair, target_shape  # noqa: E402

REQUESTS = 40  # of a round
GROWTH = 24  # MiB that memory may vary by when warm: the allocator's, Python's and the kept texts
OPTIONS: list[dict[str, Any]] = [
    {"spec": "tree", "draft_nodes": 16},
    {"spec": "tree", "draft_nodes": 40, "draft_depth": 6, "draft_top_k": 5, "n_batch": 64, "n_ubatch": 32},
    {"spec": "chain", "draft_max": 5, "n_ubatch": 16},
    {"spec": "static"},
    {"spec": "off"},
]


class Driver:
    """The calls of the engine that a soak makes: one sequence at a time, so that a fork waits for its original's end.

    All that depends on the engine's names is here.
    """

    parallel = 1

    def __init__(self, pair: TinyPair, options: dict[str, Any]) -> None:
        self.engine = Engine(pair.target.path, pair.path, n_ctx=N_CTX, **EXACT, **options)
        self._pieces: Iterator[Piece] = iter(())

    def start(self, wanted: Wanted) -> list[int]:
        """Begins a request. Returns what grows as its tokens come."""
        self._pieces = self.engine.stream(list(wanted.prompt), wanted.params)
        return []

    def step(self, texts: list[list[int]]) -> list[bool]:
        """One step of every request. Returns which are complete."""
        for text in texts:
            piece = next(self._pieces, None)
            if piece is None:
                return [True]
            text.extend(piece.tokens)
        return [False] * len(texts)

    def cancel(self, text: list[int]) -> None:
        """Ends a request between two steps."""
        self._pieces.close()  # type: ignore[attr-defined]

    def abort(self, text: list[int]) -> None:
        """Ends a request within a step."""
        self.engine.loop.target.abort()
        try:
            next(self._pieces, None)
        except AbortedError:
            pass
        finally:
            self.engine.loop.target.resume()
            self._pieces.close()  # type: ignore[attr-defined]

    def unaccounted(self) -> int:
        """Cells and nodes that belong to no kept text, of both contexts."""
        return sum(abs(c.cells_used() - c.n_past()) + c.n_nodes() for c in self._contexts())

    def forget(self) -> int:
        """Drops kept texts, too. Returns the cells in use then."""
        self.engine.forget()
        return sum(c.cells_used() + c.cells_used(window=True) for c in self._contexts())

    def _contexts(self) -> list[Any]:
        drafter = self.engine.pair.drafter
        return [self.engine.pair.target] + ([drafter.context] if drafter else [])

    def close(self) -> None:
        """Frees the engine."""
        self.engine.close()


@dataclass
class Live:
    """A request that was started."""

    wanted: Wanted
    text: list[int]


@dataclass
class Round:
    """One engine's requests."""

    driver: Driver
    plain: Plain
    rng: random.Random
    counts: Counter[str]
    findings: list[str] = field(default_factory=list)
    live: list[Live] = field(default_factory=list)
    forks: list[Wanted] = field(default_factory=list)

    def run(self) -> None:
        """Starts, drives, disturbs and checks; ends with nothing in use."""
        todo = REQUESTS
        while todo or self.live:
            while todo and len(self.live) < self.driver.parallel and (not self.live or self.rng.random() < 0.5):
                todo -= 1
                self._start(self.forks.pop() if self.forks else random_wanted(self.rng))
            done = self.driver.step([one.text for one in self.live])
            for one, ended in zip(list(self.live), done, strict=True):
                if ended:
                    self._check(one)
            self._disturb()
        self._expect("cells that no text accounts for", self.driver.unaccounted())
        self._expect("cells in use when all is forgotten", self.driver.forget())

    def _start(self, wanted: Wanted) -> None:
        self.counts["requests"] += 1
        self.live.append(Live(wanted, self.driver.start(wanted)))

    def _disturb(self) -> None:
        """Now and then cancels or forks one of the requests."""
        chance = self.rng.random()
        if not self.live or chance > 0.06:
            return
        one = self.rng.choice(self.live)
        if chance < 0.02:
            self._fork(one)
        else:
            self.counts["cancelled"] += 1
            self.live.remove(one)
            (self.driver.abort if chance < 0.04 else self.driver.cancel)(one.text)
            self._expect("cells that no text accounts for, behind a cancellation", self.driver.unaccounted())

    def _fork(self, one: Live) -> None:
        """Another text behind the same tokens, with parameters of its own."""
        prompt = (*one.wanted.prompt, *one.text)
        if len(prompt) <= N_CTX:
            self.counts["forks"] += 1
            self.forks.append(Wanted(prompt, random_params(self.rng)))

    def _check(self, one: Live) -> None:
        self.live.remove(one)
        self.counts["completed"] += 1
        expected = self.plain.text(one.wanted)
        if one.text == expected:
            return
        if self.plain.is_tie(one.wanted, one.text):
            self.counts["ties"] += 1
            return
        self.findings.append(f"{one.wanted}: {one.text}, plain decoding gives {expected}")

    def _expect(self, what: str, number: int) -> None:
        if number:
            self.findings.append(f"{number} {what}")


class Soak:
    """Rounds until the time is over."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.seed = seed
        self.counts: Counter[str] = Counter()
        self.findings: list[str] = []
        self.memory: list[float] = []  # MiB behind each round
        self.pairs = {"good": good_pair(_below(folder, "good")), "random": random_pair(_below(folder, "random"))}
        for name in ("gemma2", "deepseek2"):  # a sliding window, and MLA
            self.pairs[name] = random_pair(_below(folder, name), shape=target_shape(name, n_layer=6))
        self.plain = {name: Plain(pair.target.path) for name, pair in self.pairs.items()}

    def round(self, number: int) -> None:
        """Runs a round and keeps what it found."""
        rng = random.Random(f"{self.seed}/{number}")
        name, options = rng.choice(["good", *self.pairs]), rng.choice(OPTIONS)
        driver = Driver(self.pairs[name], options)
        try:
            one = Round(driver, self.plain[name], rng, self.counts)
            one.run()
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
    while time.monotonic() - start < 60 * args.minutes:
        run.round(number)
        if args.only is not None:
            break
        number += 1
        if time.monotonic() - told > 60:
            told = time.monotonic()
            print(f"{(told - start) / 60:.0f} min: {dict(run.counts)}, {run.memory[-1]:.0f} MiB", flush=True)
    growth = run.growth()
    if growth > GROWTH:
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
    parser.add_argument("--only", type=int, help="run this round alone")
    args = parser.parse_args()
    logging.getLogger("llama_eagle").setLevel(logging.CRITICAL)  # each abort is an error to llama.cpp
    print(f"native library: {ffi.native_library()}")
    with tempfile.TemporaryDirectory() as folder:
        return 1 if soak(args, Path(folder)) else 0


if __name__ == "__main__":
    sys.exit(main())
