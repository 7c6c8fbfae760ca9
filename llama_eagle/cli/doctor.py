"""`llama-eagle doctor`: what works on this machine. Asks every part in turn; a line says what is missing, none fails.

Fetches nothing and decodes nothing.
"""

import argparse
import importlib
import json
import os
import platform
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .logs import follow_log
from .parser import Parser

OK, MISSING = "ok", "missing"


@dataclass(frozen=True)
class Check:
    """One line of the report."""

    name: str
    status: str
    detail: str


def add_parser(commands: Any) -> Parser:
    """Adds the `doctor` command and returns its parser."""
    parser: Parser = commands.add_parser(
        "doctor", description="Says what works on this machine, for a report. Fetches nothing."
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document (default: off)")
    return parser


def run(args: argparse.Namespace) -> int:
    """Prints the report; the exit status is 0 whatever is missing."""
    follow_log(False)  # what llama.cpp says of a failed load is in the check's line
    checks = examine()
    if args.json:
        print(json.dumps({"checks": [asdict(check) for check in checks]}))
        return 0
    width = max(len(check.name) for check in checks)
    for check in checks:
        print(f"{check.status:8}{check.name:{width + 2}}{check.detail}")
    return 0


def examine(*names: str) -> list[Check]:
    """The checks of these names, all of them without any; each stands alone."""
    return [_try(name, _CHECKS[name]) for name in names or _CHECKS]


def _try(name: str, look: Callable[[], str]) -> Check:
    try:
        return Check(name, OK, " ".join(look().split()))
    except Exception as error:  # whatever is broken, the other lines are wanted all the same
        return Check(name, MISSING, " ".join(f"{error or type(error).__name__}".split()))


def _package() -> str:
    from .. import __version__  # noqa: PLC0415

    return f"llama-eagle {__version__}, Python {platform.python_version()}, {platform.platform()}"


def _pin() -> str:
    try:
        build: Any = importlib.import_module("llama_eagle._build")
    except ImportError:
        return "unknown: this build recorded neither llama.cpp's commit nor its patches"
    patches = build.PATCHES
    listed = patches if isinstance(patches, str) else ", ".join(patches)
    return f"commit {build.LLAMA_CPP_COMMIT}, patches: {listed or 'none'}"


def _library() -> str:
    from ..ffi import C, native_library  # noqa: PLC0415

    C.eagle_llama_cpp  # noqa: B018  (opens it)
    return str(native_library())


def _features() -> str:
    from ..context import default_threads  # noqa: PLC0415
    from ..ffi import C, ffi  # noqa: PLC0415

    features = ffi.string(C.eagle_llama_cpp()).decode("utf-8", "replace")
    return f"{default_threads()} processors; {features}"


def _devices() -> str:
    from ..devices import devices  # noqa: PLC0415

    found = devices()
    if not found:
        raise LookupError("no backend has a device: the build has no CPU backend or cannot load it")
    return "; ".join(_device(device) for device in found)


def _device(device: Any) -> str:
    memory = f", {device.free / 2**30:.1f} of {device.total / 2**30:.1f} GiB free" if device.total else ""
    return f"{device.name}: {device.description} ({device.kind}{memory})"


def _cache() -> str:
    from ..cache import cache_dir  # noqa: PLC0415

    path = cache_dir()
    there = next(p for p in (path, *path.parents) if p.exists())
    if not os.access(there, os.W_OK):
        raise PermissionError(f"{path} cannot be written")
    return f"{path}{'' if path.is_dir() else ' (made when needed)'}"


def _target_path() -> Path:
    from ..cache import is_intact  # noqa: PLC0415
    from ..embedded import TARGET_SHA256, target_file  # noqa: PLC0415

    path = target_file()
    if not path.exists():
        raise LookupError(f"{path} is not fetched yet: `llama-eagle run` does it")
    if not is_intact(path, TARGET_SHA256):
        raise LookupError(f"{path} is broken: `llama-eagle run` fetches it again")
    return path


def _target() -> str:
    return _file(_target_path())


def _head() -> str:
    from ..embedded import head_path  # noqa: PLC0415

    return _file(head_path())


def _file(path: Path) -> str:
    return f"{path} ({path.stat().st_size / 2**20:.0f} MiB)"


def _fit() -> str:
    from ..embedded import head_path  # noqa: PLC0415
    from ..model import Model  # noqa: PLC0415

    with Model(_target_path(), gpu_layers=0) as target, Model(head_path(), target=target, gpu_layers=0) as head:
        if not head.info.is_draft:
            raise LookupError(f"{head.path} is no draft head")
        return f"the head reads layers {', '.join(map(str, head.info.features))} of {target.path.name}"


_CHECKS: dict[str, Callable[[], str]] = {
    "package": _package,
    "llama.cpp": _pin,
    "library": _library,
    "cpu": _features,
    "devices": _devices,
    "cache": _cache,
    "target": _target,
    "head": _head,
    "head fits": _fit,
}
