"""Processes that generate side by side, each with a target of its own; what they write comes through pipes.

On small targets two processes of one thread each get more done than one with two, as none waits for another.
"""

import contextlib
import multiprocessing
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path

from ..errors import EagleError, TrainingError
from ..model import Model
from .source import Chat, Source, Wanted, Written
from .writer import Writer


@dataclass(frozen=True)
class Work:
    """What all processes together are to do. parallel: texts at a time; threads: of llama.cpp, 0 for all processors."""

    target: Path
    layers: tuple[int, ...]
    parallel: int
    threads: int
    workers: int
    wanted: Wanted


@contextlib.contextmanager
def written(work: Work, seen: list[str]) -> Iterator[Iterator[Written]]:
    """What the workers write, in the order in which it is done, until their prompts end."""
    if work.workers == 1:
        yield _write(work, seen, 0)
        return
    context = multiprocessing.get_context("spawn")
    ends, processes = [], []
    for number in range(work.workers):
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=_serve, args=(theirs, work, seen, number), daemon=True)
        process.start()
        theirs.close()
        ends.append(ours)
        processes.append(process)
    try:
        yield _received(ends)
    finally:
        for process in processes:
            process.terminate()
            process.join()


def _received(ends: list[Connection]) -> Iterator[Written]:
    while ends:
        for end in wait(ends):
            assert isinstance(end, Connection)
            try:
                thing = end.recv()
            except (EOFError, OSError):
                raise TrainingError(
                    "a generating process has ended, for want of memory perhaps: go on with --resume"
                ) from None
            if isinstance(thing, EagleError):
                raise thing
            if thing is None:
                ends.remove(end)
            else:
                yield thing


def _serve(end: Connection, work: Work, seen: list[str], number: int) -> None:
    """A worker's life: answers, then None; or the error that ended it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the first process says what becomes of it
    with contextlib.suppress(BrokenPipeError):
        try:
            for answer in _write(work, seen, number):
                end.send(answer)
            end.send(None)
        except EagleError as error:
            end.send(error)


def _write(work: Work, seen: list[str], number: int) -> Iterator[Written]:
    """What one worker writes."""
    parallel = -(-work.parallel // work.workers)
    threads = max(work.threads // work.workers, 1) if work.threads else 1 if work.workers > 1 else 0
    with Model(work.target) as model:
        seed = [work.wanted.seed, number, len(seen)]
        writer = Writer(model, work.layers, (parallel, work.wanted.length), threads, seed)
        try:
            yield from Source(Chat.of(model), writer, work.wanted, seen, (number, work.workers)).written()
        finally:
            writer.close()
