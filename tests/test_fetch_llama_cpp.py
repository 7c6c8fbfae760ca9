"""How pip is asked for the source of llama.cpp, and what is said when it fails."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import fetch_llama_cpp
from fetch_llama_cpp import SourceError, read_pin


@pytest.fixture
def pip_says(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """pip_says(text, found): pip fails with a text, the build backend being there or not; returns pip's arguments."""

    def run(text: str, found: object) -> list[str]:
        seen: list[str] = []

        def fail(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
            seen.extend(command)
            return subprocess.CompletedProcess(command, 1, "", text)

        monkeypatch.setattr(fetch_llama_cpp, "find_spec", lambda name: found)
        monkeypatch.setattr(fetch_llama_cpp.subprocess, "run", fail)
        return seen

    return run


@pytest.mark.parametrize("found", [None, "a spec"])
def test_pip_fetches_the_build_backend_where_it_is_absent(
    found: object, pip_says: Callable[..., list[str]], tmp_path: Path
) -> None:
    command = pip_says("", found)
    with pytest.raises(SourceError, match="says nothing"):
        fetch_llama_cpp.pip_download(read_pin(), tmp_path)
    assert ("--no-build-isolation" in command) == (found is not None)
    assert "--require-hashes" in command
    assert ":all:" not in command  # it would have the backend itself built


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("WARNING: retrying\nERROR: No matching distribution found\nERROR: more\n", "No matching distribution found"),
        (
            "Traceback (most recent call last):\n  File x\nModuleNotFoundError: No module named 'y'\n",
            "No module named 'y'",
        ),
        ("python: No module named pip\n", "No module named pip"),
    ],
)
def test_a_failed_download_is_one_line(
    text: str, words: str, pip_says: Callable[..., list[str]], tmp_path: Path
) -> None:
    pip_says(text, None)
    with pytest.raises(SourceError, match=f"{words}; without pip: give a checkout") as caught:
        fetch_llama_cpp.pip_download(read_pin(), tmp_path)
    assert "\n" not in str(caught.value)
    assert "Traceback" not in str(caught.value)
