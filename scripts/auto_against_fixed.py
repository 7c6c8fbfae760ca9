"""`--spec auto` against plain decoding and against fixed shapes, which are chosen afterwards for each set of prompts.

    python scripts/auto_against_fixed.py PROMPTS.jsonl... [--limit 20] [-n 128] [--temp 0] [--filtered] [--repeat 1]
        [--fixed chain1,chain2,tree4] [-m TARGET -md HEAD] [--slow target|draft] [--json OUT.json]

All answer each prompt in turn; a ratio is of one prompt and one turn. Texts are compared, greedy or with one seed a
prompt. --slow makes each decode of the target or each draft three times as long, to show that auto follows; the sizes
that it chose are printed.
"""

import argparse
import json
import re
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

from llama_eagle import Engine, SamplingParams, step_calls
from llama_eagle.bench.prompts import prompt_sets

SLOWER = 3.0


def options(name: str) -> dict[str, Any]:
    """Of an engine: plain, auto, chainN or treeN."""
    if name in ("plain", "auto"):
        return {"spec": "off" if name == "plain" else "auto"}
    found = re.fullmatch(r"(chain|tree)(\d+)", name)
    if found is None:
        raise SystemExit(f"{name!r} is no shape: chainN or treeN")
    size = int(found[2])
    return {"spec": "chain", "draft_max": size} if found[1] == "chain" else {"spec": "tree", "draft_nodes": size}


def slow_down(part: str) -> None:
    """Steps of the part take three times as long from now on, in all engines."""
    step = step_calls.step

    def slowed(*args: Any) -> tuple[float, float]:
        drafting, verifying = step(*args)
        extra = (SLOWER - 1.0) * (drafting if part == "draft" else verifying)
        time.sleep(extra)
        return (drafting + extra, verifying) if part == "draft" else (drafting, verifying + extra)

    step_calls.step = slowed


class Answers:
    """Speeds of one set of prompts by engine, and the sizes that auto chose."""

    def __init__(self) -> None:
        self.rates: dict[str, list[float]] = {}
        self.ratios: dict[str, list[float]] = {}
        self.sizes: Counter[str] = Counter()
        self.wrong = 0

    def add(self, results: dict[str, Any]) -> None:
        """The answers to one prompt."""
        plain = results["plain"]
        for name, result in results.items():
            self.rates.setdefault(name, []).append(result.timings.tokens_per_s)
            self.ratios.setdefault(name, []).append(result.timings.tokens_per_s / plain.timings.tokens_per_s)
            self.wrong += result.tokens != plain.tokens
        self.sizes.update(results["auto"].spec.shapes)

    def show(self, title: str) -> None:
        """Prints a table."""
        print(f"\n{title}: {self.wrong} texts differ; auto's sizes {dict(self.sizes.most_common())}")
        print("| | tok/s | ratio to plain | worst |\n|---|---|---|---|")
        for name, ratios in self.ratios.items():
            print(f"| {name} | {median(self.rates[name]):.0f} | {median(ratios):.3f} | {min(ratios):.3f} |", flush=True)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", metavar="PROMPTS.jsonl")
    parser.add_argument("--limit", type=int, default=20)
    parser.add_argument("-n", type=int, default=128)
    parser.add_argument("--temp", type=float, default=0.0)
    parser.add_argument("--filtered", action="store_true", help="llama.cpp's default filters, too, not T alone")
    parser.add_argument("--fixed", default="chain1,chain2,chain3,tree4")
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("-m", dest="target")
    parser.add_argument("-md", dest="draft")
    parser.add_argument("--slow", choices=("target", "draft"))
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def main() -> None:
    args = arguments()
    names = ["plain", "auto", *filter(None, args.fixed.split(","))]
    known = {"top_k": 40} if args.filtered else {"top_k": 0, "top_p": 1.0, "min_p": 0.0}
    found: dict[str, Answers] = {}
    with ExitStack() as stack:
        pair = (args.target, args.draft or "auto")
        engines = {name: stack.enter_context(Engine(*pair, n_ctx=2048, **options(name))) for name in names}
        for engine in engines.values():
            engine.generate("Hello", SamplingParams(temperature=0.0, max_tokens=8))
        if args.slow:
            slow_down(args.slow)
        for prompts in prompt_sets(args.files, args.limit):
            answers = found[prompts.name] = Answers()
            for turn, prompt in enumerate(list(prompts.prompts) * args.repeat):
                params = SamplingParams(temperature=args.temp, seed=turn, max_tokens=args.n, **known)
                order = names[turn % len(names) :] + names[: turn % len(names)]
                results = {name: answer(engines[name], prompt.text, params) for name in order}
                answers.add(results)
            answers.show(prompts.name)
        planner = engines["auto"].pair.planner
        print(f"\n{planner.explain() if planner else 'auto dropped its draft'}")
    if args.json:
        args.json.write_text(json.dumps({name: vars(one) for name, one in found.items()}))


def answer(engine: Engine, prompt: str, params: SamplingParams) -> Any:
    return engine.generate(engine.chat_prompt([{"role": "user", "content": prompt}]), params)


if __name__ == "__main__":
    main()
