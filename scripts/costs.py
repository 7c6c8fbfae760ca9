"""What decoding and drafting cost on this machine: the figures of docs/performance.md.

    python scripts/costs.py decode [-m TARGET] [--past 256] [--repeat 9]      milliseconds to decode 1..32 tokens
    python scripts/costs.py draft  [-m TARGET -md HEAD] [--repeat 9]          milliseconds of a step, by shape and part
    python scripts/costs.py share  [-m TARGET -md HEAD]                       Python's share of a step with a tree of 16
    python scripts/costs.py speed  [-m TARGET -md HEAD] [--prompts FILE]...   plain, chain and tree, prompt by prompt

Interleaved, medians; an idle machine is assumed.
"""

import argparse
import json
import resource
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import llama_eagle.step_calls
from llama_eagle import Batch, Context, Engine, Model, SamplingParams
from llama_eagle.embedded import target_path

PROMPTS = ["Why is the sky blue?", "Write a haiku about the sea.", "Explain how a bicycle stays upright."]


def decode(args: argparse.Namespace) -> None:
    """Prints a table: rows are attention variants, columns token counts."""
    model = Model(args.model or target_path())
    rng = np.random.default_rng(0)
    vocabulary = model.info.n_vocab
    contexts = {fa: Context(model, n_ctx=args.past + 256, flash_attn=fa) for fa in ("on", "off")}
    for context in contexts.values():
        for first in range(0, args.past, 512):
            context.decode(Batch(rng.integers(3, vocabulary, min(512, args.past - first))))
    sizes = (1, 2, 4, 8, 9, 16, 17, 32)
    times: dict[tuple[str, int], list[float]] = {}
    for _ in range(args.repeat):
        for size in sizes:
            for fa, context in contexts.items():
                batch = Batch(rng.integers(3, vocabulary, size), outputs=[1] * size)
                start = time.perf_counter()
                context.decode(batch)
                times.setdefault((fa, size), []).append(time.perf_counter() - start)
                context.seq_rm(0, args.past)
    print("| flash attention | " + " | ".join(map(str, sizes)) + " |")
    for fa in contexts:
        print(f"| {fa} | " + " | ".join(f"{1000 * median(times[fa, size]):.1f}" for size in sizes) + " |")


SHAPES: dict[str, dict[str, Any]] = {
    "plain": {"spec": "off"},
    **{f"chain of {n}": {"spec": "chain", "draft_max": n} for n in (1, 2, 3)},
    **{f"tree of {n}": {"spec": "tree", "draft_nodes": n} for n in (8, 16, 32)},
}


def draft(args: argparse.Namespace) -> None:
    """Prints a table of medians over answers: launches and graphs built a step, and its milliseconds by part."""
    engines = {name: Engine(args.model, args.draft, n_ctx=1024, **options) for name, options in SHAPES.items()}
    rows: dict[str, list[tuple[float, ...]]] = {name: [] for name in SHAPES}
    for turn in range(args.repeat):
        for name, engine in engines.items():
            rows[name].append(_step_of(engine, PROMPTS[turn % len(PROMPTS)]))
    print("| | launches | graphs built | drafting | verification | outside | tokens a step | tok/s |")
    for name, values in rows.items():
        medians = [median(column) for column in zip(*values, strict=True)]
        print(f"| {name} | " + " | ".join(f"{value:.2f}" for value in medians) + " |")


def _step_of(engine: Engine, prompt: str) -> tuple[float, ...]:
    """Launches, graphs built, milliseconds of the three parts, tokens a step, and tokens a second of an answer."""
    for _ in engine.chat([{"role": "user", "content": prompt}], SamplingParams(temperature=0, max_tokens=96)):
        pass
    spec, timings = engine.result.spec, engine.result.timings
    counts = spec.graphs_built + spec.graphs_reused, spec.graphs_built
    milliseconds = [1000 * part for part in (timings.draft_s, timings.verify_s, timings.other_s)]
    a_step = [value / spec.steps for value in (*counts, *milliseconds, spec.emitted)]
    return *a_step, timings.tokens_per_s


class Timed:
    """Stands in for the native library and adds up the time spent in it."""

    def __init__(self, library: Any) -> None:
        self.native, self.seconds = library, 0.0

    def __getattr__(self, name: str) -> Any:
        function = getattr(self.native, name)
        if not callable(function):
            return function

        clock = time.perf_counter

        def call(*args: Any) -> Any:
            start = clock()
            try:
                return function(*args)
            finally:
                self.seconds += clock() - start

        setattr(self, name, call)  # found without this method from now on
        return call


def share(args: argparse.Namespace) -> None:
    """Prints the milliseconds a step, text included, spends outside its native call, less what a second timer costs."""
    with Engine(args.model, args.draft, spec="tree", n_ctx=2048) as engine:
        inner = Timed(llama_eagle.step_calls.C)
        outer = Timed(inner)
        llama_eagle.step_calls.C = outer
        for prompt in PROMPTS:
            pieces = engine.chat([{"role": "user", "content": prompt}], SamplingParams(temperature=0, max_tokens=96))
            next(pieces)
            before = (inner.seconds, outer.seconds)
            start = time.perf_counter()
            steps = sum(1 for _ in pieces)
            seconds = time.perf_counter() - start
            native, timed = inner.seconds - before[0], outer.seconds - before[1]
            outside = 1000 * (seconds - timed - (timed - native)) / steps
            print(f"{steps} steps, {1000 * seconds / steps:.1f} ms a step, {outside:.3f} ms outside native calls")


def speed(args: argparse.Namespace) -> None:
    """Prints tokens a second of each mode and the median ratio to plain decoding; modes take turns prompt by prompt."""
    modes = {"plain": {"spec": "off"}, "chain of 3": {"spec": "chain"}, "tree of 16": {"spec": "tree"}, "auto": {}}
    turns = [json.loads(line)["turns"][0] for path in args.prompts for line in path.open()][: args.limit] or PROMPTS
    engines = {name: Engine(args.model, args.draft, n_ctx=2048, **options) for name, options in modes.items()}
    rates: dict[str, list[float]] = {name: [] for name in modes}
    for turn in turns:
        for name, engine in engines.items():
            for _ in engine.chat([{"role": "user", "content": turn}], SamplingParams(temperature=0, max_tokens=96)):
                pass
            rates[name].append(engine.result.timings.tokens_per_s)
    for name, values in rates.items():
        ratio = median(a / b for a, b in zip(values, rates["plain"], strict=True))
        print(f"{name}: {median(values):.1f} tok/s, {ratio:.2f}x plain")
    print(f"peak memory of all four: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024} MB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("decode", "draft", "share", "speed"))
    parser.add_argument("-m", dest="model", type=Path)
    parser.add_argument("-md", dest="draft", default="auto")
    parser.add_argument("--past", type=int, default=256)
    parser.add_argument("--repeat", type=int, default=9)
    parser.add_argument("--prompts", action="append", type=Path, default=[])
    parser.add_argument("--limit", type=int, default=8)
    args = parser.parse_args()
    {"decode": decode, "draft": draft, "share": share, "speed": speed}[args.what](args)


if __name__ == "__main__":
    main()
