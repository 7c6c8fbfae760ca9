"""Audits drafted texts against plain decoding on prompt files, and prints tokens a step.

    python scripts/audit.py PROMPTS.jsonl... [--limit 20] [-n 128] [--shapes tree16,tree32,chain4] [-m TARGET -md HEAD]

Greedy; the first turn of each prompt through the chat template. Exit status 1 when the audit finds an error.
"""

import argparse
import json
import sys
from pathlib import Path

from llama_eagle import Context, Engine, SamplingParams
from llama_eagle.audit import Audit
from llama_eagle.options import EngineOptions

SHAPES = {
    "tree8": {"spec": "tree", "draft_nodes": 8},
    "tree16": {"spec": "tree", "draft_nodes": 16},
    "tree32": {"spec": "tree", "draft_nodes": 32},
    "chain4": {"spec": "chain", "draft_max": 4},
    "static": {"spec": "static", "draft_tree": "eagle1"},
}


def prompts(path: Path, limit: int) -> list[str]:
    """The first turns of a file."""
    with path.open() as lines:
        return [json.loads(line)["turns"][0] for line in lines][:limit]


def texts(engine: Engine, turns: list[str], n: int) -> list[dict]:  # type: ignore[type-arg]
    """Results of all prompts."""
    res = []
    for turn in turns:
        for _ in engine.chat([{"role": "user", "content": turn}], SamplingParams(temperature=0, max_tokens=n)):
            pass
        res.append({"result": engine.result, "prompt": engine.result.prompt})
    return res


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--limit", type=int, default=20)
    parser.add_argument("-n", type=int, default=128)
    parser.add_argument("--shapes", default="tree16,tree32,chain4")
    parser.add_argument("-m", dest="model")
    parser.add_argument("-md", dest="draft", default="auto")
    parser.add_argument("-fa", dest="flash_attn", default="auto", choices=("auto", "on", "off"))
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    common = {"n_ctx": 2048, "flash_attn": args.flash_attn}
    rows = []
    for path in args.files:
        turns = prompts(path, args.limit)
        with Engine(args.model, args.draft, spec="off", **common) as engine:
            plain = texts(engine, turns, args.n)
        for name in args.shapes.split(","):
            with Engine(args.model, args.draft, **common, **SHAPES[name]) as engine:
                drafted = texts(engine, turns, args.n)
                with Context(engine.pair.model, **common) as context:
                    rows.append(compare(Audit(context), path.stem, name, plain, drafted))
            print(json.dumps(rows[-1]), flush=True)
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1) + "\n")
    return 1 if any(row["errors"] for row in rows) else 0


def compare(audit: Audit, prompt_set: str, shape: str, plain: list[dict], drafted: list[dict]) -> dict:  # type: ignore[type-arg]
    """One row: verdicts and mean tokens a step."""
    fixed = EngineOptions.of(**SHAPES[shape]).fixed_shape()
    batch = 1 + (fixed.nodes if fixed else 0)
    counts = {"identical": 0, "tie": 0, "error": 0}
    for one, other in zip(plain, drafted, strict=True):
        verdict = audit.judge(one["prompt"], one["result"].tokens, other["result"].tokens, batch)
        counts[verdict.kind] += 1
        if verdict.kind != "identical":
            print(prompt_set, shape, verdict, file=sys.stderr)
    steps = sum(d["result"].spec.steps for d in drafted)
    emitted = sum(d["result"].spec.emitted for d in drafted)
    return {
        "prompts": prompt_set,
        "shape": shape,
        "texts": len(plain),
        "identical": counts["identical"],
        "ties": counts["tie"],
        "errors": counts["error"],
        "tokens_per_step": round(emitted / steps, 3) if steps else 0.0,
    }


if __name__ == "__main__":
    sys.exit(main())
