"""Checks and measures llama-eagle on a machine with an NVIDIA GPU that can be reached with small transfers only.

    python scripts/gpu_check.py pack OUT [--part-mib 40] [--add WHEELS]...    here: parts, a list, and what unpacks them
    python OUT/gpu_check.py unpack OUT DEST                                   there, as often as parts arrive
    python DEST/checkout/scripts/gpu_check.py run DEST [--steps build,tests,models,measure] [--out FILE.json]

run builds for the machine's GPU (or takes --library), runs the tests marked `gpu`, writes random models in an 8B's
shapes with a head, and measures them and the embedded pair with CUDA graphs on and off. What is not done within
--minutes is stopped and said; FILE.json holds what was found so far. --device cpu --quick goes the same way anywhere.
Python packages that are missing there come as wheels, `pip install --target DEST/extra/site`.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gpu_pack

STEPS = ("build", "tests", "models", "measure")
QUICK_SHAPE = "--n-layer 6 --n-embd 256 --n-ff 512 --n-head 4 --n-head-kv 2 --head-dim 64 --n-vocab 50000".split()
TYPES = ("f16", "q4_k_m")
SHAPE = "llama3-8b"
DRAFT_VOCAB = 32000


class Check:
    """A run: its settings, what it found, and how much time is left."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args, self.dest = args, args.dest.absolute()
        self.end = time.monotonic() + 60 * args.minutes
        self.out = args.out or self.dest / "gpu_check.json"
        self.found: dict[str, Any] = json.loads(self.out.read_text("utf-8")) if self.out.is_file() else {}
        self.found["device"] = args.device

    @property
    def native_library(self) -> Path:
        """The library that is checked."""
        given: Path = self.args.given or self.dest / "build" / "lib" / "libllama_eagle.so"
        return given.absolute()

    def keep(self, name: str, value: Any) -> None:
        """Adds to what was found and writes it down at once."""
        self.found[name] = value
        self.out.write_text(json.dumps(self.found, indent=1) + "\n", "utf-8")
        print(f"{name}: {value if isinstance(value, str) else json.dumps(value)[:400]}", flush=True)

    def python(self, *line: Any, **extra: str) -> "tuple[int, str]":
        """Runs Python on the unpacked checkout; the exit status, and the output with what went wrong behind it."""
        checkout, cuda = self.dest / "checkout", self.dest / "cuda-toolkit" / "lib"
        paths = [str(checkout), *map(str, sorted((self.dest / "extra").glob("site*")))]
        env = os.environ | {
            "PYTHONPATH": os.pathsep.join([*paths, os.environ.get("PYTHONPATH", "")]),
            "LD_LIBRARY_PATH": os.pathsep.join([str(cuda), os.environ.get("LD_LIBRARY_PATH", "")]),
            "LLAMA_EAGLE_LIBRARY": str(self.native_library),
            "LLAMA_EAGLE_CACHE": str(self.dest / "cache"),
            **extra,
        }
        left = max(self.end - time.monotonic(), 1)
        command = [sys.executable, *map(str, line)]
        try:
            done = subprocess.run(
                command, cwd=checkout, env=env, capture_output=True, text=True, timeout=left, check=False
            )
        except subprocess.TimeoutExpired:
            return 124, f"stopped: {self.args.minutes:g} minutes are over"
        return done.returncode, done.stdout if done.returncode == 0 else f"{done.stdout[-1500:]}\n{done.stderr[-1500:]}"


def build(check: Check) -> None:
    """The library, unless one was given, and the declarations for Python."""
    import gpu_build  # noqa: PLC0415 - unpack runs without it

    start = time.monotonic()
    try:
        if not check.args.given:
            gpu_build.build(check.dest, check.args.device, (check.end - start) / 60)
        status, text = check.python("native/build_ffi.py", check.dest / "checkout" / "llama_eagle" / "_eagle_cffi.py")
        failed = text.strip() if status else ""
    except gpu_build.BuildError as error:
        failed = str(error)
    check.keep("build", f"failed: {failed}" if failed else f"{time.monotonic() - start:.0f} s")
    if failed:
        raise SystemExit(1)


def tests(check: Check) -> None:
    """The tests marked gpu."""
    few = ["-k", "head64-llama or drafting or memory"] if check.args.quick else []
    dry = {"LLAMA_EAGLE_GPU_DRY_RUN": "1"} if check.args.device == "cpu" else {}
    line = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "gpu", "tests", *few]
    status, text = check.python(*line, **dry)
    check.keep("tests", {"status": status, "output": text[-3000:].splitlines()})


def models(check: Check) -> None:
    """Random targets in an 8B's shapes and a head for both."""
    folder = check.dest / "models"
    folder.mkdir(exist_ok=True)
    shape = QUICK_SHAPE if check.args.quick else []
    for kind in TYPES:
        line = ["scripts/random_target.py", SHAPE, "--type", kind, *shape, "-o", _target(folder, kind)]
        _kept(check, f"model {kind}", _target(folder, kind), *line)
    draft_vocab = 4096 if check.args.quick else DRAFT_VOCAB
    target, checkpoint = _target(folder, TYPES[-1]), folder / "checkpoint"
    line = ["scripts/random_head.py", "specforge", "-m", target, "-o", checkpoint, "--draft-vocab", draft_vocab]
    _kept(check, "checkpoint", checkpoint, *line)
    line = ["-m", "llama_eagle", "convert", checkpoint, "--target", target, "-o", _head(folder), "--outtype", "f16"]
    _kept(check, "head", _head(folder), *line)


def _kept(check: Check, name: str, path: Path, *line: Any) -> None:
    if not path.exists():
        start = time.monotonic()
        status, text = check.python(*line)
        check.keep(name, f"{time.monotonic() - start:.0f} s" if status == 0 else f"failed: {text.strip()}")


def measure(check: Check) -> None:
    """The embedded pair and the random ones, with CUDA graphs and without."""
    folder, quick = check.dest / "models", ["--quick", "--repeat", "2"] if check.args.quick else []
    pairs: dict[str, list[Any]] = {"embedded": []}
    pairs |= {f"{SHAPE} {kind}": ["-m", _target(folder, kind), "-md", _head(folder)] for kind in TYPES}
    for name, models_of in pairs.items():
        for graphs in ("on", "off"):
            extra = {} if graphs == "on" else {"GGML_CUDA_DISABLE_GRAPHS": "1"}
            status, text = check.python("scripts/gpu_measure.py", *models_of, *quick, **extra)
            key = f"measure {name}, CUDA graphs {graphs}"
            check.keep(key, json.loads(text.splitlines()[-1]) if status == 0 else f"failed: {text.strip()}")


def _target(folder: Path, kind: str) -> Path:
    return folder / f"{SHAPE}-{kind}.gguf"


def _head(folder: Path) -> Path:
    return folder / f"{SHAPE}-head-f16.gguf"


RUN: dict[str, Callable[[Check], None]] = {"build": build, "tests": tests, "models": models, "measure": measure}


def pack(args: argparse.Namespace) -> int:
    """Makes the parts."""
    from llama_eagle.embedded import target_path  # noqa: PLC0415 - unpack runs without it

    parts = gpu_pack.pack_all(args.out, args.target or target_path(), args.add, args.part_mib << 20)
    for path in (gpu_pack.__file__, __file__):
        shutil.copy(path, args.out)
    print(f"{args.out}: {len(parts)} parts, {sum(path.stat().st_size for path in parts) / 2**20:.0f} MiB")
    return 0


def unpack(args: argparse.Namespace) -> int:
    """Takes in what has arrived."""
    try:
        missing = gpu_pack.unpack(args.parts, args.dest)
    except gpu_pack.PackError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"still missing: {', '.join(missing)}" if missing else f"{args.dest} is complete")
    return 0


def run(args: argparse.Namespace) -> int:
    """Runs the steps; the exit status is 1 where one failed."""
    check = Check(args)
    for name in args.steps.split(","):
        RUN[name](check)
    failed = [name for name, value in check.found.items() if isinstance(value, str) and value.startswith("failed")]
    if check.found.get("tests", {"status": 0})["status"] != 0:
        failed.append("tests")
    print(f"failed: {', '.join(failed)}" if failed else f"all done: {check.out}")
    return 1 if failed else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    packing = commands.add_parser("pack")
    packing.set_defaults(do=pack)
    packing.add_argument("out", type=Path)
    packing.add_argument("--part-mib", type=int, default=40)
    packing.add_argument("--target", type=Path, help="the embedded target's file, if it is not to be fetched")
    packing.add_argument(
        "--add", type=Path, action="append", default=[], help="a file or folder: it comes to DEST/extra/"
    )
    unpacking = commands.add_parser("unpack")
    unpacking.set_defaults(do=unpack)
    unpacking.add_argument("parts", type=Path)
    unpacking.add_argument("dest", type=Path)
    running = commands.add_parser("run")
    running.set_defaults(do=run)
    running.add_argument("dest", type=Path)
    running.add_argument("--steps", default=",".join(STEPS))
    running.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    running.add_argument("--library", dest="given", type=Path, help="a library built elsewhere")
    running.add_argument("--minutes", type=float, default=9.0)
    running.add_argument("--quick", action="store_true", help="small models, few sizes: does everything run?")
    running.add_argument("--out", type=Path)
    args = parser.parse_args()
    if unknown := set(getattr(args, "steps", "build").split(",")) - set(STEPS):
        parser.error(f"--steps {', '.join(sorted(unknown))}: known are {', '.join(STEPS)}")
    return int(args.do(args))


if __name__ == "__main__":
    sys.exit(main())
