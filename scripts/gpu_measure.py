"""Measures what the parts of a step cost, on whatever device the library uses, and prints it as one JSON document.

    python scripts/gpu_measure.py [-m TARGET -md HEAD] [--past 256,4096] [--repeat 9] [--quick]

verify: milliseconds to decode n tokens at once, by flash attention and tokens of context; draft: to catch up and grow a
tree; step: of whole steps with trees of 16, and what of them lies outside drafting and verification. Medians.
"""

import argparse
import json
import os
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from llama_eagle import Batch, Context, Drafter, Engine, Model, SamplingParams, TreeShape
from llama_eagle.devices import devices
from llama_eagle.embedded import head_path, target_path
from llama_eagle.ffi import C, ffi

SIZES = (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 17, 24, 32, 33, 48, 64)
SHAPES = {
    "chain1": TreeShape.chain(1),
    "chain3": TreeShape.chain(3),
    "chain5": TreeShape.chain(5),
    "tree8": TreeShape(8, 4, 3),
    "tree16": TreeShape(16, 5, 4),
    "tree60": TreeShape(60, 7, 10),
}
WARM = 2  # runs before those that count: kernels are loaded, graphs captured


def medians(actions: dict[Any, Any], repeat: int) -> dict[str, float]:
    """Milliseconds of each action; they take turns."""
    times: dict[Any, list[float]] = {key: [] for key in actions}
    for _ in range(WARM + repeat):
        for key, action in actions.items():
            start = time.perf_counter()
            action()
            times[key].append(1000 * (time.perf_counter() - start))
    return {str(key): round(median(values[WARM:]), 4) for key, values in times.items()}


def prefill(context: Context, tokens: list[int]) -> None:
    """Decodes a prompt in pieces."""
    for first in range(0, len(tokens), 512):
        context.decode(Batch(tokens[first : first + 512]))


def verify(target: Model, features: tuple[int, ...], past: int, args: argparse.Namespace) -> dict[str, Any]:
    """Milliseconds by flash attention and tokens; the tokens differ each time."""
    rng, found = np.random.default_rng(0), {}
    for flash in ("on", "off"):
        with Context(target, features, n_ctx=past + 256, flash_attn=flash) as context:
            prefill(context, rng.integers(3, target.info.n_vocab, past).tolist())

            def decode(size: int, context: Context = context) -> None:
                context.decode(Batch(rng.integers(3, target.info.n_vocab, size), outputs=np.ones(size, np.int8)))
                context.argmax()
                context.seq_rm(0, past)

            # a size stays for a few runs, as it does in a text: graphs are kept for the last one
            sizes = SIZES[:4] if args.quick else SIZES
            found[flash] = {k: v for n in sizes for k, v in medians({n: lambda n=n: decode(n)}, args.repeat).items()}
    return found


def draft(target: Model, head: Model, past: int, args: argparse.Namespace) -> dict[str, float]:
    """Milliseconds to catch up on three pairs and grow a tree, by shape."""
    tokens = np.random.default_rng(1).integers(3, target.info.n_vocab, past + 1).tolist()
    with Context(target, head.info.features, n_ctx=past + 256) as context, Context(head, n_ctx=past + 1280) as small:
        drafter, rows = Drafter(small), []
        for first in range(0, past, 512):
            context.decode(Batch(tokens[first : min(first + 512, past)]))
            rows.append(context.features())
        features = np.concatenate(rows)
        drafter.observe(tokens[: past - 1], features[:-1])
        drafter.catch_up()

        def grow(shape: TreeShape) -> None:
            drafter.rewind(past - 3)
            drafter.observe(tokens[past - 3 : past], features[-3:])
            drafter.grow(tokens[past], shape)

        return medians({name: lambda shape=shape: grow(shape) for name, shape in SHAPES.items()}, args.repeat)


def step(target: Path, head: Path, args: argparse.Namespace) -> dict[str, Any]:
    """Whole steps of a greedy text: milliseconds each, their parts, and plain decoding beside it."""
    params = SamplingParams(temperature=0, max_tokens=16 if args.quick else 96, ignore_eos=True)
    prompt = np.random.default_rng(2).integers(3, 1000, 64).tolist()
    found: dict[str, Any] = {}
    for spec in ("off", "tree"):
        with Engine(target, head, spec=spec, n_ctx=1024) as engine:
            engine.generate(prompt, params)
            result = engine.generate([*prompt, 5], params)
            stats, times = result.spec, result.timings
            parts = {"draft": times.draft_s, "verify": times.verify_s, "other": times.other_s}
            found[spec] = {name: round(1000 * seconds / max(stats.steps, 1), 4) for name, seconds in parts.items()}
            found[spec] |= {"tokens_per_s": times.tokens_per_s, "tokens_per_step": stats.emitted / max(stats.steps, 1)}
            found[spec]["note"] = engine.pair.gpu_note
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", dest="model", type=Path)
    parser.add_argument("-md", dest="draft", type=Path)
    parser.add_argument("--past", default="256,4096")
    parser.add_argument("--repeat", type=int, default=9)
    parser.add_argument("--quick", action="store_true", help="few sizes and short texts: does it run at all?")
    args = parser.parse_args()
    paths = args.model or target_path(), args.draft or head_path()
    target = Model(paths[0])
    head = Model(paths[1], target=target)
    pasts = [64] if args.quick else [int(past) for past in args.past.split(",")]
    found: dict[str, Any] = {
        "target": paths[0].name,
        "graphs": "off" if os.environ.get("GGML_CUDA_DISABLE_GRAPHS") else "on",
        "build": ffi.string(C.eagle_llama_cpp()).decode(),
        "devices": [vars(device) for device in devices()],
        "verify": {past: verify(target, head.info.features, past, args) for past in pasts},
        "draft": {past: draft(target, head, past, args) for past in pasts},
    }
    head.close()
    target.close()
    found["step"] = step(*paths, args)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
