"""`llama-eagle run`: answers one prompt, or hands over to the chat. Arguments in, exit status out."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UsageError
from .arguments import add_flags
from .chat import chat
from .interrupt import Interrupts
from .leave import INTERRUPTED
from .logs import Held, follow_log
from .models import Models, choose_models
from .parser import Parser
from .prompt import read_prompt
from .session import Session
from .settings import engine_options, refuse_what_is_missing, sampling_params

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
    options, params = engine_options(args), sampling_params(args)
    prompt = read_prompt(args)
    if prompt is None:
        _check_chat(args)
    held = follow_log(args.verbose)
    with Interrupts() as interrupts:
        engine, models = _open(args, options)
        with engine:
            _prepare(engine, args, models, held)
            reports = bool(args.verbose or (sys.stderr is not None and sys.stderr.isatty()))
            session = Session(engine, params, interrupts, reports, _colors(args), args.verbose)
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


def _open(args: argparse.Namespace, options: dict[str, Any]) -> tuple[Any, Models]:
    models = choose_models(args)
    from ..engine import Engine  # noqa: PLC0415

    return Engine(models.target, models.draft, **options), models


def _prepare(engine: Any, args: argparse.Namespace, models: Models, held: Held) -> None:
    """Sets the given chat template, and keeps notes about what the person may not expect."""
    if args.template is not None:
        engine.use_template(_template_source(args.template))
    if models.note is not None:
        held.keep(models.note)
    for text in (engine.pair.gpu_note, engine.pair.rollback_memory):
        if text:
            held.keep(f"note: {text}")
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
