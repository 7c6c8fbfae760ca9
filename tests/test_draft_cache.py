"""draft_cache.py: one conversion per content, whoever asks and however often. The converter is a function here."""

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from llama_eagle import draft_cache
from llama_eagle.errors import CheckpointError, DownloadError, ModelError
from tiny import TinyTarget


class Converter:
    """Stands in for convert(): counts its calls and writes a file."""

    def __init__(self) -> None:
        self.calls = 0
        self.error: Exception | None = None

    def __call__(self, source: Path, target: Path | None, out: Path) -> None:
        self.calls += 1
        out.write_bytes(b"half")
        if self.error:
            raise self.error
        out.write_bytes(b"whole")


def only_whole(path: Path) -> None:
    """Stands in for check_gguf()."""
    if path.read_bytes() != b"whole":
        raise ModelError(f"{path} is truncated")


@pytest.fixture
def converter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Converter:
    monkeypatch.setenv("LLAMA_EAGLE_CACHE", str(tmp_path / "cache"))
    stand_in = Converter()
    monkeypatch.setattr(draft_cache, "convert", stand_in)
    monkeypatch.setattr(draft_cache, "check_gguf", only_whole)
    return stand_in


@pytest.fixture
def head(tmp_path: Path) -> Path:
    folder = tmp_path / "my-head"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"weights")
    return folder


@pytest.fixture
def target(tiny_target: Callable[..., TinyTarget]) -> Path:
    return tiny_target("llama").path


def test_what_is_no_file_is_left_out(converter: Converter, head: Path, target: Path) -> None:
    (head / "logs.json").mkdir()
    (head / "gone.bin").symlink_to(head / "nowhere")
    if hasattr(os, "mkfifo"):  # it would be waited for
        os.mkfifo(head / "pipe.bin")
    assert draft_cache.converted(head, target).read_bytes() == b"whole"


def test_the_second_time_it_is_there(converter: Converter, head: Path, target: Path) -> None:
    said: list[str] = []
    first = draft_cache.converted(head, target, said.append)
    assert first.read_bytes() == b"whole"
    assert first.name.startswith("my-head-")
    assert len(said) == 1
    assert draft_cache.converted(head, target, said.append) == first
    assert (converter.calls, len(said)) == (1, 1)


def test_a_copy_is_the_same(converter: Converter, head: Path, target: Path) -> None:
    first = draft_cache.converted(head, target)
    os.utime(head / "model.safetensors", (1, 1))
    assert draft_cache.converted(head, target) == first
    assert converter.calls == 1


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_other_content_is_another_draft(converter: Converter, head: Path, target: Path, name: str) -> None:
    first = draft_cache.converted(head, target)
    (head / name).write_bytes(b'{"a": 1}')
    assert draft_cache.converted(head, target) != first


def test_another_target_or_converter_is_another_draft(
    converter: Converter,
    head: Path,
    target: Path,
    tiny_target: Callable[..., TinyTarget],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    paths = {draft_cache.converted(head, target), draft_cache.converted(head, tiny_target("qwen2").path)}
    paths.add(draft_cache.converted(head, None))
    monkeypatch.setattr(draft_cache, "CONVERTER", -1)
    paths.add(draft_cache.converted(head, target))
    assert len(paths) == 4


def test_a_snapshot_is_known_by_its_blobs(converter: Converter, tmp_path: Path) -> None:
    repo = tmp_path / "models--owner--head"
    folder, blobs = repo / "snapshots" / "1", repo / "blobs"
    folder.mkdir(parents=True)
    blobs.mkdir()
    for name, blob in (("config.json", "1" * 40), ("model.safetensors", "2" * 64)):
        (blobs / blob).write_bytes(b"{}")
        (folder / name).symlink_to(blobs / blob)
    path = draft_cache.converted(folder, None)
    assert path.name.startswith("owner--head-")
    assert not (tmp_path / "cache" / "hashes").exists()  # nothing had to be read


def test_a_failure_leaves_nothing(converter: Converter, head: Path, target: Path, tmp_path: Path) -> None:
    converter.error = CheckpointError("no draft")
    with pytest.raises(CheckpointError, match="no draft"):
        draft_cache.converted(head, target)
    assert list((tmp_path / "cache" / "drafts").iterdir()) == []


def test_what_is_no_checkpoint(converter: Converter, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"config\.json is missing"):
        draft_cache.converted(tmp_path, None)


def test_a_cache_that_cannot_be_written(converter: Converter, head: Path, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(DownloadError, match="LLAMA_EAGLE_CACHE"):
        draft_cache.converted(head, None)


def test_many_at_once(converter: Converter, head: Path, target: Path) -> None:
    found: list[bytes] = []
    threads = [
        threading.Thread(target=lambda: found.append(draft_cache.converted(head, target).read_bytes()))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [b"whole"] * 4


@pytest.mark.parametrize("content", [b"", b"who"])
def test_a_broken_file_is_converted_again(converter: Converter, head: Path, target: Path, content: bytes) -> None:
    out = draft_cache.converted(head, target)
    out.write_bytes(content)
    assert draft_cache.converted(head, target) == out
    assert out.read_bytes() == b"whole"
    assert converter.calls == 2
