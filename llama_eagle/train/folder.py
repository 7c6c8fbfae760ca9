"""Folder: the names of a training's files, and words for a disk that is full."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ..errors import TrainingError

_FULL = (errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True)
class Folder:
    """Where each thing lies; head and gguf are what a training is for."""

    path: Path

    @property
    def plan(self) -> Path:
        """What was asked for."""
        return self.path / "plan.json"

    @property
    def answers(self) -> Path:
        """The target's own texts."""
        return self.path / "answers.jsonl"

    @property
    def scales(self) -> Path:
        """What features are divided by."""
        return self.path / "scales.json"

    @property
    def held_out(self) -> Path:
        """The numbers of the answers that a head is judged by."""
        return self.path / "held_out.json"

    @property
    def draft_vocab(self) -> Path:
        """The target ids that the head drafts."""
        return self.path / "draft_vocab.json"

    @property
    def state(self) -> Path:
        """All that fitting needs to go on."""
        return self.path / "fit.safetensors"

    @property
    def log(self) -> Path:
        """Losses and accept lengths."""
        return self.path / "log.csv"

    @property
    def head(self) -> Path:
        """The checkpoint."""
        return self.path / "head"

    @property
    def gguf(self) -> Path:
        """The checkpoint as the runtime takes it."""
        return self.path / "head.gguf"

    @property
    def evaluation(self) -> Path:
        """What the head of a step gains, a line for each mode."""
        return self.path / "evaluation.jsonl"

    @property
    def report(self) -> Path:
        """What came of it."""
        return self.path / "report.json"

    @contextmanager
    def clear_errors(self) -> Iterator[None]:
        """Turns what a full disk raises into a TrainingError with the way out."""
        try:
            yield
        except Exception as error:
            if getattr(error, "errno", None) in _FULL or "No space left" in str(error):
                raise TrainingError(
                    f"the disk of {self.path} is full: nothing that was finished is lost; free some room, or let "
                    "features take less with --disk GB, and go on with --resume"
                ) from None
            raise
