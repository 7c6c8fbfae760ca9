"""Audits drafted texts against plain decoding on prompt files, and prints tokens a step.

    python scripts/audit.py PROMPTS.jsonl... [--limit 20] [-n 128] [--shapes tree16,tree32,chain4] [--temp 0]
        [-m TARGET -md HEAD]

The first turn of each prompt through the chat template, greedy, or with one seed a prompt at a temperature, where the
texts of a seed must be equal. many16: sixteen requests at once. Exit status 1 when the audit finds an error.
"""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from llama_eagle import Context, Engine, Result, SamplingParams
from llama_eagle.audit import Audit, Verdict
from llama_eagle.options import EngineOptions

SHAPES: dict[str, dict[str, Any]] = {
    "auto": {},
    "tree8": {"spec": "tree", "draft_nodes": 8},
    "tree16": {"spec": "tree", "draft_nodes": 16},
    "tree32": {"spec": "tree", "draft_nodes": 32},
    "chain4": {"spec": "chain", "draft_max": 4},
    "static": {"spec": "static", "draft_tree": "eagle1"},
    "paths": {"spec": "tree", "draft_nodes": 8, "verify": "paths"},
    "many16": {"spec": "tree", "n_parallel": 16},
    "plain16": {"spec": "off", "n_parallel": 16},
}


def prompts(path: Path, limit: int) -> list[str]:
    """The first turns of a file."""
    with path.open() as lines:
        return [json.loads(line)["turns"][0] for line in lines][:limit]


def params(number: int, args: argparse.Namespace) -> SamplingParams:
    """Those of a prompt: llama.cpp's defaults but for the temperature, the prompt's number as the seed."""
    return SamplingParams(temperature=args.temp, seed=number, max_tokens=args.n)


def texts(engine: Engine, turns: list[str], args: argparse.Namespace) -> tuple[list[Result], float]:
    """Results of all prompts, and the seconds that they took."""
    template = engine.template
    prompts = [template.render([{"role": "user", "content": turn}], add_generation_prompt=True) for turn in turns]
    ids = [engine.pair.model.tokenize(prompt, add_special=False, parse_special=True) for prompt in prompts]
    start = time.perf_counter()
    if engine.options.n_parallel > 1:
        requests = [engine.submit(tokens, params(i, args)) for i, tokens in enumerate(ids)]
        results = [request.wait() for request in requests]
    else:
        results = [engine.generate(tokens, params(i, args)) for i, tokens in enumerate(ids)]
    return results, time.perf_counter() - start


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--limit", type=int, default=20)
    parser.add_argument("-n", type=int, default=128)
    parser.add_argument("--shapes", default="tree16,tree32,chain4")
    parser.add_argument("-m", dest="model")
    parser.add_argument("-md", dest="draft", default="auto")
    parser.add_argument("-fa", dest="flash_attn", default="auto", choices=("auto", "on", "off"))
    parser.add_argument("--temp", type=float, default=0.0)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    common = {"n_ctx": 2048, "flash_attn": args.flash_attn}
    rows = []
    for path in args.files:
        turns = prompts(path, args.limit)
        with Engine(args.model, args.draft, spec="off", **common) as engine:
            plain, seconds = texts(engine, turns, args)
        for name in args.shapes.split(","):
            options = {**common, **SHAPES[name]}
            options["n_ctx"] *= options.get("n_parallel", 1)
            with Engine(args.model, args.draft, **options) as engine:
                drafted, took = texts(engine, turns, args)
                with Context(engine.pair.model, **common) as context:
                    row = {"prompts": path.stem, "shape": name, **compare(Audit(context), name, plain, drafted, args)}
                rows.append({**row, "seconds": round(took, 1), "plain_seconds": round(seconds, 1)})
            print(json.dumps(rows[-1]), flush=True)
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1) + "\n")
    return 1 if any(row["errors"] for row in rows) else 0


def verdict(audit: Audit, one: Result, other: Result, batch: int, options: SamplingParams) -> Verdict:
    """Over two texts of a prompt."""
    if options.temperature == 0:
        return audit.judge(one.prompt, one.tokens, other.tokens, batch)
    return audit.judge_sampled(one.prompt, one.tokens, other.tokens, batch, options)


def compare(
    audit: Audit, shape: str, plain: list[Result], drafted: list[Result], args: argparse.Namespace
) -> dict[str, Any]:
    """One row: verdicts and mean tokens a step."""
    fixed = EngineOptions.of(**SHAPES[shape]).fixed_shape()
    batch = 1 + (fixed.nodes if fixed else 0)
    counts = {"identical": 0, "tie": 0, "error": 0}
    for number, (one, other) in enumerate(zip(plain, drafted, strict=True)):
        found = verdict(audit, one, other, batch * SHAPES[shape].get("n_parallel", 1), params(number, args))
        counts[found.kind] += 1
        if found.kind != "identical":
            print(shape, number, found, file=sys.stderr)
    steps = sum(result.spec.steps for result in drafted)
    emitted = sum(result.spec.emitted for result in drafted)
    return {
        "texts": len(plain),
        "identical": counts["identical"],
        "ties": counts["tie"],
        "errors": counts["error"],
        "tokens_per_step": round(emitted / steps, 3) if steps else 0.0,
    }


if __name__ == "__main__":
    sys.exit(main())
