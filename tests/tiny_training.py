"""Trainings of tiny targets for tests. Needs torch and the native library."""

import shutil
from pathlib import Path
from typing import Any

import tiny_prompts
from tiny import target_shape, write_target

GIVEN = {
    "tokens": 4000, "length": 64, "parallel": 8, "batch": 256, "epochs": 6, "outtype": "f32", "threads": 1, "seed": 3,
}  # fmt: skip
EASY = {"bigram": 0.9, "layer_gain": 0.05}  # the next token nearly follows from the current one
HARDER = {"bigram": 0.5, "layer_gain": 0.3}


def corpus(folder: Path, **shape: float) -> tuple[Path, Path]:
    """A target and a file of prompts."""
    target = write_target(folder / "target.gguf", target_shape("llama", **shape)).path
    prompts = tiny_prompts.write(folder / "prompts.jsonl")
    return target, prompts


def training(target: Path, folder: Path, resume: bool = False, **changes: Any) -> Any:
    """A training whose lines are in its `said`."""
    from llama_eagle.train.run import Training  # noqa: PLC0415 - there may be no library

    said: list[str] = []
    given = {**GIVEN, "prompts": (str(target.with_name("prompts.jsonl")),), **changes}
    made: Any = Training(folder, target, given, resume, said.append)
    made.said = said
    return made


def copied(trained: Path, folder: Path) -> Path:
    """A folder with the texts and features of a training, and nothing that came later."""
    folder.mkdir()
    for name in ("plan.json", "answers.jsonl", "features.bin", "features.jsonl", "scales.json", "draft_vocab.json"):
        shutil.copy(trained / name, folder)
    return folder
