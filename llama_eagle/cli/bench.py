"""`llama-eagle bench`: flags in, table and advice out. Opens one engine a mode; what is measured is in ..bench."""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..bench.advice import advice
from ..bench.measure import Answer, Request, measure, mode_options, parse_modes
from ..bench.prompts import PromptSet, prompt_sets
from ..bench.rows import PLAIN, Row, overall, rows, speeds
from ..bench.verdicts import Tally, audit_line, tally
from ..errors import EagleError, InputError, UsageError
from .arguments import add_some_flags
from .doctor import examine
from .interrupt import Interrupts
from .logs import follow_log
from .models import Models, choose_models
from .parser import Parser
from .settings import engine_options, refuse_what_is_missing, sampling_params

_ABOUT = (
    "Measures decoding speed with and without drafts on the same prompts in turn, and compares the texts. Without "
    "arguments: the embedded pair on a few built-in prompts. Each mode keeps a context of its own meanwhile."
)
_SHARED = {
    "model", "model_draft", "hf", "hfd", "offline", "raw", "max_tokens", "temperature", "top_k", "top_p", "min_p",
    "draft_nodes", "draft_depth", "draft_top_k", "draft_max", "draft_tree", "calibrate", "n_ctx", "n_threads",
    "gpu_layers", "n_batch", "n_ubatch", "flash_attn", "type_k", "type_v", "json", "verbose",
}  # fmt: skip
_DEFAULTS = {"max_tokens": 48, "temperature": 0.0, "n_ctx": 2048, "seed": 1}  # a seed: one text in all modes
_MACHINE = ("package", "llama.cpp", "cpu", "devices")


def add_parser(commands: Any) -> Parser:
    """Adds the `bench` command and returns its parser."""
    parser: Parser = commands.add_parser("bench", description=_ABOUT)
    add_some_flags(parser, _SHARED, **_DEFAULTS)
    group = parser.add_argument_group("measurement")
    group.add_argument(
        "--modes",
        default="plain,chain,tree,auto",
        metavar="LIST",
        help="of plain, chain, tree, static, auto; plain is always measured (default: plain,chain,tree,auto)",
    )
    group.add_argument(
        "--prompts",
        action="append",
        default=[],
        metavar="FILE.jsonl",
        help='one {"turns": ["..."]}, of which the first is asked, or {"prompt": "..."} a line; repeatable '
        "(default: a few built-in ones)",
    )
    group.add_argument("--limit", type=int, metavar="N", help="first N prompts of each file (default: all)")
    group.add_argument("--repeat", type=int, default=1, metavar="R", help="answers of each prompt (default: 1)")
    group.add_argument("--plot", metavar="FILE.png", help="write a picture; needs matplotlib (default: none)")
    return parser


def run(args: argparse.Namespace) -> int:
    """Runs the command and returns the exit status. Raises EagleError for the caller to print."""
    modes, sets = _checked(args)
    options, params = engine_options(args), sampling_params(args)
    draw = None if args.plot is None else _picture(args.plot)
    held = follow_log(args.verbose)
    with Interrupts(), ExitStack() as stack:
        engines = _open(stack, args, modes, options)
        answers = _measure(engines, sets, Request(params, args.raw), args.repeat)
        found = _audit(answers, engines) if params.temperature == 0 else Tally()
        document = _document(args, engines, answers, found)
        if draw is not None:
            planner = engines["auto"].pair.planner if "auto" in engines else None
            draw(args.plot, [answer.sample for answer in answers], None if planner is None else planner.costs)
    held.show()
    if args.json:
        print(json.dumps(document), flush=True)
    else:
        _print(document, answers, found, options)
    if found.errors:
        raise EagleError(f"{audit_line(found)}: a text is not plain decoding's; please report it with the command")
    return 0


def _checked(args: argparse.Namespace) -> tuple[tuple[str, ...], list[PromptSet]]:
    """Modes and prompts. Raises UsageError for what cannot be measured, before any model is opened."""
    refuse_what_is_missing(args)
    for flag, value, least in (("--limit", args.limit, 1), ("--repeat", args.repeat, 1)):
        if value is not None and value < least:
            raise UsageError(f"{flag} must be {least} or more, got {value}")
    if args.max_tokens in (0, 1):
        raise UsageError(
            f"-n must be 2 or more, or -1 for no limit, got {args.max_tokens}: the first token is not timed"
        )
    try:
        modes = parse_modes(args.modes)
    except InputError as error:
        raise UsageError(f"--modes {args.modes}: {error}") from error
    if args.draft_tree is not None and "static" not in modes:
        raise UsageError(f"--draft-tree {args.draft_tree} is a static shape: add static to --modes {args.modes}")
    return modes, prompt_sets(args.prompts, args.limit)


def _picture(file: str) -> Any:
    """The function that draws. Raises UsageError where the picture could not be written in the end."""
    folder = Path(file).parent
    if not folder.is_dir():
        raise UsageError(f"--plot {file}: no folder {folder}")
    if Path(file).suffix.lower() != ".png":
        raise UsageError(f"--plot {file}: the picture is a PNG, give a name that ends in .png")
    try:
        importlib.import_module("matplotlib")
    except ImportError:
        raise UsageError(f"--plot {file} needs matplotlib: pip install matplotlib") from None
    return importlib.import_module("llama_eagle.bench.picture").draw


def _open(
    stack: ExitStack, args: argparse.Namespace, modes: tuple[str, ...], options: dict[str, Any]
) -> dict[str, Any]:
    """An engine for each mode."""
    models = choose_models(args)
    if models.draft is None and modes != (PLAIN,):
        raise UsageError("no draft head for this model: give one with -md FILE or -hfd REPO, or --modes plain")
    from ..engine import Engine  # noqa: PLC0415

    return {
        mode: stack.enter_context(Engine(models.target, _draft(models, mode), **mode_options(mode, options)))
        for mode in modes
    }


def _draft(models: Models, mode: str) -> Any:
    return None if mode == PLAIN else models.draft


def _measure(engines: dict[str, Any], sets: list[PromptSet], request: Request, repeat: int) -> list[Answer]:
    from tqdm import tqdm  # noqa: PLC0415 - needed once

    total = sum(len(prompts.prompts) for prompts in sets) * repeat * len(engines)
    with tqdm(desc="answers", total=total, disable=None, leave=False, file=sys.stderr) as bar:  # None: no terminal
        return measure(engines, sets, request, repeat, bar.update)


def _audit(answers: list[Answer], engines: dict[str, Any]) -> Tally:
    from ..bench.judge import Judge  # noqa: PLC0415

    with Judge(engines[PLAIN]) as judge:
        return tally(answers, judge)


def _document(args: argparse.Namespace, engines: dict[str, Any], answers: list[Answer], found: Tally) -> dict[str, Any]:
    """What --json prints (docs/performance.md)."""
    results = [engine.result for engine in engines.values()]
    names = ("raw", "max_tokens", "temperature", "top_k", "top_p", "min_p", "n_ctx", "n_threads", "limit", "repeat")
    return {
        "machine": {check.name: check.detail for check in examine(*_MACHINE)},
        "pair": {
            "model": results[0].model,
            "draft": next((result.draft for result in results if result.draft is not None), None),
            "settings": {name: getattr(args, name) for name in names},
        },
        "rows": [asdict(row) for row in rows([answer.sample for answer in answers])],
        "audit": asdict(found),
    }


def _print(document: dict[str, Any], answers: list[Answer], found: Tally, options: dict[str, Any]) -> None:
    samples = [answer.sample for answer in answers]
    pair, plain = document["pair"], sorted(speeds(samples, PLAIN).values())
    print(f"{pair['model']}, draft {pair['draft'] or 'none'}")
    print(_table([Row(**row) for row in document["rows"]]))
    print(audit_line(found))
    print(advice(overall(samples), options, plain[len(plain) // 2]), flush=True)


def _table(lines: list[Row]) -> str:
    width = max(len("prompts"), *(len(row.prompts) for row in lines))
    shown = [f"{'prompts':{width}}  {'mode':6}  {'tok/s':>7}  {'tokens/step':>11}  {'speedup':>7}"]
    for row in lines:
        numbers = f"{row.tokens_per_s:7.1f}  {row.tokens_per_step:11.2f}  {row.speedup:6.2f}x"
        shown.append(f"{row.prompts:{width}}  {row.mode:6}  {numbers}")
    return "\n".join(shown)
