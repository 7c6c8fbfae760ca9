"""Builds llama.cpp's own programs from the pin: unpatched but for the AMX barrier, without which they crash on AMX.

Compiled as the package compiles its patched copy: Release, static, for this machine, with what CMAKE_ARGS adds.
"""

import os
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PROGRAMS = ("llama-completion", "llama-speculative-simple")
BARRIER = "0001-*.patch"
OPTIONS = {
    "CMAKE_BUILD_TYPE": "Release",
    "BUILD_SHARED_LIBS": "OFF",
    "GGML_NATIVE": "ON",
    "LLAMA_BUILD_TOOLS": "ON",
    "LLAMA_BUILD_EXAMPLES": "ON",
    "LLAMA_BUILD_TESTS": "OFF",
    "LLAMA_BUILD_SERVER": "OFF",
    "LLAMA_BUILD_APP": "OFF",
    "LLAMA_BUILD_UI": "OFF",
    "LLAMA_CURL": "OFF",
    "LLAMA_OPENSSL": "OFF",
}


def build(work: Path, jobs: int) -> Path:
    """The folder with the programs, below `work`; what is there already is not made again."""
    source, target = work / "llama.cpp", work / "build"
    if not source.exists():
        _unpack(source)
    # the package's own flags come last, so that they win over ours
    flags = [f"-D{name}={value}" for name, value in OPTIONS.items()] + shlex.split(os.environ.get("CMAKE_ARGS", ""))
    subprocess.run(["cmake", "-S", source, "-B", target, *flags], check=True, stdout=sys.stderr)
    command = ["cmake", "--build", target, "--parallel", str(jobs), "--target", *PROGRAMS]
    subprocess.run(command, check=True, stdout=sys.stderr)
    return target / "bin"


def programs(folder: Path) -> Path:
    """The same folder. Raises SystemExit where a program is missing."""
    missing = [name for name in PROGRAMS if not (folder / name).is_file()]
    if missing:
        raise SystemExit(f"error: {folder} has no {' and no '.join(missing)}: leave --programs out to build them")
    return folder


def _unpack(source: Path) -> None:
    sys.path.insert(0, str(ROOT / "scripts"))
    from fetch_llama_cpp import obtain, read_pin  # noqa: PLC0415
    from patch_series import apply_patch  # noqa: PLC0415

    fresh = source.with_suffix(".new")  # so that a broken attempt is not taken for the source
    obtain(read_pin(), os.environ.get("LLAMA_EAGLE_LLAMA_CPP", ""), fresh, everything=True)
    (barrier,) = (ROOT / "patches").glob(BARRIER)
    fault = apply_patch(barrier, fresh)
    if fault:
        raise SystemExit(f"error: {barrier.name} does not apply: {fault}")
    fresh.rename(source)
