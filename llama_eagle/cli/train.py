"""`llama-eagle train`: flags in, stages' progress and a report out. The work is in ..train.run, which needs torch."""

import argparse
import importlib
import json
from pathlib import Path
from typing import Any

from ..errors import InputError, UsageError
from ..train.extra import need_torch
from ..train.plan import Plan
from .arguments import add_some_flags
from .logs import follow_log
from .parser import Parser
from .report import say

_ABOUT = (
    "Train an EAGLE-3 head for any GGUF: the target writes the texts and computes the features, and what comes out is "
    "DIR/head.gguf. Each stage can be interrupted and resumed. Needs torch: pip install 'llama-eagle[train]'."
)
_SHARED = {"model", "hf", "offline", "json", "verbose"}
_FLAGS: tuple[tuple[str, str, Any, str, str], ...] = (
    ("--tokens", "tokens", int, "N", "tokens of answers to train on"),
    ("--length", "length", int, "N", "tokens of a prompt and its answer at most"),
    ("--hours", "hours", float, "H", "hours of fitting at most; 0: as long as the epochs take"),
    ("--epochs", "epochs", int, "N", "times that fitting goes over the texts"),
    (
        "--draft-vocab",
        "draft_vocab",
        int,
        "V",
        "tokens that the head can draft; 0: what covers 99%% of the answers, or those of --init-from",
    ),
    ("--unroll", "unroll", int, "N", "most steps that the head is trained on its own outputs"),
    ("--negatives", "negatives", int, "N", "tokens of the draft vocabulary beside those of the targets, drawn anew"),
    ("--batch-rows", "batch", int, "N", "rows of a step"),
    ("--muon", "muon", float, "RATE", "highest rate of Muon, for matrices"),
    ("--adam", "adam", float, "RATE", "highest rate of AdamW, for the rest"),
    ("--disk", "disk", float, "GB", "room for features; what goes beyond is computed anew in each epoch"),
    ("--parallel", "parallel", int, "N", "answers that are written at a time"),
    ("--workers", "workers", int, "N", "processes that write them, which share the threads"),
    ("-t", "threads", int, "N", "threads of llama.cpp; 0: all processors"),
    ("--judged", "judged", int, "N", "held-out prompts that the head is judged by"),
    ("--outtype", "outtype", str, "TYPE", "type of matrices in the GGUF: f32, f16, bf16 or q8_0"),
    ("-s", "seed", int, "SEED", "seed of everything that is drawn"),
)
_LONG = {"-t": "--threads", "-s": "--seed"}
_PICTURE_NEEDS = "matplotlib"


def add_parser(commands: Any) -> Parser:
    """Adds the `train` command and returns its parser."""
    parser: Parser = commands.add_parser("train", description=_ABOUT)
    add_some_flags(parser, _SHARED, spec="off", seed=None)
    group = parser.add_argument_group("training")
    group.add_argument("-o", "--out", required=True, metavar="DIR", help="folder of the training, made if it is absent")
    group.add_argument("--resume", action="store_true", help="go on with the training in DIR (default: off)")
    group.add_argument(
        "--prompts",
        action="append",
        metavar="FILE.jsonl",
        help='{"prompt": "..."} or {"turns": ["..."]} a line; repeatable (default: the target invents prompts)',
    )
    group.add_argument(
        "--layers", metavar="I,J,...", help="layers whose inputs are the features (default: 2, n/2 and n-3 of n)"
    )
    group.add_argument(
        "--init-from", metavar="CHECKPOINT", help="head to begin with (default: the target's own last layer)"
    )
    group.add_argument("--plot", metavar="FILE.png", help="draw the log in the end; needs matplotlib (default: none)")
    defaults = Plan()
    for flag, dest, kind, metavar, text in _FLAGS:
        names = [flag, _LONG[flag]] if flag in _LONG else [flag]
        shown = f"{text} (default: {getattr(defaults, dest)})"
        group.add_argument(*names, dest=dest, type=kind, metavar=metavar, help=shown)
    return parser


def run(args: argparse.Namespace) -> int:
    """Trains and returns the exit status. Raises EagleError for the caller to print."""
    need_torch()
    given = _given(args)
    draw = None if args.plot is None else _picture(args.plot)
    held = follow_log(args.verbose)
    from ..model_files import pair_files  # noqa: PLC0415 - as below

    target = pair_files(_target(args), None, args.offline, say).target
    from ..train.run import Training  # noqa: PLC0415 - torch takes seconds

    training = Training(Path(args.out), target, given, args.resume, say)
    report = training.run()
    if report and draw is not None:
        draw(args.plot, training.folder.log)
    held.show()
    if report and args.json:
        print(json.dumps(report), flush=True)
    elif report:
        say(f"{report['out']}: the head; use it with -md {report['out']}")
    return 0


def _target(args: argparse.Namespace) -> Any:
    from .models import choose_target  # noqa: PLC0415 - the hub's client loads slowly

    return choose_target(args)


def _given(args: argparse.Namespace) -> dict[str, Any]:
    """The plan's values that were given. Raises UsageError that names the flag."""
    given = {dest: getattr(args, dest) for _, dest, *_ in _FLAGS if getattr(args, dest) is not None}
    if args.prompts:
        given["prompts"] = tuple(args.prompts)
    if args.layers is not None:
        given["layers"] = _layers(args.layers)
    if args.init_from is not None:
        given["init_from"] = args.init_from
    try:
        Plan(**given)
    except InputError as error:
        name, _, rest = str(error).partition(" ")
        flag = next((flag for flag, dest, *_ in _FLAGS if dest == name), name)
        raise UsageError(f"{flag} {rest}") from None
    return given


def _layers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise UsageError(f"--layers {text!r}: expected layer numbers such as 2,15,27") from None


def _picture(file: str) -> Any:
    """The function that draws. Raises UsageError where the picture could not be written in the end."""
    if Path(file).suffix.lower() != ".png" or not Path(file).parent.is_dir():
        raise UsageError(f"--plot {file}: give a name that ends in .png in a folder that exists")
    try:
        importlib.import_module("matplotlib")
    except ImportError:
        raise UsageError(f"--plot {file} needs matplotlib: pip install matplotlib") from None
    return importlib.import_module("llama_eagle.train.picture").draw
