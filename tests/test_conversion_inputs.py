"""conversion_inputs.py: paths stay what they are, hub ids are fetched, by a stand-in for the hub here."""

from pathlib import Path

import pytest

import conversion
from llama_eagle.conversion.converter import convert
from llama_eagle.conversion.inputs import find_checkpoint, find_target, find_verifier
from llama_eagle.errors import DownloadError, InputError
from llama_eagle.hub import fetch as hub
from tiny import write_folder


@pytest.mark.parametrize("find", [find_checkpoint, find_target])
def test_an_empty_name_is_not_the_working_directory(find):
    with pytest.raises(InputError, match="is empty"):
        find("")


@pytest.fixture
def fetched(monkeypatch, tmp_path):
    """What was asked of the hub; it answers with a folder or fails for `gone/gone`."""
    asked = []

    def answer(kind):
        def fetch(name):
            asked.append((kind, name))
            if name == "gone/gone":
                raise DownloadError("no network")
            return tmp_path / kind

        return fetch

    monkeypatch.setattr(hub, "fetch_checkpoint", answer("checkpoint"))
    monkeypatch.setattr(hub, "fetch_target_config", answer("target"))
    return asked


def test_what_exists_or_is_no_id_is_a_path(fetched, tmp_path, monkeypatch):
    (tmp_path / "owner" / "name").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert find_checkpoint("owner/name") == Path("owner/name")
    assert find_target("owner/name.gguf") == Path("owner/name.gguf")
    assert find_checkpoint(Path("some/where")) == Path("some/where")
    assert find_target("/no/where") == Path("/no/where")
    assert fetched == []


def test_ids_are_fetched(fetched, tmp_path):
    assert find_checkpoint("owner/name@main") == tmp_path / "checkpoint"
    assert find_target("owner/other") == tmp_path / "target"
    assert find_verifier("owner/third") == tmp_path / "target"
    assert fetched == [("checkpoint", "owner/name@main"), ("target", "owner/other"), ("target", "owner/third")]


def test_a_verifier_that_cannot_be_had_says_what_to_give(fetched):
    with pytest.raises(InputError, match=r"gone/gone cannot be had \(no network\): give the target with --target"):
        find_verifier("gone/gone")
    with pytest.raises(InputError, match="which is not here"):
        find_verifier("C:\\models\\target")


def test_a_repository_of_ggufs_needs_no_conversion(fetched, tmp_path):
    (tmp_path / "checkpoint").write_bytes(b"GGUF")
    with pytest.raises(InputError, match="needs no conversion"):
        find_checkpoint("owner/name")


def test_a_draft_and_its_target_convert_by_id(fetched, tmp_path):
    write_folder(tmp_path / "checkpoint", conversion.config(eagle_config=None), conversion.tensors())
    conversion.write_hf_target(tmp_path / "target")
    report = convert("owner/draft", "owner/target", tmp_path / "head.gguf")
    assert report.target_layers == [2, 6, 9]
    assert fetched == [("checkpoint", "owner/draft"), ("target", "owner/target")]
