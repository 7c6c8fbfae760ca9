"""From flags to what the engine takes. Refuses, in one line, what is not there yet. Loads no model."""

import argparse
from itertools import combinations
from pathlib import Path
from typing import Any

from ..errors import InputError, UsageError
from .arguments import GROUPS

_GRAMMARS = ("grammar", "grammar_file", "json_schema", "json_schema_file")
_EITHER = {("model", "hf"): "name the same model", ("model_draft", "hfd"): "name the same model"} | dict.fromkeys(
    combinations(_GRAMMARS, 2), "say what the answer may be"
)
_FLAG_OF = {flag.dest: flag.names.split()[0] for flags in GROUPS.values() for flag in flags}


def refuse_what_is_missing(args: argparse.Namespace) -> None:
    """Raises UsageError for a flag whose feature is not there yet, and for flags that contradict each other."""
    if args.gpu_layers_draft not in (None, args.gpu_layers):
        raise UsageError(f"-ngld {args.gpu_layers_draft} is not there yet: the head follows -ngl {args.gpu_layers}")
    for (one, other), both in _EITHER.items():
        if getattr(args, one) is not None and getattr(args, other) is not None:
            raise UsageError(f"{_FLAG_OF[one]} and {_FLAG_OF[other]} {both}: leave one of them out")
    if args.prompt is not None and args.file is not None:
        raise UsageError("-p and -f both give a prompt: leave one of them out")
    if args.raw:
        for dest in ("system", "template"):
            if getattr(args, dest) is not None:
                raise UsageError(f"{_FLAG_OF[dest]} needs the chat template, --raw goes without: leave one of them out")


def engine_options(args: argparse.Namespace) -> dict[str, Any]:
    """Keyword arguments of Engine, checked. Raises UsageError that names the flag."""
    from ..options import EngineOptions  # noqa: PLC0415

    given = {name: getattr(args, name, None) for name in EngineOptions.__dataclass_fields__}
    options = {name: value for name, value in given.items() if value is not None}
    try:
        EngineOptions.of(**options)
    except InputError as error:
        raise UsageError(_in_flags(error)) from error
    return options


def sampling_params(args: argparse.Namespace) -> Any:
    """SamplingParams of the flags. Raises UsageError that names the flag."""
    from ..sampling import SamplingParams  # noqa: PLC0415

    values = {name: getattr(args, name) for name in SamplingParams.__dataclass_fields__ if hasattr(args, name)}
    values["stop"] = tuple(args.stop)
    values["logit_bias"] = tuple(args.logit_bias)
    values["temperature"] = max(args.temperature, 0.0)  # as llama.cpp does
    for dest in ("grammar", "json_schema"):
        if getattr(args, f"{dest}_file") is not None:
            values[dest] = _read(f"{dest}_file", getattr(args, f"{dest}_file"))
    try:
        return SamplingParams(**values)
    except InputError as error:
        raise UsageError(_in_flags(error)) from error


def _read(dest: str, name: str) -> str:
    try:
        return Path(name).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UsageError(f"{_FLAG_OF[dest]} {name}: {reason}") from error


def _in_flags(error: InputError) -> str:
    """The message with the option's name, its first word, replaced by the flag."""
    name, _, rest = str(error).partition(" ")
    return f"{_FLAG_OF.get(name, name)} {rest}"
