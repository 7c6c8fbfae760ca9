"""model_files.py against a hub on the loopback: paths, folders and ids become files; known heads are found and said."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hub_server import HubServer, Repo
from llama_eagle import draft_cache, embedded, model_files
from llama_eagle.errors import InputError, ModelError
from llama_eagle.hub.known_heads import EAGLE, KnownHead
from llama_eagle.hub.names import HubName
from llama_eagle.model_files import draft_file, pair_files
from tiny import TinyTarget

CHECKPOINT = {"config.json": b"{}", "model.safetensors": b"weights"}


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    server = HubServer()
    monkeypatch.setenv("HF_ENDPOINT", server.url)
    monkeypatch.setenv("LLAMA_EAGLE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(draft_cache, "convert", lambda source, target, out: out.write_bytes(b"converted"))
    yield server
    server.close()


@pytest.fixture
def target(tiny_target: Callable[..., TinyTarget]) -> Path:
    return tiny_target("llama").path


def serve_target(hub: HubServer, target: Path) -> None:
    hub.repos["o/m"] = Repo({"m-Q8_0.gguf": target.read_bytes()})


def test_paths_stay_what_they_are(hub: HubServer, target: Path, tmp_path: Path) -> None:
    head = tmp_path / "head.gguf"
    head.touch()
    files = pair_files(str(target), str(head))
    assert (files.target, files.draft, files.known) == (target, head, ())
    assert pair_files(target, None).draft is None
    assert pair_files(target, "auto").draft is None
    assert not hub.asked


@pytest.mark.parametrize("name", [False, 1, b"x", [], ""])
def test_what_is_no_name_is_refused(hub: HubServer, target: Path, name: Any) -> None:
    with pytest.raises(InputError, match="names no model"):
        pair_files(target, name)
    with pytest.raises(InputError, match="names no model"):
        pair_files(name, None)


def test_nothing_is_fetched_for_a_target_that_is_not_there(hub: HubServer, tmp_path: Path) -> None:
    hub.repos["o/h"] = Repo(CHECKPOINT)
    for target in (tmp_path / "none.gguf", "x" * 5000):
        with pytest.raises(ModelError, match="no such model file"):
            pair_files(target, "o/h")
    with pytest.raises(ModelError, match="no such file or folder"):
        draft_file("x" * 5000, None)
    assert not hub.asked


def test_a_folder_is_converted(target: Path, tmp_path: Path, hub: HubServer) -> None:
    folder = tmp_path / "head"
    folder.mkdir()
    for name, body in CHECKPOINT.items():
        (folder / name).write_bytes(body)
    said: list[str] = []
    path = pair_files(target, str(folder), say=said.append).draft
    assert path is not None
    assert path.read_bytes() == b"converted"
    assert said[0].startswith("converting head")


def test_ids_for_both(hub: HubServer, target: Path) -> None:
    serve_target(hub, target)
    hub.repos["o/head"] = Repo(CHECKPOINT)
    files = pair_files("o/m:Q8_0", "o/head")
    assert files.draft is not None
    assert (files.target.name, files.draft.read_bytes()) == ("m-Q8_0.gguf", b"converted")


def test_a_head_that_is_nowhere(target: Path) -> None:
    with pytest.raises(ModelError, match="OWNER/NAME"):
        pair_files(target, "no-such-head")


def test_the_embedded_pair(monkeypatch: pytest.MonkeyPatch, target: Path) -> None:
    monkeypatch.setattr(model_files, "target_path", lambda: target)
    assert pair_files(None, "auto").draft == embedded.head_path()
    assert pair_files(None, None) == model_files.PairFiles(target, None)


def known(monkeypatch: pytest.MonkeyPatch) -> None:
    row = KnownHead("o/m", "o/head", EAGLE)
    monkeypatch.setattr(model_files, "heads_for", lambda name, bases=(): [row] if name in ("o/m", "tiny llama") else [])


def test_a_known_head_is_said_and_fetched(hub: HubServer, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known(monkeypatch)
    serve_target(hub, target)
    hub.repos["o/head"] = Repo(CHECKPOINT, ["license:mit"])
    monkeypatch.setattr(model_files, "_refuse_misfit", lambda draft, target: None)
    said: list[str] = []
    files = pair_files(HubName("o/m"), "auto", say=said.append)
    assert files.draft is not None
    assert all(word in said[0] for word in ("o/head", "0 MB", "mit", EAGLE.address))


@pytest.mark.parametrize("there", [False, True])  # True: it is no head, only what the stand-in writes
def test_a_known_head_must_not_keep_the_target_away(
    hub: HubServer, target: Path, monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    known(monkeypatch)
    serve_target(hub, target)
    if there:
        hub.repos["o/head"] = Repo(CHECKPOINT)
    said: list[str] = []
    files = pair_files(HubName("o/m"), "auto", say=said.append)
    assert (files.draft, len(files.known)) == (None, 1)
    assert "cannot be used, decoding is plain" in said[-1]


def test_a_known_head_of_a_local_file_is_not_fetched(
    hub: HubServer, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_files, "heads_for", lambda name, bases=(): [KnownHead(name, "o/head", EAGLE)])
    files = pair_files(target, "auto")
    assert (files.draft, [row.head for row in files.known]) == (None, ["o/head"])
    assert not hub.asked
    assert model_files.heads_of_file(target.parent) == []


def test_the_embedded_target_given_by_path(target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_files, "TARGET_BYTES", target.stat().st_size)
    monkeypatch.setattr(model_files, "TARGET_NAME", target.name)
    assert pair_files(target, "auto").draft == embedded.head_path()
    assert pair_files(target, None).draft is None
    monkeypatch.setattr(model_files, "TARGET_BYTES", 1)
    assert pair_files(target, "auto").draft is None
