"""`llama-eagle convert`: arguments in, report out. The work is in ..converter."""

import argparse
import json
import sys
from typing import Any

from ..converter import convert
from ..head_file import OUTTYPES


def add_parser(subparsers: Any) -> argparse.ArgumentParser:
    """Add the `convert` command to an argparse subparsers object and return its parser."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "convert", help="make a GGUF of a draft checkpoint", description="Convert an EAGLE-3 draft checkpoint to GGUF."
    )
    parser.add_argument("checkpoint", metavar="CHECKPOINT", help="folder with config.json and safetensors")
    parser.add_argument(
        "--target", metavar="TARGET", help="the target's GGUF, whose tokenizer and sizes are taken (default: none)"
    )
    parser.add_argument("-o", "--outfile", dest="out", required=True, metavar="OUT.gguf", help="file to write")
    parser.add_argument("--outtype", default="f16", choices=tuple(OUTTYPES), help="type of matrices (default: f16)")
    parser.add_argument("--json", action="store_true", help="print the report as one JSON document (default: off)")
    return parser


def run(args: argparse.Namespace) -> int:
    """Convert, print the report, return the exit status. Raises EagleError for the caller to print."""
    report = convert(args.checkpoint, args.target, args.out, args.outtype)
    if args.json:
        print(json.dumps(report.to_json()))
        return 0
    for note in report.notes:
        print(f"note: {note}", file=sys.stderr)
    print(f"{report.out}: {report.arch}, EAGLE-{report.version}, {report.layout} layout", file=sys.stderr)
    return 0
