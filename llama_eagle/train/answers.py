"""The stage `generate`: the target's own answers, appended to a file of JSON lines as they come.

A text is a line: {"prompt": words, "tokens": its ids, "answer": ids, "temperature": number}. A killed run loses the
answers that were being written.
"""

import json
from collections.abc import Callable, Iterable
from pathlib import Path

from ..errors import TrainingError
from .example import Text
from .lines import read_lines
from .progress import Progress, Say
from .prompts import Unseen
from .source import Wanted, Written


class Answers:
    """The answers of a file, and the engine's work to get more. Raises TrainingError for a damaged file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.texts: list[Text] = []
        self.words: list[str] = []
        self.tokens = 0  # of all answers
        for number, line in enumerate(read_lines(path), 1):
            try:
                text = Text(tuple(map(int, line["tokens"])), tuple(map(int, line["answer"])), line["temperature"] == 0)
                self._keep(text, str(line["prompt"]))
            except (KeyError, TypeError, ValueError):
                raise TrainingError(f"{path} line {number} is no answer: delete the lines from there on") from None

    def generate(self, written: Iterable[Written], wanted: Wanted, keep: Callable[[Written], None], say: Say) -> None:
        """Appends answers until there are as many tokens as wanted, or no more; `keep` takes each of them, too."""
        progress = Progress(say, "generate", "tokens", wanted.tokens, self.tokens)
        unseen = Unseen([] if wanted.files else self.words)
        with open(self.path, "a", encoding="utf-8") as file:
            for answer in written:
                if not wanted.files and not unseen.take(answer.words):
                    continue  # another process had the same idea
                text = answer.text
                self._keep(text, answer.words)
                line = {"prompt": answer.words, "tokens": text.prompt, "answer": text.answer}
                file.write(json.dumps({**line, "temperature": answer.temperature}) + "\n")
                file.flush()
                keep(answer)
                progress.at(self.tokens)
                if self.tokens >= wanted.tokens:
                    break
        progress.end(f", {len(self.texts):,} answers")

    def _keep(self, text: Text, words: str) -> None:
        self.texts.append(text)
        self.tokens += len(text.answer)
        self.words.append(words)
