"""cli/bench.py: what is refused before anything is measured, and the command on a tiny pair."""

import json
import subprocess
import sys

import pytest

from llama_eagle.cli import main

KEYS = {"machine", "pair", "rows", "audit"}
ROW = {"prompts": str, "mode": str, "tokens_per_s": float, "tokens_per_step": float, "speedup": float}
AUDIT = ["prompts", "identical", "ties", "errors"]


@pytest.fixture
def nothing_is_opened(monkeypatch):
    def fail(args):
        raise AssertionError("models are looked for")

    monkeypatch.setattr("llama_eagle.cli.bench.choose_models", fail)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (
            ["--modes", "plain,trees"],
            "--modes plain,trees: unknown mode 'trees'; known: plain, chain, tree, static, auto",
        ),
        (["--limit", "0"], "--limit must be 1 or more, got 0"),
        (["--repeat", "-1"], "--repeat must be 1 or more, got -1"),
        (["-n", "1"], "-n must be 2 or more"),
        (["--draft-tree", "4,2"], "add static to --modes"),
        (["--draft-nodes", "0"], "--draft-nodes 0 is not in"),
        (["--top-p", "7"], "--top-p must be"),
        (["--spec", "tree"], "unknown flag '--spec'"),
        (["--plot", "no/such/folder/x.png"], "no folder"),
        (["--plot", "x.jpg"], "ends in .png"),
    ],
)
def test_misuse(requires_native, nothing_is_opened, capsys, flags, words):
    assert main(["bench", *flags]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert words in err


def test_no_matplotlib_is_said_first(requires_native, nothing_is_opened, monkeypatch, capsys, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["bench", "--plot", str(tmp_path / "x.png")]) == 2
    assert "pip install matplotlib" in capsys.readouterr().err


def test_bad_prompt_file(requires_native, nothing_is_opened, tmp_path, capsys):
    file = tmp_path / "p.jsonl"
    file.write_text('{"prompt": "a"}\n{"prompts": "b"}\n')
    assert main(["bench", "--prompts", str(file)]) == 1
    assert f"{file} line 2 is no prompt" in capsys.readouterr().err


def test_a_target_without_a_head(requires_native, tmp_path, capsys):
    model = tmp_path / "x.gguf"
    model.touch()
    assert main(["bench", "-m", str(model)]) == 2
    assert "--modes plain" in capsys.readouterr().err


@pytest.fixture
def pair(requires_native, tiny_good_pair, tmp_path):
    """The command on a tiny pair with two prompts."""
    file = tmp_path / "abab.jsonl"
    file.write_text('{"turns": ["abab", "no"]}\n{"prompt": "a lazy dog"}\n')
    models = ["-m", str(tiny_good_pair.target.path), "-md", str(tiny_good_pair.path)]
    return ["bench", *models, "-c", "512", "-t", "1", "-n", "20", "--raw", "--prompts", str(file)]


def document(capsys, line, status=0):
    assert main(line) == status
    out, err = capsys.readouterr()
    assert (err == "") is (status == 0)
    return json.loads(out)


@pytest.mark.native
def test_json(capsys, pair):
    found = document(capsys, [*pair, "--modes", "plain,chain,tree,static,auto", "--repeat", "2", "--json"])
    assert set(found) == KEYS
    assert [row["mode"] for row in found["rows"]] == ["plain", "chain", "tree", "static", "auto"]
    for row in found["rows"]:
        assert {name: type(value) for name, value in row.items()} == ROW
        assert row["tokens_per_s"] > 0
        assert row["prompts"] == "abab"
    plain, chain, tree = found["rows"][:3]
    assert (plain["speedup"], plain["tokens_per_step"]) == (1.0, 1.0)
    assert 1.0 < chain["tokens_per_step"] < tree["tokens_per_step"]
    assert list(found["audit"]) == AUDIT
    assert found["audit"] == {"prompts": 2, "identical": 2, "ties": 0, "errors": 0}
    assert found["pair"]["draft"].endswith(".gguf")
    assert found["pair"]["settings"]["max_tokens"] == 20
    assert found["machine"]["cpu"]


@pytest.mark.native
def test_without_calibration_nothing_is_measured(monkeypatch, pair):
    monkeypatch.setattr("llama_eagle.pair.measure", None)
    assert main([*pair, "--modes", "auto", "--limit", "1", "--no-calibrate"]) == 0


@pytest.mark.native
def test_text(capsys, pair):
    assert main([*pair, "--modes", "tree", "--limit", "1"]) == 0
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert err == ""
    assert lines[1].split() == ["prompts", "mode", "tok/s", "tokens/step", "speedup"]
    assert [line.split()[1] for line in lines[2:4]] == ["plain", "tree"]
    assert lines[4] == "audit: 1 of 1 prompts gave identical texts, 0 ties (0%), 0 errors"
    assert "plain" in lines[5]
    assert len(lines) == 6


@pytest.mark.native
def test_sampled_texts_are_not_audited(capsys, pair):
    found = document(capsys, [*pair, "--modes", "tree", "--temp", "1", "--json"])
    assert found["audit"] == dict.fromkeys(AUDIT, 0)
    assert len(found["rows"]) == 2


@pytest.mark.native
def test_a_wrong_text_is_an_error(monkeypatch, capsys, pair):
    """The tree's texts are given a wrong token: the audit sees it, and the exit status says it."""
    from llama_eagle.engine import Engine  # noqa: PLC0415

    stream = Engine.stream

    def wrong(engine, prompt, params=None):
        yield from stream(engine, prompt, params)
        if engine.options.spec == "tree":
            engine.result.tokens[-1] = (engine.result.tokens[-1] + 1) % 250

    monkeypatch.setattr(Engine, "stream", wrong)
    found = document(capsys, [*pair, "--modes", "chain,tree", "--json"], status=1)
    assert found["audit"] == {"prompts": 2, "identical": 0, "ties": 0, "errors": 2}
    assert main([*pair, "--modes", "tree"]) == 1
    out, err = capsys.readouterr()
    assert "0 of 2 prompts gave identical texts" in out
    assert err.startswith("error: audit: 0 of 2")


@pytest.mark.native
def test_a_prompt_that_does_not_fit(capsys, pair, tmp_path):
    file = tmp_path / "long.jsonl"
    file.write_text(json.dumps({"prompt": "ab" * 2000}) + "\n")
    assert main([*pair, "--prompts", str(file)]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert f"{file} line 1: the prompt has" in err


@pytest.mark.native
def test_picture(pair, capsys, tmp_path):
    pytest.importorskip("matplotlib")
    picture = tmp_path / "bench.png"
    assert main([*pair, "--modes", "tree,auto", "--plot", str(picture)]) == 0
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_help_opens_no_library():
    code = (
        "import sys; from llama_eagle.cli import main; main(['bench', '--help']); "
        "sys.exit('llama_eagle.ffi' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    for flag in ("--modes", "--prompts", "--limit", "--repeat", "--plot", "--temp", "-md"):
        assert flag in done.stdout
