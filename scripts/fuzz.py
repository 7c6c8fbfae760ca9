#!/usr/bin/env python3
"""Feeds mutated checkpoints and GGUF files to convert() and to the loader, each case in a process of its own.

Every case must end in success or in one EagleError of one line, within ten seconds of CPU time, without a partial file
left and without the old output touched. Everything else is a finding; its files are kept. Case N of a seed is always
the same: `--seed S --only N` runs it again.
"""

import argparse
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

import conversion  # noqa: E402
from llama_eagle import ffi  # noqa: E402 - opened once, before the processes of the cases are forked
from llama_eagle.conversion.converter import convert  # noqa: E402
from llama_eagle.errors import EagleError  # noqa: E402
from llama_eagle.gguf_files.check import check_gguf  # noqa: E402
from llama_eagle.model import Model  # noqa: E402
from mutations import mutate_bytes, mutate_json  # noqa: E402
from tiny import random_pair, write_folder, write_safetensors  # noqa: E402
from tiny.pickled import write_pickled  # noqa: E402

CPU_SECONDS, WALL_SECONDS, MEMORY = 10, 60, 16 << 30
FINE, OTHER_EXCEPTION, LONG_MESSAGE, NOT_WHOLE = 0, 3, 4, 5
OLD = b"what was there before"


@dataclass(frozen=True)
class Kind:
    """A kind of case: the mutated file within a copy of `folder`, and what is done with the copy."""

    folder: str
    file: str
    run: Callable[[Path], None]
    focus: int = 4000  # bytes of the header

    def mutate(self, rng: random.Random, path: Path) -> None:
        """Changes the file in place."""
        if path.suffix == ".json" and rng.random() < 0.8:
            path.write_text(mutate_json(rng, path.read_text()))
        else:
            path.write_bytes(mutate_bytes(rng, path.read_bytes(), self.focus))


def run_convert(folder: Path) -> None:
    """Converts the checkpoint in `folder`; an error must leave the old output."""
    out = folder / "out" / "head.gguf"
    out.parent.mkdir()
    out.write_bytes(OLD)
    try:
        convert(folder / "draft", folder / "target.gguf", out)
    except EagleError:
        if out.read_bytes() != OLD:
            os._exit(NOT_WHOLE)
        raise
    finally:
        if [path.name for path in out.parent.iterdir()] != [out.name]:
            os._exit(NOT_WHOLE)


def run_load(folder: Path) -> None:
    """Loads the head next to its target, as `run` does."""
    check_gguf(folder / "head.gguf")
    Model(folder / "head.gguf", target=Model(folder / "target.gguf"))


KINDS = {
    "safetensors": Kind("plain", "draft/model.safetensors", run_convert, 1600),
    "shard": Kind("shards", "draft/a.safetensors", run_convert, 1000),
    "index": Kind("shards", "draft/model.safetensors.index.json", run_convert),
    "pickle": Kind("pickle", "draft/pytorch_model.bin", run_convert, 3000),
    "directory": Kind("pickle", "draft/pytorch_model.bin", run_convert, 1 << 20),
    "config": Kind("plain", "draft/config.json", run_convert),
    "target": Kind("plain", "target.gguf", run_convert, 2000),
    "head": Kind("pair", "head.gguf", run_load, 12000),
    "loaded target": Kind("pair", "target.gguf", run_load, 12000),
}


def write_seeds(seeds: Path) -> None:
    """One folder of whole files for each arrangement."""
    weights = conversion.tensors()
    for name in ("plain", "shards", "pickle"):
        write_folder(seeds / name / "draft", conversion.config(), weights)
        conversion.write_target(seeds / name / "target.gguf")
    for name in ("shards", "pickle"):
        (seeds / name / "draft" / "model.safetensors").unlink()
    write_pickled(seeds / "pickle" / "draft" / "pytorch_model.bin", weights)
    draft, names = seeds / "shards" / "draft", list(weights)
    halves = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for file, part in halves.items():
        write_safetensors(draft / file, {name: weights[name] for name in part})
    table = {name: file for file, part in halves.items() for name in part}
    (draft / "model.safetensors.index.json").write_text(json.dumps({"weight_map": table}))
    (seeds / "pair").mkdir()
    random_pair(seeds / "pair")


def build_case(seeds: Path, folder: Path, seed: int, number: int) -> str:
    """Writes case `number` to `folder`. Returns the name of its kind."""
    rng = random.Random(f"{seed}/{number}")
    name = list(KINDS)[number % len(KINDS)]
    shutil.copytree(seeds / KINDS[name].folder, folder)
    KINDS[name].mutate(rng, folder / KINDS[name].file)
    return name


def in_child(kind: Kind, folder: Path, log: Path) -> None:
    """Runs the case and ends this process with the outcome as its code; the log holds what was said."""
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    output = os.open(log, os.O_WRONLY | os.O_CREAT)
    os.dup2(output, 1)
    os.dup2(output, 2)
    code = FINE
    try:
        kind.run(folder)
    except EagleError as error:
        os.write(2, f"{type(error).__name__}: {error}\n".encode("utf-8", "backslashreplace"))
        code = LONG_MESSAGE if len(str(error).splitlines()) != 1 or len(str(error)) > 2000 else FINE
    except BaseException:
        os.write(2, traceback.format_exc().encode("utf-8", "backslashreplace"))
        code = OTHER_EXCEPTION
    os._exit(code)


def outcome(kind: Kind, folder: Path, log: Path) -> str:
    """What became of the case: an empty text where all is well."""
    child = os.fork()
    if child == 0:
        in_child(kind, folder, log)
    deadline = time.monotonic() + WALL_SECONDS
    pid, status = os.waitpid(child, os.WNOHANG)
    while pid == 0:
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
        time.sleep(0.003)
        pid, status = os.waitpid(child, os.WNOHANG)
    if os.WIFSIGNALED(status):
        return f"ended by {signal.Signals(os.WTERMSIG(status)).name}"
    names = {OTHER_EXCEPTION: "another exception", LONG_MESSAGE: "not one line", NOT_WHOLE: "files left or changed"}
    code = os.WEXITSTATUS(status)
    return "" if code == FINE else names.get(code, f"exit code {code}")


def keep(folder: Path, log: Path, place: Path, title: str) -> None:
    """Copies a finding and says what it was."""
    shutil.copytree(folder, place, dirs_exist_ok=True)
    said = log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""
    (place / "finding.txt").write_text(f"{title}\n{said}", encoding="utf-8")
    last = said.strip().splitlines()[-1:] or [""]
    print(f"{title}: {last[0][:300]}  -> {place}", flush=True)


def fuzz(args: argparse.Namespace, work: Path) -> int:
    """Runs cases until the time is over. Returns the number of findings."""
    seeds, folder, log = work / "seeds", work / "case", work / "log"
    write_seeds(seeds)
    end = time.monotonic() + 60 * args.minutes
    done: Counter[str] = Counter()
    findings = 0
    number = args.first if args.only is None else args.only
    while time.monotonic() < end:
        name = build_case(seeds, folder, args.seed, number)
        log.unlink(missing_ok=True)
        said = outcome(KINDS[name], folder, log)
        done[name] += 1
        if said:
            findings += 1
            keep(folder, log, args.keep / f"{args.seed}-{number}", f"case {number} ({name}): {said}")
        shutil.rmtree(folder)
        if args.only is not None:
            break
        number += 1
    print(f"seed {args.seed}: {sum(done.values())} cases ({dict(done)}), {findings} findings")
    return findings


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=4.0, help="how long (default: 4)")
    parser.add_argument("--seed", type=int, default=0, help="another seed, other cases (default: 0)")
    parser.add_argument("--first", type=int, default=0, help="number of the first case (default: 0)")
    parser.add_argument("--only", type=int, help="run this case alone")
    parser.add_argument("--keep", type=Path, default=Path("fuzz-findings"), help="folder for failing files")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    print(f"native library: {ffi.native_library()}")
    with tempfile.TemporaryDirectory() as work:
        return 1 if fuzz(args, Path(work)) else 0


if __name__ == "__main__":
    sys.exit(main())
