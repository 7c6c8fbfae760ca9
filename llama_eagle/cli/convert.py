"""`llama-eagle convert`: arguments in, report out. The work is in ..conversion.converter."""

import argparse
import json
import sys
from typing import Any

from ..conversion.converter import ConvertReport, convert
from ..conversion.number_format import OUTTYPES
from ..conversion.overrides import BEFORE_HEAD, FED_BACK, Overrides
from ..errors import UsageError


def add_parser(subparsers: Any) -> argparse.ArgumentParser:
    """Add the `convert` command to an argparse subparsers object and return its parser."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "convert",
        help="make a GGUF of a draft checkpoint",
        description="Convert a checkpoint of an EAGLE-1, EAGLE-2, EAGLE-3 or EAGLE-3.1 draft to GGUF.",
    )
    parser.add_argument("checkpoint", metavar="CHECKPOINT", help="folder with config.json and weights, or a hub id")
    parser.add_argument(
        "--target",
        metavar="TARGET",
        help="the target's GGUF, HF folder or hub id (default: the checkpoint's verifier, where one is needed)",
    )
    parser.add_argument("-o", "--outfile", dest="out", required=True, metavar="OUT.gguf", help="file to write")
    parser.add_argument("--outtype", default="f16", choices=tuple(OUTTYPES), help="type of matrices (default: f16)")
    parser.add_argument(
        "--target-layers",
        metavar="I,J,...",
        help="layers whose inputs are the features, in the order of fc's columns (default: by the checkpoint)",
    )
    parser.add_argument(
        "--norm-output",
        choices=(FED_BACK, BEFORE_HEAD),
        help="whether the output is fed back after the final norm, as in EAGLE-3.1 (default: by the checkpoint)",
    )
    parser.add_argument(
        "--norm-before-residual",
        choices=("yes", "no"),
        help="whether the residual is the normed feature (default: by the checkpoint)",
    )
    parser.add_argument(
        "--with-embeddings", action="store_true", help="write embeddings and head even if shared (default: off)"
    )
    parser.add_argument("--json", action="store_true", help="print the report as one JSON document (default: off)")
    return parser


def run(args: argparse.Namespace) -> int:
    """Convert, print the report, return the exit status. Raises EagleError for the caller to print."""
    report = convert(args.checkpoint, args.target, args.out, args.outtype, _overrides(args))
    if args.json:
        print(json.dumps(report.to_json()))
    else:
        _print(report)
    return 0


def _overrides(args: argparse.Namespace) -> Overrides:
    residual = None if args.norm_before_residual is None else args.norm_before_residual == "yes"
    return Overrides(_layers(args.target_layers), args.norm_output, residual, args.with_embeddings)


def _layers(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise UsageError(f"--target-layers {text!r}: expected layer numbers such as 2,18,33") from None


def _print(report: ConvertReport) -> None:
    for note in report.notes:
        print(f"note: {note}", file=sys.stderr)
    print(f"{report.out}: {report.arch}, EAGLE-{report.version}, {report.layout} layout", file=sys.stderr)
