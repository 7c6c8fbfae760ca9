"""Ours against llama.cpp's own programs: same files, same prompts, greedy, in turn prompt by prompt.

    python bench/peer_llama_cpp.py PROMPTS.jsonl... [--limit 20] [-n 128] [-m TARGET -md HEAD] [--json OUT.json]

Upstream: plain decoding over flash attention and threads, and its chain of EAGLE-3 drafts for n-max 1 to 8, p-min 0 and
0.4 and flash attention on and off. All of them answer the first few prompts of each set, the fastest ones answer all,
and the best of these is chosen afterwards. Prints ratios; writes every answer's figures.

An upstream program loads its model for each answer. That is not timed, but a run mostly waits for it: 36 settings on 2
prompts and 5 on 20 are 172 loads a set.
"""

import argparse
import json
import os
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path
from statistics import median

from llama_eagle import Engine, SamplingParams
from llama_eagle.bench.measure import Answer, Request, measure, mode_options, parse_modes
from llama_eagle.bench.prompts import Prompt, PromptSet, prompt_sets
from llama_eagle.bench.rows import Sample, ratios, speeds
from llama_eagle.model_files import pair_files
from peer_build import build, programs
from peer_upstream import Config, Upstream

PLAINS = 2  # settings of plain decoding that answer all prompts


def arguments() -> argparse.Namespace:
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", metavar="PROMPTS.jsonl")
    parser.add_argument("--limit", type=int, default=20)
    parser.add_argument("--search", type=int, default=2, help="prompts a set that all of upstream's settings answer")
    parser.add_argument("--keep", type=int, default=3, help="chains that answer all prompts")
    parser.add_argument("-n", type=int, default=128)
    parser.add_argument("-c", type=int, default=2048)
    parser.add_argument("-m", dest="model")
    parser.add_argument("-md", dest="draft", default="auto")
    parser.add_argument("--modes", default="plain,auto", help="ours")
    parser.add_argument("--n-max", default="1,2,3,4,5,6,7,8")
    parser.add_argument("--p-min", default="0,0.4")
    parser.add_argument("--flash-attn", default="on,off", help="upstream's")
    parser.add_argument("--threads", default=",".join(map(str, sorted({max(processors // 2, 1), processors}))))
    parser.add_argument("--programs", type=Path, help="folder with upstream's programs (default: they are built)")
    parser.add_argument("--work", type=Path, default=Path("build/peer"), help="where they are built")
    parser.add_argument("--jobs", type=int, default=processors)
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


class Peers:
    """Both sides, ready to answer; `ours` are engines by mode."""

    def __init__(self, upstream: Upstream, ours: dict[str, Engine], params: SamplingParams, folder: Path) -> None:
        self.upstream, self.ours, self.request, self.file = upstream, ours, Request(params), folder / "prompt.txt"

    def theirs(self, config: Config, prompts: str, index: int, prompt: Prompt) -> Sample:
        """Upstream's answer. Raises SystemExit where it understood another prompt than our engines."""
        self.file.write_text(rendered(self.ours["plain"], prompt) + "\n", "utf-8")  # one line end is dropped
        found = self.upstream.answer(config, self.file)
        wanted = len(self.ours["plain"].chat_prompt([{"role": "user", "content": prompt.text}]))
        if found.prompt_tokens != wanted:
            raise SystemExit(
                f"error: {prompt.where} has {wanted} tokens for us, {found.prompt_tokens} for {config.name}"
            )
        return Sample(prompts, index, 0, config.name, found.tokens_per_s, found.steps, found.emitted)

    def our_own(self, prompts: str, index: int, prompt: Prompt) -> list[Sample]:
        """Our answers in all modes."""
        answers = measure(self.ours, [PromptSet(prompts, (prompt,))], self.request, 1, lambda: None)
        return [replace(a.sample, index=index, tokens_per_s=of_steps(a)) for a in answers]


def of_steps(answer: Answer) -> float:
    """Tokens a second without the first one, which the prefill gives: upstream's programs do not count it either."""
    return answer.sample.tokens_per_s * answer.sample.emitted / len(answer.text.tokens)


def rendered(engine: Engine, prompt: Prompt) -> str:
    """The prompt as our engine reads it, without the start token that llama.cpp adds by itself."""
    text = engine.template.render([{"role": "user", "content": prompt.text}], add_generation_prompt=True)
    model = engine.pair.model
    start = b"".join(model.piece(token, special=True) for token in model.tokenize(""))
    return text.removeprefix(start.decode("utf-8", "replace"))


def search(peers: Peers, prompts: PromptSet, args: argparse.Namespace) -> tuple[list[Config], list[Sample]]:
    """Upstream's fastest settings on a set's first prompts, and the answers; chains with the best threads of plain."""
    found: list[Sample] = []

    def fastest(configs: list[Config], count: int) -> list[Config]:
        for index, prompt in enumerate(prompts.prompts[: args.search]):
            found.extend(peers.theirs(config, prompts.name, index, prompt) for config in configs)
        return sorted(configs, key=lambda config: -median(speeds(found, config.name).values()))[:count]

    attention = args.flash_attn.split(",")
    plain = fastest([Config(fa, int(t)) for fa, t in product(attention, args.threads.split(","))], PLAINS)
    settings = product(attention, args.n_max.split(","), args.p_min.split(","))
    chains = fastest([Config(fa, plain[0].threads, int(n), float(p)) for fa, n, p in settings], args.keep)
    print(f"{prompts.name}: {', '.join(config.name for config in plain + chains)}", file=sys.stderr, flush=True)
    return plain + chains, found


def run(peers: Peers, prompts: PromptSet, configs: list[Config]) -> list[Sample]:
    """Both sides' answers to a set, one prompt after the other."""
    samples: list[Sample] = []
    for index, prompt in enumerate(prompts.prompts):
        samples += peers.our_own(prompts.name, index, prompt)
        samples += [peers.theirs(config, prompts.name, index, prompt) for config in configs]
        print(f"{index + 1} of {len(prompts.prompts)} prompts", file=sys.stderr, flush=True)
    return samples


def summary(samples: list[Sample]) -> list[dict[str, object]]:
    """For each set: upstream's best plain and best chain by median speed, ours, and median ratios prompt by prompt."""
    res = []
    for name in dict.fromkeys(sample.prompts for sample in samples):
        of_set = [sample for sample in samples if sample.prompts == name]
        rates = {mode: median(speeds(of_set, mode).values()) for mode in dict.fromkeys(s.mode for s in of_set)}
        theirs = {mode: rate for mode, rate in rates.items() if " " in mode}
        best = {
            "plain": max((mode for mode in theirs if mode.startswith("plain ")), key=lambda mode: theirs[mode]),
            "chain": max((mode for mode in theirs if mode.startswith("chain ")), key=lambda mode: theirs[mode]),
            "everything": max(theirs, key=lambda mode: theirs[mode]),
        }
        gains = {
            mode: {what: median(ratios(of_set, mode, base).values()) for what, base in best.items()}
            for mode in rates
            if mode not in theirs
        }
        res.append({"prompts": name, "tokens_per_s": rates, "best": best, "ratios": gains})
    return res


def show(rows: list[dict[str, object]]) -> None:
    for row in rows:
        rates, best, gains = row["tokens_per_s"], row["best"], row["ratios"]
        assert isinstance(rates, dict)
        assert isinstance(best, dict)
        assert isinstance(gains, dict)
        print(row["prompts"])
        for what in ("plain", "chain"):
            print(f"  upstream's best {what}: {best[what]}, {rates[best[what]]:.1f} tok/s")
        for mode, ratio in gains.items():
            against = ", ".join(f"{value:.2f}x its best {what}" for what, value in ratio.items())
            print(f"  ours, {mode}: {rates[mode]:.1f} tok/s, {against}")


def main() -> int:
    args = arguments()
    sets = prompt_sets(args.files, args.limit)
    files = pair_files(args.model, args.draft)
    if files.draft is None:
        raise SystemExit("error: no draft head for this model: give one with -md")
    folder = programs(args.programs) if args.programs else build(args.work, args.jobs)
    upstream = Upstream(folder, files.target, files.draft, args.c, args.n)
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        ours = {
            mode: stack.enter_context(Engine(files.target, files.draft, **mode_options(mode, {"n_ctx": args.c})))
            for mode in parse_modes(args.modes)
        }
        peers = Peers(upstream, ours, SamplingParams(temperature=0, max_tokens=args.n), scratch)
        searched, samples = [], []
        for prompts in sets:
            configs, first = search(peers, prompts, args)
            searched += first
            samples += run(peers, prompts, configs)
    rows = summary(samples)
    show(rows)
    if args.json:
        commands = [upstream.command(config, Path("PROMPT")) for config in (Config("on", 1), Config("on", 1, 3))]
        answers = {"search": [asdict(sample) for sample in searched], "samples": [asdict(sample) for sample in samples]}
        document = {"commands": commands, "summary": rows, **answers}
        args.json.write_text(json.dumps(document, indent=1) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
