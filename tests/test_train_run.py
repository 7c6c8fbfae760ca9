"""The whole path on tiny targets: texts, features, a head, and what the runtime makes of it."""

import json

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="training needs torch")

import tiny_training  # noqa: E402 - needs torch
from llama_eagle.errors import TrainingError  # noqa: E402
from llama_eagle.train import log, saved_fit  # noqa: E402
from llama_eagle.train.fit import Fit  # noqa: E402

pytestmark = pytest.mark.usefixtures("requires_native")


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def easy(tmp_path_factory):
    folder = tmp_path_factory.mktemp("easy")
    made = tiny_training.training(tiny_training.corpus(folder, **tiny_training.EASY)[0], folder / "out")
    return made, made.run()


def test_a_tiny_corpus_is_learnt(easy):
    made, report = easy
    gains = {(gain["mode"], gain["temperature"]): gain["tokens_per_step"] for gain in report["gains"]}
    assert gains["chain 5", 0.0] > 5
    assert gains["tree 32", 0.0] >= gains["chain 5", 0.0]
    assert gains["chain 5", 1.0] > 4
    assert json.loads((made.folder.path / "report.json").read_text()) == report
    card = (made.folder.head / "README.md").read_text()
    assert "target.gguf" in card
    assert f"{report['gains'][0]['tokens_per_step']:.2f}" in card
    rows = log.read(made.folder.log)
    assert rows[-1]["held_out_loss"] < 0.2 * rows[0]["held_out_loss"]


def test_a_finished_training_has_nothing_left_to_do(easy):
    made, report = easy
    again = tiny_training.training(made.target, made.folder.path, resume=True)
    assert again.run()["gains"] == report["gains"]
    assert not any(word in line for line in again.said for word in ("generate", "features", "step", "chain"))


@pytest.mark.slow
def test_the_runtime_accepts_what_torch_foretold(tmp_path):
    target = tiny_training.corpus(tmp_path, **tiny_training.HARDER)[0]
    report = tiny_training.training(target, tmp_path / "out", tokens=8000, epochs=5).run()
    found = next(gain for gain in report["gains"] if (gain["mode"], gain["temperature"]) == ("chain 5", 0.0))
    foretold = report["foretold"]
    assert foretold["chains"] > 100
    assert 0.3 < foretold["accept_by_depth"][0] < 0.98
    assert found["accept_by_depth"][0] == pytest.approx(foretold["accept_by_depth"][0], abs=0.02)
    drafted = [(gain["emitted"] - gain["steps"]) / gain["emitted"] for gain in (found, _as_gain(foretold))]
    assert drafted[0] == pytest.approx(drafted[1], abs=0.02)


def _as_gain(foretold):
    return {"emitted": foretold["emitted"], "steps": foretold["chains"]}


def test_a_stopped_run_goes_on_as_if_nothing_had_been(easy, tmp_path, monkeypatch):
    made, _ = easy
    folder = tiny_training.copied(made.folder.path, tmp_path / "again")
    real, count = Fit.step, 0

    def stopping(fit, fraction):
        nonlocal count
        count += 1
        if count == 30:
            raise KeyboardInterrupt
        return real(fit, fraction)

    monkeypatch.setattr(Fit, "step", stopping)
    with pytest.raises(KeyboardInterrupt):
        tiny_training.training(made.target, folder, resume=True).run()
    kept = log.read(folder / "log.csv")[-1]["step"]
    assert 20 < kept < 30
    monkeypatch.setattr(Fit, "step", real)
    again = tiny_training.training(made.target, folder, resume=True)
    again.run()
    for mine, theirs in zip(log.read(folder / "log.csv"), log.read(made.folder.log), strict=True):
        assert mine["step"] == theirs["step"]
        assert mine["loss"] == pytest.approx(theirs["loss"], rel=1e-3)


def test_what_is_saved_is_less_than_five_minutes_old():
    from llama_eagle.train.run import SAVE_EVERY  # noqa: PLC0415 - there may be no library

    assert SAVE_EVERY <= 300


def test_without_disk_features_are_computed_when_they_are_needed(easy, tmp_path):
    made, _ = easy
    folder = tiny_training.copied(made.folder.path, tmp_path / "again")
    for name in ("features.bin", "features.jsonl"):
        (folder / name).unlink()
    again = tiny_training.training(made.target, folder, resume=True, disk=1e-4, epochs=1)
    again.run()
    assert any("computed anew" in line for line in again.said)
    assert (folder / "features.bin").stat().st_size <= 1e5
    first = log.read(folder / "log.csv")[0]
    assert np.isfinite(first["loss"])


def test_a_loss_that_is_no_number_stops_and_harms_nothing(easy, tmp_path, monkeypatch):
    made, _ = easy
    folder = tiny_training.copied(made.folder.path, tmp_path / "again")
    monkeypatch.setattr("llama_eagle.train.fit.soft_cross_entropy", _nan_after(9))
    with pytest.raises(TrainingError, match=r"the loss is nan in step \d+: .* --resume"):
        tiny_training.training(made.target, folder, resume=True).run()
    state = (folder / "fit.safetensors").read_bytes()
    assert b"place" in state[:100000]


def _nan_after(calls):
    from llama_eagle.train.loss import soft_cross_entropy  # noqa: PLC0415

    left = [calls * 2]

    def loss(*args):
        left[0] -= 1
        return soft_cross_entropy(*args) * (float("nan") if left[0] < 0 else 1.0)

    return loss


def test_a_full_disk_is_said_and_nothing_is_lost(easy, tmp_path, monkeypatch):
    made, _ = easy
    folder = tiny_training.copied(made.folder.path, tmp_path / "again")

    def full(fit, path):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(saved_fit, "save", full)
        with pytest.raises(TrainingError, match=r"the disk of .* is full: .* --resume"):
            tiny_training.training(made.target, folder, resume=True, epochs=1).run()
    assert tiny_training.training(made.target, folder, resume=True, epochs=1).run()["gains"]
