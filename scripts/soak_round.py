"""A round of soak.py: an engine of several sequences, its random requests and what disturbs them."""

import contextlib
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from llama_eagle import Engine, SamplingParams
from llama_eagle.distribution import GREEDY
from llama_eagle.errors import AbortedError, EagleError
from llama_eagle.request import Request
from soak_requests import EXACT, N_CTX, ROOM, Plain, Wanted, random_params, random_wanted
from tiny import TinyPair

REQUESTS = 40  # of a round, besides forks and completions
DISTURBED = 0.1  # of the steps
SPECS: list[dict[str, Any]] = [
    {"spec": "tree", "draft_nodes": 16},
    {"spec": "tree", "draft_nodes": 40, "draft_depth": 6, "draft_top_k": 5, "n_batch": 64, "n_ubatch": 32},
    {"spec": "chain", "draft_max": 5, "n_ubatch": 16},
    {"spec": "static"},
    {"spec": "off"},
]


def random_options(rng: random.Random) -> dict[str, Any]:
    """Of an engine: how it drafts, verifies and accepts, and for how many sequences."""
    options = {**rng.choice(SPECS), "n_parallel": rng.randint(1, 6), "n_ctx": rng.choice([N_CTX, ROOM])}
    return {
        **options,
        "verify": rng.choice(["tree", "tree", "paths"]),
        "accept": rng.choice(["match"] * 3 + ["residual"]),
    }


class Driver:
    """The calls of the engine that a soak makes. All that depends on the engine's names is here."""

    def __init__(self, pair: TinyPair, options: dict[str, Any], saved: Path) -> None:
        self.engine = Engine(pair.target.path, pair.path, **EXACT, **options)
        self.n_ctx, self.parallel = options["n_ctx"], options["n_parallel"]
        self._draws, self._saved = options["accept"] == "residual", saved

    def start(self, wanted: Wanted) -> Request:
        """Queues a request."""
        return self.engine.submit(list(wanted.prompt), wanted.params)

    def is_plain(self, params: SamplingParams) -> bool:
        """Whether texts are those of plain decoding, and not only as likely."""
        return not self._draws or params.temperature < GREEDY

    def aborted_step(self) -> None:
        """A step whose decode is aborted; the requests go on afterwards."""
        self.engine.loop.target.abort()
        try:
            with contextlib.suppress(AbortedError):
                self.engine.step()
        finally:
            self.engine.loop.target.resume()

    def is_running(self, request: Request) -> bool:
        """Whether it has a slot."""
        return request in self.engine.scheduler.running.values()

    def through_a_file(self, request: Request) -> Request:
        """Saves a running request, gives it up, and restores it."""
        self.engine.save(request, self._saved)
        request.cancel()
        return self.engine.restore(self._saved)

    def unaccounted(self) -> int:
        """Nodes between two steps, and cells that belong to no sequence or miss in one, of both contexts."""
        res = 0
        for context in self._contexts():
            lengths = [context.n_past(seq_id) for seq_id in range(self.parallel)]
            used = context.cells_used()  # prefixes may be shared
            res += max(used - sum(lengths), 0) + max(max(lengths) - used, 0)
            res += sum(context.n_nodes(seq_id) for seq_id in range(self.parallel))
        return res

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
    request: Request


@dataclass
class Round:
    """One engine's requests."""

    driver: Driver
    plain: Plain
    rng: random.Random
    counts: Counter[str]
    findings: list[str] = field(default_factory=list)
    live: list[Live] = field(default_factory=list)

    def run(self, end: float) -> None:
        """Starts, drives, disturbs and checks until `end` at most; ends with nothing in use."""
        todo = REQUESTS
        while (todo or self.live) and time.monotonic() < end:
            while todo and len(self.live) < 2 * self.driver.parallel and (not self.live or self.rng.random() < 0.5):
                todo -= 1
                self._start(random_wanted(self.rng))
            if not self.driver.engine.step() and not all(one.request.done for one in self.live):
                self.findings.append(f"nothing runs, and requests wait: {[one.wanted for one in self.live]}")
                break
            self._disturb()
            self._check_done()
        for one in self.live:
            one.request.cancel()
        self._expect("cells that no text accounts for", self.driver.unaccounted())
        self._expect("cells in use when all is forgotten", self.driver.forget())

    def _start(self, wanted: Wanted) -> None:
        self.counts["requests"] += 1
        self.live.append(Live(wanted, self.driver.start(wanted)))

    def _check_done(self) -> None:
        for one in [one for one in self.live if one.request.done]:
            self.live.remove(one)
            self._check(one)

    def _disturb(self) -> None:
        """Now and then something happens to one of the requests, or to all."""
        running = [one for one in self.live if not one.request.done]
        if not running or self.rng.random() >= DISTURBED:
            return
        calls: list[Callable[[Live], None]] = [self._cancel, self._stop, self._abort, self._wait, self._completions]
        self.rng.choice([*calls, self._fork, self._fork, self._fork, self._save, self._save])(self.rng.choice(running))
        self._expect("cells that no text accounts for, in between", self.driver.unaccounted())

    def _cancel(self, one: Live) -> None:
        self.counts["cancelled"] += 1
        self.live.remove(one)
        one.request.cancel()

    def _stop(self, one: Live) -> None:
        self.counts["stopped"] += 1
        self.live.remove(one)
        one.request.stop()

    def _abort(self, one: Live) -> None:
        self.counts["aborted steps"] += 1
        self.driver.aborted_step()

    def _wait(self, one: Live) -> None:
        with contextlib.suppress(EagleError):  # the check sees it
            one.request.wait()

    def _completions(self, one: Live) -> None:
        """Several texts of a prompt; the other requests run meanwhile."""
        wanted = random_wanted(self.rng)
        n = self.rng.randint(1, 4)
        self.counts["completions"] += n
        for i, result in enumerate(self.driver.engine.completions(list(wanted.prompt), wanted.params, n)):
            params = replace(wanted.params, seed=(wanted.params.seed or 0) + i)
            self._compare(Wanted(wanted.prompt, params), result.tokens)

    def _fork(self, one: Live) -> None:
        """Another text behind the same tokens, with another seed or with parameters of its own."""
        params = self.rng.choice([replace(one.wanted.params, seed=self.rng.randrange(6)), random_params(self.rng)])
        given = tuple(one.request.result.tokens)
        try:
            fork = one.request.fork(params)
        except EagleError:  # its grammar forbids what the text has
            self.counts["refused forks"] += 1
            return
        self.counts["forks"] += 1
        self.live.append(Live(Wanted(one.wanted.prompt, params, given), fork))

    def _save(self, one: Live) -> None:
        if self.driver.is_running(one.request):
            self.counts["saved"] += 1
            one.request = self.driver.through_a_file(one.request)

    def _check(self, one: Live) -> None:
        self.counts["completed"] += 1
        if one.request.error is not None:
            self.findings.append(f"{one.wanted}: {one.request.error!r}")
        else:
            self._compare(one.wanted, one.request.result.tokens)

    def _compare(self, wanted: Wanted, text: list[int]) -> None:
        if not self.driver.is_plain(wanted.params):
            self.counts["drawn"] += 1
            return
        expected = self.plain.text(wanted, self.driver.n_ctx)
        if text == expected:
            return
        if self.plain.is_tie(wanted, text):
            self.counts["ties"] += 1
            return
        self.findings.append(f"{wanted}: {text}, plain decoding gives {expected}")

    def _expect(self, what: str, number: int) -> None:
        if number:
            self.findings.append(f"{number} {what}")
