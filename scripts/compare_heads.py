"""Heads of one target against each other: what is accepted at each depth, tokens a step, and what auto gains.

    python scripts/compare_heads.py PROMPTS.jsonl... --head embedded --head NEW.gguf [--limit 20] [-n 128] [-m TARGET]
        [--no-speed]

Greedy and at temperature 1, the first turn of evenly spaced prompts of each set. Tokens a step are counted with many
texts at a time; speed is that of auto over plain decoding of the same prompt, one text at a time, all heads and plain
decoding in turns.
"""

import argparse
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from statistics import median

from llama_eagle import Engine, Model, Result, SamplingParams
from llama_eagle.bench.prompts import prompt_sets
from llama_eagle.embedded import head_path, target_path
from llama_eagle.train.evaluate import TEMPERATURES, evaluate
from llama_eagle.train.example import Text
from llama_eagle.train.source import Chat

N_CTX = 1536  # tokens of a text
PARALLEL = 10  # texts whose tokens are counted at a time


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", metavar="PROMPTS.jsonl")
    parser.add_argument("--head", action="append", type=Path, required=True, help="a head's GGUF; repeatable")
    parser.add_argument("-m", dest="target", type=Path, help="(default: the embedded target)")
    parser.add_argument("--limit", type=int, default=20)
    parser.add_argument("-n", type=int, default=128)
    parser.add_argument("--no-speed", action="store_true")
    return parser.parse_args()


def words(file: str, limit: int) -> list[str]:
    """Evenly spaced prompts of a file."""
    found = [prompt.text for prompt in prompt_sets([file])[0].prompts]
    return found[:: max(len(found) // limit, 1)][:limit]


def show_tokens(title: str, heads: Sequence[Path], texts: Sequence[Text], args: argparse.Namespace) -> None:
    """Of each head, mode and temperature: tokens a step, and what was accepted at each depth."""
    print(f"\n{title}\n\n| head | drafts | temperature | tokens a step | accepted by depth |\n|---|---|---|---|---|")
    options = {"n_parallel": PARALLEL, "n_ctx": PARALLEL * N_CTX}
    for number, head in enumerate(heads, 1):
        for gain in evaluate(args.target, head, texts, options):
            rates = " ".join(f"{rate:.3f}" for rate in gain.accept_by_depth)
            print(
                f"| {number} | {gain.mode} | {gain.temperature:g} | {gain.tokens_per_step:.2f} | {rates} |", flush=True
            )


def show_speed(title: str, heads: Sequence[Path], prompts: Sequence[str], args: argparse.Namespace) -> None:
    """Of each head and temperature: the median of auto's speed over plain decoding."""
    print(f"\n{title}: auto to plain decoding\n\n| head | temperature | median | worst | texts that differ |")
    print("|---|---|---|---|---|")
    with ExitStack() as stack:
        plain = stack.enter_context(Engine(args.target, spec="off", n_ctx=N_CTX))
        engines = [plain, *(stack.enter_context(Engine(args.target, head, n_ctx=N_CTX)) for head in heads)]
        for temperature in TEMPERATURES:
            params = SamplingParams(temperature=temperature, top_k=0, top_p=1.0, min_p=0.0, max_tokens=args.n)
            found = [_in_turns(engines, turn, prompt, params) for turn, prompt in enumerate(prompts)]
            for number in range(1, len(engines)):
                ratios = [one[number].timings.tokens_per_s / one[0].timings.tokens_per_s for one in found]
                differ = sum(one[number].tokens != one[0].tokens for one in found)
                print(
                    f"| {number} | {temperature:g} | {median(ratios):.3f} | {min(ratios):.3f} | {differ} |", flush=True
                )


def _in_turns(engines: Sequence[Engine], turn: int, prompt: str, params: SamplingParams) -> list[Result]:
    """The answers of all engines to one prompt, in the engines' order; another one begins each turn."""
    first = turn % len(engines)
    order = [*range(first, len(engines)), *range(first)]
    seeded = replace(params, seed=turn)
    found = {
        i: engines[i].generate(engines[i].chat_prompt([{"role": "user", "content": prompt}]), seeded) for i in order
    }
    return [found[i] for i in range(len(engines))]


def main() -> None:
    args = arguments()
    args.target = args.target or target_path()
    args.head = [head_path() if str(head) == "embedded" else head for head in args.head]
    for number, head in enumerate(args.head, 1):
        print(f"head {number}: {head}")
    for file in args.files:
        prompts = words(file, args.limit)
        with Model(args.target) as model:
            chat = Chat.of(model)
            texts = [Text(tuple(chat.asked(prompt)), (0,) * args.n) for prompt in prompts]
        show_tokens(Path(file).stem, args.head, texts, args)
        if not args.no_speed:
            show_speed(Path(file).stem, args.head, prompts, args)


if __name__ == "__main__":
    main()
