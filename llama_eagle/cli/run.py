"""`llama-eagle run`: answers one prompt, or hands over to the chat. Arguments in, exit status out."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import DownloadError, UsageError
from .arguments import add_flags
from .chat import chat
from .interrupt import INTERRUPTED, Interrupts
from .logs import Held, follow_log
from .parser import Parser
from .prompt import read_prompt
from .session import Session
from .settings import draft_of, engine_options, refuse_what_is_missing, sampling_params

if TYPE_CHECKING:
    from ..result import Piece, Result

_ABOUT = (
    "Answers a prompt, or chats when there is none and a person is at the terminal. Without -m it is a small "
    "model with its draft head (SmolLM2-135M-Instruct, fetched once)."
)


def add_parser(commands: Any) -> Parser:
    """Adds the `run` command and returns its parser."""
    parser: Parser = commands.add_parser("run", description=_ABOUT)
    return add_flags(parser)


def run(args: argparse.Namespace) -> int:
    """Runs the command and returns the exit status. Raises EagleError for the caller to print."""
    refuse_what_is_missing(args)
    options, params, draft = engine_options(args), sampling_params(args), draft_of(args)
    prompt = read_prompt(args)
    if prompt is None:
        _check_chat(args)
    held = follow_log(args.verbose)
    with Interrupts() as interrupts:
        engine = _open(args, draft, options)
        with engine:
            _prepare(engine, args, held)
            reports = bool(args.verbose or (sys.stderr is not None and sys.stderr.isatty()))
            session = Session(engine, params, interrupts, reports, _colors(args))
            if prompt is None:
                held.show()
                return chat(session, args.system, args.single_turn)
            status = _answer(session, args, prompt)
    if status == 0:
        held.show()
    return status


def _check_chat(args: argparse.Namespace) -> None:
    for dest, flag in (("json", "--json"), ("raw", "--raw")):
        if getattr(args, dest):
            raise UsageError(f"{flag} needs a prompt, it makes no chat: give -p TEXT, -f FILE or a pipe")


def _colors(args: argparse.Namespace) -> bool:
    return args.color == "on" or (args.color == "auto" and sys.stdout is not None and sys.stdout.isatty())


def _open(args: argparse.Namespace, draft: str | None, options: dict[str, Any]) -> Any:
    from ..engine import Engine  # noqa: PLC0415

    if args.model is None and args.offline:
        _need_target()
    return Engine(args.model, draft, **options)


def _need_target() -> None:
    """Raises DownloadError unless the embedded target was fetched before."""
    from ..cache import is_intact  # noqa: PLC0415
    from ..embedded import TARGET_SHA256, target_file  # noqa: PLC0415

    if not is_intact(target_file(), TARGET_SHA256):
        raise DownloadError(f"--offline, and the model is not at {target_file()} yet: fetch it once without --offline")


def _prepare(engine: Any, args: argparse.Namespace, held: Held) -> None:
    """Sets the given chat template, and keeps notes about what the person may not expect."""
    if args.template is not None:
        engine.use_template(_template_source(args.template))
    if args.model is not None and args.model_draft is None and args.spec != "off":
        held.keep("note: no draft head for this model, decoding is plain: give one with -md FILE, or --spec off")
    trained = engine.pair.model.info.n_ctx_train
    if args.n_ctx > trained > 0:
        held.keep(f"note: -c {args.n_ctx} is more than the {trained} tokens that the model was trained with")


def _template_source(path: str) -> str:
    try:
        return Path(path).read_text("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"--chat-template-file {path} is not UTF-8 text (byte {error.start})") from error


def _answer(session: Session, args: argparse.Namespace, prompt: str) -> int:
    printer = session.printer()
    show = (lambda piece: None) if args.json else printer
    try:
        result = _result(session, args, prompt, show)
    finally:
        printer.end()
    if session.interrupts.stopped:
        return INTERRUPTED
    if args.json:
        print(json.dumps(result.as_dict()), flush=True)
    session.report(result)
    return 0


def _result(session: Session, args: argparse.Namespace, prompt: str, show: Callable[[Piece], None]) -> Result:
    if args.raw:
        return session.complete(prompt, show)
    system = [] if args.system is None else [{"role": "system", "content": args.system}]
    return session.chat([*system, {"role": "user", "content": prompt}], show)
