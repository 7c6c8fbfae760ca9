#!/usr/bin/env python3
"""Builds the native code with address and undefined-behaviour sanitizers, llama.cpp included, and runs things under it.

    sanitize.py build                      only the library, in build/sanitize (ccache is used where present)
    sanitize.py tests tests/test_batch.py  pytest with these arguments; without: all tests
    sanitize.py soak --minutes 30          scripts/soak.py with these arguments
    sanitize.py run COMMAND ...            anything that loads the library: llama-eagle, a script

Options of its own come first: --leaks (memory that native code lost, printed when each process ends), --build DIR.
A report ends the process where it is in native/ or a wrong memory access; other undefined behaviour of llama.cpp is
reported and goes on, and scripts/ubsan.supp holds what is known of it. Reports of child processes count, too. The exit
status is the command's, or 1 where there was a report. Linux with GCC. The package must be installed as
CONTRIBUTING.md says, or have its declarations beside it.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COMMANDS = {
    "tests": [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
    # sanitizers keep what is freed: lost memory is found by --leaks, and by the soak without them
    "soak": [sys.executable, str(ROOT / "scripts" / "soak.py"), "--growth", "inf"],
    "run": [],
}
# frames of native code, however paths are mapped
OURS = re.compile(r"libllama_eagle|native/(eagle|llama)[-_]|llama\.cpp(-source)?/")
NO_BINDINGS = "the package's declarations cannot be imported: pip install --no-build-isolation --no-deps -e ."
OLD_BINDINGS = "are not those of native/eagle_api.h: pip install --no-build-isolation --no-deps -e . once more"


class SanitizeError(Exception):
    """What is missing, in one line."""


def build(folder: Path, jobs: int) -> None:
    """Configures and builds the library; only what changed."""
    generator = ["-G", "Ninja"] if shutil.which("ninja") else []
    configure = ["cmake", "-S", str(ROOT), "-B", str(folder), *generator]
    options = ["-DLLAMA_EAGLE_SANITIZE=ON", f"-DPython_EXECUTABLE={sys.executable}"]
    with_log = folder / "configure.log"
    folder.mkdir(parents=True, exist_ok=True)
    with with_log.open("w") as log:
        if subprocess.run([*configure, *options], stdout=log, stderr=subprocess.STDOUT, check=False).returncode:
            raise SanitizeError(f"cmake could not configure the build, see {with_log}")
    make = ["cmake", "--build", str(folder), "--target", "llama_eagle_package", "-j", str(jobs)]
    if subprocess.run(make, stdout=sys.stderr, check=False).returncode:
        raise SanitizeError("the library could not be built, see the lines above")


def preloaded() -> str:
    """The runtime that must be in the process before Python, and libstdc++, whose throw it takes over."""
    found = []
    for name in ("libasan.so", "libstdc++.so.6"):
        run = subprocess.run(["gcc", f"-print-file-name={name}"], capture_output=True, text=True, check=False)
        path = Path(run.stdout.strip())
        if not path.is_absolute():
            raise SanitizeError(f"gcc has no {name}: install its sanitizer libraries")
        found.append(str(path.resolve()))
    return " ".join(found)


def environment(folder: Path, reports: Path, leaks: bool) -> dict[str, str]:
    """What a process needs to load the library, and where it leaves its reports."""
    asan = {
        "detect_leaks": int(leaks),
        "detect_stack_use_after_return": 1,
        "strict_string_checks": 1,
        "allocator_may_return_null": 1,  # a size that cannot be had is an exception, as without sanitizers
        "log_path": reports / "address",
    }
    if leaks:
        asan["exitcode"] = 0  # Python leaves memory behind, too; the verdict is taken from the reports
    ubsan = {
        "print_stacktrace": 1,
        "suppressions": ROOT / "scripts" / "ubsan.supp",
    }
    return {
        **os.environ,
        "LLAMA_EAGLE_LIBRARY": str(folder / "lib" / "libllama_eagle.so"),
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
        "PYTHONMALLOC": "malloc",  # Python's pools would hide writes past small arrays
        "OMP_WAIT_POLICY": "passive",
        "LD_PRELOAD": preloaded(),
        "ASAN_OPTIONS": joined(asan),
        "LSAN_OPTIONS": "print_suppressions=0",
        "UBSAN_OPTIONS": joined(ubsan),
        "LLAMA_EAGLE_UNDEFINED": str(reports / "undefined"),  # read by cmake/sanitize.cpp
    }


def joined(options: dict[str, object]) -> str:
    return ":".join(f"{name}={value}" for name, value in options.items())


def check_bindings(folder: Path, env: dict[str, str]) -> None:
    """The declarations that Python finds must be those of this library."""
    code = "import llama_eagle._eagle_cffi as m; print(m.__file__)"
    run = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    if run.returncode:
        raise SanitizeError(f"{NO_BINDINGS} ({run.stderr.strip().splitlines()[-1:]})")
    found = Path(run.stdout.strip())
    if found.read_bytes() != (folder / "_eagle_cffi.py").read_bytes():
        raise SanitizeError(f"{found} {OLD_BINDINGS}")


def findings(reports: Path) -> list[str]:
    """The texts of reports that are about native code, each once."""
    texts = []
    for path in sorted(reports.iterdir()):
        text = path.read_text(encoding="utf-8", errors="replace")
        if "LeakSanitizer: detected memory leaks" in text:
            head, _, rest = text.partition("ERROR: LeakSanitizer")
            texts += [leak for leak in rest.split("\n\n") if "leak of" in leak and OURS.search(leak)]
            text = head
        if path.name.startswith("undefined"):
            texts += re.split(r"\n(?=\S+:\d+:\d+: runtime error)", text)
        else:
            texts.append(text)
    texts = [text.strip(" =\n0123456789") for text in texts]
    return list({key(text): text for text in texts if text}.values())


def key(text: str) -> str:
    """What makes two reports one: their text without addresses, process ids and values."""
    where = re.match(r"\S+:\d+:\d+: runtime error", text)
    return where[0] if where else re.sub(r"0x[0-9a-f]+|==\d+==|\d+ byte\(s\)|\d+ object\(s\)|T\d+", "", text)


def run(command: list[str], folder: Path, leaks: bool) -> int:
    """Runs a command under the library. Returns the exit status."""
    reports = folder / "reports"
    shutil.rmtree(reports, ignore_errors=True)
    reports.mkdir()
    env = environment(folder, reports, leaks)
    check_bindings(folder, env)
    code = subprocess.run(command, env=env, check=False).returncode
    found = findings(reports)
    for text in found:
        print(f"\n{text}", file=sys.stderr)
    print(f"sanitizers: {len(found)} reports, exit status of the command {code}" + (f", {reports}" if found else ""))
    return code or (1 if found else 0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--leaks", action="store_true", help="report memory that native code lost")
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "sanitize", help="the build's folder")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="compilers at once")
    parser.add_argument("what", choices=["build", *COMMANDS])
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    args = parser.parse_args()
    try:
        folder = args.build.resolve()
        build(folder, args.jobs)
        if args.what == "build":
            return 0
        return run([*COMMANDS[args.what], *args.arguments], folder, args.leaks)
    except SanitizeError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
