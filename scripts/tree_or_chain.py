"""Tree against chain at equal measured cost: what a step takes, what it gives, and the best of both at each cost.

    python scripts/tree_or_chain.py costs -m TARGET -md HEAD --past 256 --states FOLDER -o COSTS.json
    python scripts/tree_or_chain.py lengths --prompts FILE.jsonl [--past 4096] [--temp 1] -o LENGTHS.json
    python scripts/tree_or_chain.py scale FEW.json MORE.json --n-layer 32 -o WHOLE.json
    python scripts/tree_or_chain.py table COSTS.json LENGTHS.json

`costs` wants an idle machine; it decodes the context before it measures and keeps it in FOLDER, so that a second run
measures at once. `lengths` counts tokens and needs no quiet. `scale` extends the costs of two slices of a model, of few
and more layers, to all its layers. `table` knows nothing of how either was measured.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from llama_eagle import Context, Engine, Model, SamplingParams
from llama_eagle.batch import Batch
from llama_eagle.bench.prompts import prompt_sets
from llama_eagle.draft import Drafter
from llama_eagle.generate import Fixed
from llama_eagle.model_files import pair_files
from llama_eagle.step_calls import verify_turns
from llama_eagle.tree import DraftTree, TreeShape
from llama_eagle.turn import Turn

SIZES = (1, 2, 3, 4, 5, 9, 17, 33)  # tokens that a step verifies
WIDTHS = (1, 2, 4, 8)  # tokens that a level of a draft decodes
DEPTH = 4  # of the drafts that a level's cost is taken from
PAIRS = 3  # that a draft catches up on in a step
PIECE = 64  # tokens of a prompt
CHAINS = [TreeShape.chain(n) for n in (1, 2, 3, 4, 5, 6, 8)]
TREES = [TreeShape(*of) for of in ((3, 2, 2), (4, 2, 2), (4, 3, 2), (6, 3, 2), (6, 4, 2), (8, 3, 4), (8, 4, 2))]
TREES += [TreeShape(*of) for of in ((12, 4, 4), (16, 5, 4), (24, 5, 4), (32, 6, 8))]
BUDGETS = (1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 4.0, 5.0)  # plain steps


def seconds_of(actions: dict[str, Callable[[], None]], repeat: int) -> dict[str, float]:
    """Medians; the actions take turns, and a first round finds cold caches."""
    times: dict[str, list[float]] = {name: [] for name in actions}
    for _ in range(repeat + 1):
        for name, action in actions.items():
            start = time.perf_counter()
            action()
            times[name].append(time.perf_counter() - start)
    return {name: median(values[1:]) for name, values in times.items()}


def filled(context: Context, file: Path | None, fill: Callable[[], None]) -> None:
    """Gives a context its tokens: from a file that an earlier run left, or by decoding them."""
    if file is not None and file.exists():
        context.set_state(file.read_bytes())
        return
    fill()
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(context.state())


def verifications(target: Context, past: int, rng: np.random.Generator) -> dict[str, Callable[[], None]]:
    """Steps over a root and random nodes, binary trees: all but the drafting."""
    actions: dict[str, Callable[[], None]] = {}
    for size in SIZES:
        tokens = rng.permutation(target.model.info.n_vocab - 3)[:size] + 3
        parents = [node // 2 - 1 for node in range(size - 1)]
        tree = DraftTree.from_lists(int(tokens[0]), tokens[1:].tolist(), parents)

        def step(tree: DraftTree = tree) -> None:
            turn = Turn(0)
            turn.give(tree)
            verify_turns(target, [turn])
            target.seq_rm(0, past)

        actions[f"verify {size}"] = step
    return actions


def drafts(drafter: Drafter, past: int, features: np.ndarray) -> dict[str, Callable[[], None]]:
    """Drafts of one level and of DEPTH levels of each width, each behind PAIRS new tokens."""
    words = list(range(100, 100 + PAIRS))

    def grow(shape: TreeShape) -> None:
        drafter.rewind(past - PAIRS)
        drafter.observe(words, features)
        drafter.grow(99, shape)

    actions: dict[str, Callable[[], None]] = {"draft": partial(grow, TreeShape.chain(1))}
    for width in WIDTHS:
        actions[f"draft {width}"] = partial(grow, TreeShape(width * DEPTH, DEPTH, width))
    return actions


def prepare(target: Context, drafter: Drafter, past: int, files: tuple[Path, Path] | None) -> None:
    """Random tokens in both caches, random features of the layers in the draft's."""
    rng = np.random.default_rng(0)
    tokens = rng.integers(3, target.model.info.n_vocab, past)

    def decode() -> None:
        for first in range(0, past, target.n_batch):
            target.decode(Batch(tokens[first : first + target.n_batch]))

    def follow() -> None:
        for first in range(0, past, 512):
            part = tokens[first : first + 512]
            drafter.observe(
                part.tolist(), rng.standard_normal((len(part), drafter.context.feature_width), dtype=np.float32)
            )
            drafter.catch_up()

    filled(target, files and files[0], decode)
    filled(drafter.context, files and files[1], follow)


def prompts_of(target: Context, drafter: Drafter, past: int, rng: np.random.Generator) -> dict[str, Callable[[], None]]:
    """A piece of a prompt, for the target and for the draft that follows it."""
    tokens = rng.integers(3, target.model.info.n_vocab, PIECE)
    features = rng.standard_normal((PIECE, drafter.context.feature_width), dtype=np.float32)

    def decode() -> None:
        target.decode(Batch(tokens))
        target.seq_rm(0, past)

    def follow() -> None:
        drafter.rewind(past - PAIRS)
        drafter.observe(tokens.tolist(), features)
        drafter.catch_up()

    return {"prompt target": decode, "prompt draft": follow}


def costs(args: argparse.Namespace) -> dict[str, Any]:
    """Milliseconds at one context: verify[n]; first: a draft's first level with its catching up; level[width];
    prompt: PIECE tokens of a prompt. cell_bytes: what both caches grow by with each token.
    """
    files = pair_files(args.model, args.draft)
    if files.draft is None:
        raise SystemExit("error: no draft head for this model: give one with -md")
    model = Model(files.target)
    head = Model(files.draft, target=model)
    past, rng = args.past, np.random.default_rng(1)
    stem = f"{files.target.stem}-{files.draft.stem}-{past}"
    kept = args.states and (args.states / f"{stem}.target", args.states / f"{stem}.draft")
    with Context(model, head.info.features, n_ctx=past + 256) as target, Context(head, n_ctx=past + 256) as small:
        drafter = Drafter(small)
        prepare(target, drafter, past, kept)
        grown = {"target": len(target.state()) / past, "draft": len(small.state()) / max(small.n_past(), 1)}
        features = rng.standard_normal((PAIRS, small.feature_width), dtype=np.float32)
        actions = {**verifications(target, past, rng), **drafts(drafter, past, features)}
        actions |= prompts_of(target, drafter, past, rng)
        ms = {name: 1000 * value for name, value in seconds_of(actions, args.repeat).items()}
    level = {width: max(ms[f"draft {width}"] - ms["draft"], 0.0) / (DEPTH - 1) for width in WIDTHS}
    found = {"verify": {size: ms[f"verify {size}"] for size in SIZES}, "first": ms["draft"], "level": level}
    found["prompt"] = {"target": ms["prompt target"], "draft": ms["prompt draft"]}
    return {"model": files.target.stem, "head": files.draft.stem, "past": past, "cell_bytes": grown, **found}


def long_prefix(engine: Engine, files: list[str], tokens: int) -> str:
    """About so many tokens of other questions, the last of the files, to stand in front of the one that is answered."""
    text, used = "", 0
    for prompt in reversed([prompt for one in prompt_sets(files) for prompt in one.prompts]):
        if used >= tokens:
            break
        text += f"Question: {prompt.text}\n\n"
        used += len(engine.pair.model.tokenize(prompt.text)) + 4
    return text and f"{text}Answer this question only: "


def lengths(args: argparse.Namespace) -> dict[str, Any]:
    """Tokens a step of all shapes over a few prompts, first turns, at one temperature and about one context."""
    prompts = [prompt for one in prompt_sets(args.prompts, args.limit) for prompt in one.prompts]
    rows = []
    options = {"spec": "tree", "draft_depth": 8, "draft_top_k": 8, "n_ctx": args.past + args.n + 1024}
    with Engine(args.model, args.draft, **options) as engine:
        before = long_prefix(engine, args.prompts, args.past)
        for shape in [*CHAINS, *TREES]:
            engine.loop.policy = Fixed(shape)
            steps = emitted = 0
            for seed, prompt in enumerate(prompts):
                params = SamplingParams(temperature=args.temp, seed=seed, max_tokens=args.n)
                for _ in engine.chat([{"role": "user", "content": before + prompt.text}], params):
                    pass
                for of_drafts in engine.result.spec.drafts_by_position.values():
                    steps, emitted = steps + of_drafts[0], emitted + of_drafts[1]
            rows.append([shape.nodes, shape.depth, shape.top_k, emitted / max(steps, 1)])
            print(rows[-1], steps, file=sys.stderr, flush=True)
        name = engine.pair.model.path.stem
    return {"model": name, "past": args.past, "temp": args.temp, "rows": rows}


def scaled(few: dict[str, Any], more: dict[str, Any], n_layer: int, layers: list[int]) -> dict[str, Any]:
    """The costs of a whole model from those of two slices: linear in the layers; drafts as in the larger slice."""
    share = (n_layer - layers[0]) / (layers[1] - layers[0])
    verify = {size: value + share * (more["verify"][size] - value) for size, value in few["verify"].items()}
    kept = {name: value for name, value in more.items() if name not in ("prompt", "cell_bytes")}  # the slice's own
    return {**kept, "model": f"{more['model']} scaled to {n_layer} layers", "verify": verify}


def between(measured: dict[str, float], place: int) -> float:
    """Linear between measured sizes, and as between the two largest beyond them."""
    sizes = sorted(int(size) for size in measured)
    ms = [measured[str(size)] for size in sizes]
    slope = (ms[-1] - ms[-2]) / (sizes[-1] - sizes[-2])
    return float(np.interp(place, sizes, ms)) + max(place - sizes[-1], 0) * slope


def step_ms(cost: dict[str, Any], nodes: int, depth: int, width: int) -> float:
    """Milliseconds of a step with such a tree."""
    levels: float = cost["first"] + (depth - 1) * between(cost["level"], min(width, nodes))
    return between(cost["verify"], nodes + 1) + levels


Choice = tuple[float, float, str]  # tokens a step, cost in plain steps, name


def choices(cost: dict[str, Any], rows: list[list[float]]) -> tuple[list[Choice], list[Choice]]:
    """Chains and trees with their lengths and costs."""
    plain = cost["verify"]["1"]
    found: tuple[list[Choice], list[Choice]] = ([], [])
    for nodes, depth, width, length in rows:
        chain = width == 1
        name = f"chain {nodes:g}" if chain else f"tree {nodes:g} (depth {depth:g}, top {width:g})"
        found[not chain].append((length, step_ms(cost, int(nodes), int(depth), int(width)) / plain, name))
    return found


def table(cost: dict[str, Any], length: dict[str, Any]) -> str:
    """Markdown: for each budget the chain and the tree that give most, then the fastest of both."""
    chains, trees = choices(cost, length["rows"])
    context = f"{cost['model']}, context {cost['past']}, temperature {length['temp']:g}"
    lines = [
        f"{context}, lengths of {length['model']} behind {length['past']} tokens",
        "",
        "| a step may cost, plain steps | chain | tokens a step | tree | tokens a step |",
        "|---|---|---|---|---|",
    ]
    for budget in BUDGETS:
        best = [max((one for one in kind if one[1] <= budget), default=None) for kind in (chains, trees)]
        cells = [f"{one[2]} | {one[0]:.2f}" if one else "none | 1.00" for one in best]
        lines.append(f"| {budget:g} | {cells[0]} | {cells[1]} |")
    fastest = [max(kind, key=lambda one: one[0] / one[1]) for kind in (chains, trees)]
    (chain, tree) = ((one[0] / one[1], one) for one in fastest)
    needed = chain[0] * tree[1][1]
    told = [f"{one[2]}, {one[0]:.2f} tokens for {one[1]:.2f} steps, {speed:.2f}x plain" for speed, one in (chain, tree)]
    lines += ["", f"Fastest: {told[0]}; {told[1]}, which would need {needed:.2f} tokens to equal the chain."]
    return "\n".join(lines)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    kinds = parser.add_subparsers(dest="what", required=True)
    for name in ("costs", "lengths"):
        one = kinds.add_parser(name)
        one.add_argument("-m", dest="model")
        one.add_argument("-md", dest="draft", default="auto")
        one.add_argument("--past", type=int, default=256 if name == "costs" else 0, help="tokens of context")
        if name == "costs":
            one.add_argument("--states", type=Path, help="folder that keeps decoded contexts")
            one.add_argument("--repeat", type=int, default=7)
        else:
            one.add_argument("--prompts", action="append", default=[])
            one.add_argument("--limit", type=int, default=3, help="prompts a file")
            one.add_argument("-n", type=int, default=96)
            one.add_argument("--temp", type=float, default=0.0)
        one.add_argument("-o", dest="out", type=Path)
    scale = kinds.add_parser("scale")
    scale.add_argument("files", nargs=2, type=Path, metavar="COSTS.json")
    scale.add_argument("--layers", default="8,16", help="of both slices")
    scale.add_argument("--n-layer", type=int, required=True)
    scale.add_argument("-o", dest="out", type=Path)
    kinds.add_parser("table").add_argument("files", nargs=2, type=Path, metavar="FILE.json")
    return parser.parse_args()


def main() -> int:
    args = arguments()
    if args.what in ("costs", "lengths"):
        found = (costs if args.what == "costs" else lengths)(args)
    else:
        first, second = (json.loads(path.read_text("utf-8")) for path in args.files)
        if args.what == "table":
            print(table(first, second))
            return 0
        found = scaled(first, second, args.n_layer, [int(count) for count in args.layers.split(",")])
    text = json.dumps(found, indent=1)
    if args.out:
        args.out.write_text(text + "\n", "utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
