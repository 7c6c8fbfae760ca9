"""cli/inspect.py and its report: heads, targets and checkpoints described, a pair's fit as exit status."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import conversion
from llama_eagle.cli import main
from tiny import random_head, write_folder, write_head_gguf

KEYS = {
    *("file", "kind", "name", "arch", "version", "layout", "sizes", "context", "features", "feature_rule"),
    *("target_hidden", "vocabulary", "rope", "switches", "choices", "shares", "leftovers"),
    *("target", "fits", "problems", "notes"),
}
SHAPE = replace(conversion.SHAPE, n_vocab=272, n_draft_vocab=192)  # the tiny tokenizer's smallest round size


@pytest.fixture
def head(tmp_path: Path) -> str:
    return str(write_head_gguf(tmp_path / "head.gguf", SHAPE, random_head(SHAPE)))


@pytest.fixture
def target(tiny_target) -> str:
    return str(tiny_target("llama", n_embd=conversion.HIDDEN, n_layer=conversion.LAYERS, n_head=2, n_head_kv=1).path)


@pytest.fixture
def inspect(capsys):
    """inspect(arguments) -> (exit status, document)"""

    def call(*argv: str) -> tuple[int, dict[str, Any]]:
        status = main(["inspect", *argv, "--json"])
        return status, json.loads(capsys.readouterr().out)

    return call


def test_a_head_alone(inspect, head):
    status, document = inspect(head)
    assert status == 0
    assert set(document) == KEYS
    assert (document["kind"], document["arch"], document["version"]) == ("draft", "eagle3", "3")
    assert document["fits"] is document["target"] is None
    assert document["features"][0] == {"id": 2, "meaning": "input of layer 2"}
    assert document["vocabulary"] == {"size": 272, "tokenizer": "gpt2", "pre": "gpt-2", "draft": 192, "mapped": True}
    assert document["problems"] == []


def test_a_pair(inspect, head, target):
    status, document = inspect(head, "-m", target)
    assert (status, document["fits"], document["problems"]) == (0, True, [])
    assert document["target"] == Path(target).name


def test_no_pair(inspect, head, tmp_path):
    other = conversion.write_target(tmp_path / "other.gguf", vocab=300)
    status, document = inspect(head, "-m", str(other))
    assert (status, document["fits"]) == (1, False)
    assert "vocabulary of 272 tokens, the target has 300" in document["problems"][0]


def test_equal_sizes_and_other_words(inspect, head, tmp_path):
    other = conversion.write_target(tmp_path / "other.gguf", vocab=272)
    status, document = inspect(head, "-m", str(other))
    assert status == 1
    assert "token 0 is" in document["problems"][0]
    assert "'token0' for the target" in document["problems"][0]


def test_a_target(inspect, target):
    status, document = inspect(target)
    assert (status, document["kind"], document["fits"]) == (0, "target", None)
    assert (document["sizes"]["layers"], document["sizes"]["hidden"]) == (conversion.LAYERS, conversion.HIDDEN)
    assert document["vocabulary"]["size"] == 272
    assert "llama-eagle convert" in document["notes"][0]


def test_a_target_is_no_draft_of_another(inspect, target):
    status, document = inspect(target, "-m", target)
    assert (status, document["fits"]) == (1, False)
    assert "is no draft head (llama)" in document["problems"][0]


def test_a_target_that_cannot_be_one_says_so(inspect, tmp_path):
    _, document = inspect(str(conversion.write_target(tmp_path / "t.gguf", arch="plamo2")))
    assert "does not give the inputs of its layers" in document["notes"][0]


def test_a_name_does_not_steer_the_terminal(capsys, tmp_path):
    folder = write_folder(tmp_path / "a\x1b[2J\nb", conversion.config(), conversion.tensors())
    assert main(["inspect", str(folder)]) == 0
    assert capsys.readouterr().out.startswith("a?[2J?b: an EAGLE-3 draft head")
    assert main(["inspect", str(tmp_path / "gone\x1b[2J")]) == 1
    assert "\x1b" not in capsys.readouterr().err


def test_for_a_person(capsys, head, target):
    assert main(["inspect", head, "-m", target]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("tiny eagle3 0: an EAGLE-3 draft head (eagle3)\n")
    assert "  rope       base 500, scaling default\n" in out
    assert "input of layer 2; input of layer 6; input of layer 9, 32 numbers each" in out
    assert f"fits       {Path(target).name}: yes" in out
    assert err == ""
    assert main(["inspect", head, "-m", head]) == 1
    assert "problem: head.gguf is itself a draft (eagle3)" in capsys.readouterr().out
    assert main(["inspect", target]) == 0
    assert ": a target (llama)\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "words"),
    [("", "is neither"), ("nowhere.gguf", "is neither"), ("a b", "is neither"), ("/dev/null", "device or pipe")],
)
def test_what_is_not_there(capsys, name, words):
    assert main(["inspect", name]) == 1
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert any(word in err for word in words.split("|"))


@pytest.mark.parametrize("cut", [0, 4, 100, 5000])
def test_a_broken_file_is_one_line(capsys, head, target, cut):
    Path(head).write_bytes(Path(head).read_bytes()[:cut])
    assert main(["inspect", head, "-m", target, "--json"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"error: cannot load {head}: it ")
    assert err.count("\n") == 1


@pytest.mark.parametrize("cut", [100, -5000])
def test_a_target_cut_short_is_the_same_line_on_either_side(capsys, head, target, tmp_path, cut):
    short = tmp_path / "cut.gguf"
    short.write_bytes(Path(target).read_bytes()[:cut])
    assert main(["inspect", str(short)]) == 1
    alone = capsys.readouterr()
    assert main(["inspect", head, "-m", str(short)]) == 1
    assert capsys.readouterr() == alone
    assert (alone.out, alone.err.count("\n")) == ("", 1)
    assert alone.err.startswith(f"error: cannot load {short}: ")


def test_an_empty_folder_is_no_target(capsys, head, tmp_path):
    assert main(["inspect", head, "-m", str(tmp_path)]) == 1
    assert "config.json is missing" in capsys.readouterr().err


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    state = random_head(SHAPE)
    return str(write_folder(tmp_path / "draft", conversion.config(vocab_size=272, draft_vocab_size=192), state))


def test_a_checkpoint(inspect, checkpoint, target):
    status, document = inspect(checkpoint)
    assert (status, document["fits"]) == (0, None)
    assert set(document) == KEYS
    assert (document["layout"], document["version"], document["name"]) == ("specforge", "3", "draft")
    assert document["leftovers"] == ["t2d"]
    assert [feature["id"] for feature in document["features"]] == [2, 6, 9]
    assert document["vocabulary"] == {"size": 272, "tokenizer": None, "pre": None, "draft": 192, "mapped": True}
    status, document = inspect(checkpoint, "-m", target)
    assert (status, document["fits"], document["shares"]) == (0, True, ["embeddings"])
    assert any("by size only" in note for note in document["notes"])


def test_a_checkpoint_for_another_target(inspect, checkpoint, tmp_path):
    other = conversion.write_target(tmp_path / "other.gguf", vocab=300)
    status, document = inspect(checkpoint, "-m", str(other))
    assert (status, document["fits"]) == (1, False)
    assert "vocabulary of 272" in document["problems"][0]


def test_a_checkpoint_that_cannot_be_converted_says_why(inspect, tmp_path, target, capsys):
    config = conversion.config(vocab_size=272, draft_vocab_size=192)
    state = random_head(SHAPE)
    state["d2t"][3] = 5000
    folder = str(write_folder(tmp_path / "draft", config, state))
    status, document = inspect(folder)
    assert (status, document["fits"]) == (1, None)
    assert "d2t[3] points at token 5003" in document["problems"][0]
    status, document = inspect(folder, "-m", target)
    assert (status, document["fits"], document["target"]) == (1, False, Path(target).name)
    assert main(["inspect", folder]) == 1
    out, err = capsys.readouterr()
    assert "draft: a checkpoint that cannot be converted\n" in out
    assert "problem: it cannot be converted: d2t[3]" in out
    assert err == ""


def test_folders_that_are_no_checkpoints(inspect, tmp_path):
    (tmp_path / "empty").mkdir()
    status, document = inspect(str(tmp_path / "empty"))
    assert status == 1
    assert "empty folder" in document["problems"][0]
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "config.json").write_text("{}")
    assert inspect(str(tmp_path / "other"))[0] == 1


def test_a_folder_of_a_target(inspect, head, tmp_path):
    folder = tmp_path / "target"
    folder.mkdir()
    sizes = {"model_type": "llama", "num_hidden_layers": 12, "hidden_size": 32, "vocab_size": 272}
    (folder / "config.json").write_text(json.dumps({**sizes, "max_position_embeddings": 64}))
    status, document = inspect(head, "-m", str(folder))
    assert (status, document["fits"], document["target"]) == (0, True, "target")
    assert "no token list" in document["notes"][0]


def test_ids_on_the_hub_are_fetched(monkeypatch, capsys, head, target):
    from llama_eagle.hub import fetch as hub  # noqa: PLC0415

    asked = []
    monkeypatch.setattr(hub, "head_card", lambda name, offline: hub.HeadCard("own/head", 2_000_000, "mit"))
    monkeypatch.setattr(hub, "fetch_checkpoint", lambda name, offline: asked.append((name, offline)) or Path(head))
    monkeypatch.setattr(hub, "fetch_target", lambda name, offline: asked.append((name, offline)) or Path(target))
    assert main(["inspect", "own/head", "-m", "own/target:Q8_0", "--offline", "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["fits"] is True
    assert err == "own/head, 2 MB, licence mit\n"
    assert asked == [("own/head", True), ("own/target:Q8_0", True)]
