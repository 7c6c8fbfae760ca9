"""cli/models.py: what -m, -md, -hf and -hfd choose; and a whole run against a hub on the loopback."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hub_server import HubServer, Repo
from llama_eagle.cli.command import Commands
from llama_eagle.cli.models import Models, choose_models
from llama_eagle.cli.run import add_parser
from llama_eagle.errors import DownloadError, UsageError
from llama_eagle.hub.names import HubName
from llama_eagle.model_files import PairFiles
from tiny import TinyPair, write_checkpoint


def choose(*line: str) -> Models:
    return choose_models(add_parser(Commands()).parse(line))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What pair_files is asked for; it finds t.gguf, and a draft when one is named."""
    seen: list[Any] = []

    def pair_files(target: Any, draft: Any, offline: bool, say: Any) -> PairFiles:
        seen[:] = [target, draft, offline]
        known = (SimpleNamespace(head="o/known"),) if "known" in str(target) else ()
        return PairFiles(Path("t.gguf"), None if draft in (None, "auto") else Path("d.gguf"), known)  # type: ignore[arg-type]

    monkeypatch.setattr("llama_eagle.model_files.pair_files", pair_files)
    return seen


def test_nothing_named_is_the_embedded_pair(asked: list[Any]) -> None:
    assert choose() == Models(None, "auto")
    assert choose("--spec", "off") == Models(None, None)
    assert not asked


def test_names_from_the_hub(asked: list[Any]) -> None:
    assert choose("-hf", "a/b:Q4_0", "-hfd", "c/d", "--offline") == Models(Path("t.gguf"), Path("d.gguf"))
    assert asked == [HubName("a/b", None, "Q4_0"), HubName("c/d"), True]


def test_a_head_that_is_not_wanted_is_not_fetched(asked: list[Any]) -> None:
    assert choose("-hf", "a/b", "--spec", "off") == Models(Path("t.gguf"), None)
    assert asked[1] is None


def test_a_head_for_the_embedded_target(asked: list[Any]) -> None:
    assert choose("-md", "head") == Models(None, Path("d.gguf"))
    assert asked[:2] == [None, "head"]


def test_plain_decoding_is_said_with_a_way_out(asked: list[Any]) -> None:
    assert "-md FILE" in str(choose("-m", "x.gguf").note)
    assert "-hfd o/known" in str(choose("-m", "known.gguf").note)
    assert choose("-hf", "o/known").note is None  # said before


@pytest.mark.parametrize(
    ("line", "advice"),
    [
        (["-m", ""], "-m is empty"),
        (["-hf", ""], "-hf is empty"),
        (["-hf", "name"], "OWNER/NAME"),
        (["-hfd", "a/b/c"], "OWNER/NAME"),
        (["-m", "owner/name:Q4_0"], "-hf owner/name"),
    ],
)
def test_names_that_cannot_be_one(line: list[str], advice: str) -> None:
    with pytest.raises(UsageError, match=advice):
        choose(*line)


def test_offline_needs_the_embedded_target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLAMA_EAGLE_CACHE", str(tmp_path))
    with pytest.raises(DownloadError, match="--offline"):
        choose("--offline")


@pytest.fixture
def hub() -> Iterator[HubServer]:
    server = HubServer()
    yield server
    server.close()


def run(home: Path, url: str, *line: str) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "HF_ENDPOINT": url, "HF_HOME": str(home), "LLAMA_EAGLE_CACHE": str(home / "own")}
    for name in ("HF_HUB_OFFLINE", "HF_TOKEN", "HF_HUB_CACHE"):
        environment.pop(name, None)
    command = [sys.executable, "-m", "llama_eagle", "run", "-p", "hi", "-n", "8", "-c", "512", "-t", "1"]
    command += ["--temp", "0", *line]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment, check=False)


@pytest.mark.usefixtures("requires_native")
def test_a_run_with_both_from_the_hub(hub: HubServer, tiny_good_pair: TinyPair, tmp_path: Path) -> None:
    folder = tmp_path / "head"
    write_checkpoint(folder, tiny_good_pair.head, tiny_good_pair.state)
    hub.repos["tiny/target"] = Repo({"tiny-Q8_0.gguf": tiny_good_pair.target.path.read_bytes()})
    hub.repos["tiny/head"] = Repo({file.name: file.read_bytes() for file in folder.iterdir()})
    line = ("-hf", "tiny/target", "-hfd", "tiny/head", "--spec", "tree", "--json")
    first = run(tmp_path / "home", hub.url, *line)
    assert first.returncode == 0, first.stderr
    document = json.loads(first.stdout)
    assert document["spec"]["steps"] > 0
    assert document["draft"].startswith("tiny--head-")
    assert first.stderr.startswith("converting tiny--head to ")
    assert first.stderr.count("\n") == 1
    asked = len(hub.asked)
    again = run(tmp_path / "home", hub.url, *line, "--offline")
    assert (again.returncode, again.stderr, len(hub.asked)) == (0, "", asked)
    assert json.loads(again.stdout)["tokens"] == document["tokens"]


@pytest.mark.usefixtures("requires_native")
def test_a_run_without_a_network(tmp_path: Path) -> None:
    done = run(tmp_path, "http://127.0.0.1:9", "-hf", "tiny/target")
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith("error: cannot reach http://127.0.0.1:9")
    assert done.stderr.count("\n") == 1
