"""Builds and runs llama.cpp's own tests on the patched tree: once for every change of a patch.

    python scripts/llama_cpp_tests.py WORKTREE BUILD_DIR [--only NAME]...

WORKTREE is what `patches.py apply WORKTREE --git` makes. Prints one line a test; exit status 1 when one fails.
"""

import argparse
import subprocess
import sys
import time
from pathlib import Path

NATIVE = Path(__file__).resolve().parents[1] / "native"

# name -> arguments; backend-ops in part: the operations that the patched graphs add or feed
TESTS = {
    "test-batch-alloc": [],
    "test-llama-archs": [],
    "test-sampling": [],
    "test-backend-sampler": [],
    "test-rope": [],
    "test-gguf": [],
    "test-backend-ops": ["test", "-b", "CPU", "-o", "GET_ROWS,SET_ROWS,SOFT_MAX,FLASH_ATTN_EXT"],
}


def configure(worktree: Path, build: Path) -> None:
    """Configures a build of the tests alone."""
    options = [
        "LLAMA_BUILD_TESTS=ON",
        "LLAMA_BUILD_TOOLS=OFF",
        "LLAMA_BUILD_EXAMPLES=OFF",
        "LLAMA_BUILD_SERVER=OFF",
        "LLAMA_CURL=OFF",
    ]
    flags = [f"-D{option}" for option in options]
    command = [
        "cmake",
        "-S",
        worktree,
        "-B",
        build,
        "-G",
        "Ninja",
        "-DCMAKE_BUILD_TYPE=Release",
        f"-DCMAKE_CXX_FLAGS=-I{NATIVE}",
        *flags,
    ]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def run(build: Path, name: str) -> bool:
    """Runs one test and prints its line."""
    start = time.perf_counter()
    log = build / f"{name}.log"
    with log.open("w") as out:
        code = subprocess.run(
            [build / "bin" / name, *TESTS[name]], stdout=out, stderr=subprocess.STDOUT, check=False
        ).returncode
    print(
        f"{name}: {'passed' if code == 0 else f'FAILED with {code}, see {log}'} ({time.perf_counter() - start:.0f} s)",
        flush=True,
    )
    return code == 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("worktree", type=Path)
    parser.add_argument("build", type=Path)
    parser.add_argument("--only", action="append", choices=list(TESTS), help="run only this test (repeatable)")
    args = parser.parse_args()
    names = args.only or list(TESTS)
    configure(args.worktree.resolve(), args.build.resolve())
    subprocess.run(["cmake", "--build", args.build, "--target", *names], check=True)
    passed = [run(args.build.resolve(), name) for name in names]
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
