"""cli/train.py: flags, what is refused before anything is loaded, and runs of several processes."""

import json
import os
import subprocess
import sys

import pytest

from llama_eagle import Engine, SamplingParams
from llama_eagle.cli import train as cli
from llama_eagle.cli.command import Commands, main
from llama_eagle.errors import TrainingError, UsageError
from llama_eagle.train import extra, log
from llama_eagle.train.plan import Plan


def given(*words):
    return cli._given(cli.add_parser(Commands()).parse(["-o", "out", *words]))


def test_flags_become_a_plan():
    assert given() == {}
    found = given(
        "--tokens", "5000", "-s", "7", "--prompts", "a", "--prompts", "b", "--layers", "1,4", "--hours", "0.5"
    )
    assert found == {"tokens": 5000, "seed": 7, "prompts": ("a", "b"), "layers": (1, 4), "hours": 0.5}
    assert set(found) <= set(Plan.__dataclass_fields__)


def test_every_default_is_in_the_help():
    text = " ".join(cli.add_parser(Commands()).format_help().split())
    for flag, dest, *_ in cli._FLAGS:
        assert flag in text
        assert f"(default: {getattr(Plan(), dest)})" in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--tokens", "3"], "--tokens 3 is not in"),
        (["--batch-rows", "0"], "--batch-rows 0 is not in"),
        (["--layers", "2,x"], "--layers '2,x': expected layer numbers"),
        (["--hours", "-1"], "--hours -1.0"),
        (["--tokns", "3"], "the nearest known one is --tokens"),
    ],
)
def test_wrong_flags_are_named(words, message):
    with pytest.raises(UsageError, match=message):
        given(*words)


def test_without_torch_one_line_says_how_to_get_it(monkeypatch, capsys):
    monkeypatch.setattr(extra.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(TrainingError, match=r"pip install 'llama-eagle\[train\]'"):
        extra.need_torch()
    assert main(["train", "-o", "x"]) == 1
    assert capsys.readouterr().err.count("\n") == 1


def test_a_folder_that_is_in_use_is_not_overwritten(tmp_path, capsys, requires_native, tiny_target):
    pytest.importorskip("torch", reason="training needs torch")
    Plan().save(tmp_path / "plan.json")
    assert main(["train", "-m", str(tiny_target("llama").path), "-o", str(tmp_path)]) == 1
    assert "holds a training: add --resume" in capsys.readouterr().err
    assert main(["train", "-m", str(tiny_target("llama").path), "-o", str(tmp_path), "--resume"]) == 1
    assert "identity" in capsys.readouterr().err


def test_one_command_from_nothing_to_a_head(tmp_path, capsys, requires_native):
    pytest.importorskip("torch", reason="training needs torch")
    import tiny_training  # noqa: PLC0415 - needs torch

    target, prompts = tiny_training.corpus(tmp_path, **tiny_training.EASY)
    flags = "--tokens 4000 --length 64 --parallel 8 --batch-rows 256 --epochs 6 --outtype f32 -t 1 -s 3 --json".split()
    assert main(["train", "-m", str(target), "-o", str(tmp_path / "out"), "--prompts", str(prompts), *flags]) == 0
    chain = next(gain for gain in json.loads(capsys.readouterr().out)["gains"] if gain["mode"] == "chain 5")
    assert chain["tokens_per_step"] > 5
    with Engine(target, tmp_path / "out" / "head.gguf", spec="chain", n_ctx=256, n_threads=1) as engine:
        assert engine.generate([5, 6, 7], SamplingParams(temperature=0, max_tokens=8)).spec.drafted > 0


@pytest.mark.slow
def test_two_processes_have_the_losses_of_one(tmp_path, requires_native):
    pytest.importorskip("torch", reason="training needs torch")
    import tiny_training  # noqa: PLC0415 - needs torch

    target, prompts = tiny_training.corpus(tmp_path, **tiny_training.EASY)
    flags = "--tokens 1500 --length 48 --parallel 4 --batch-rows 256 --epochs 2 --outtype f32 -t 1 --json".split()
    words = ["-m", str(target), "--prompts", str(prompts), *flags]
    losses = {}
    for count in (1, 2):
        start = ["-m", "torch.distributed.run", "--nproc-per-node", str(count)] if count > 1 else []
        command = [sys.executable, *start, "-m", "llama_eagle", "train", "-o", str(tmp_path / str(count)), *words]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300, check=False)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["gains"]
        losses[count] = [row["loss"] for row in log.read(tmp_path / str(count) / "log.csv")]
    assert losses[2] == pytest.approx(losses[1], rel=1e-3)
