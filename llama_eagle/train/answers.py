"""The stage `generate`: the target's own answers, through the batched engine, appended to a file of JSON lines.

A text is a line: {"prompt": words, "tokens": its ids, "answer": ids, "temperature": number}. A killed run loses the
answers that were being written.
"""

import json
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count, cycle
from pathlib import Path

from ..engine import Engine
from ..errors import InputError, TrainingError
from ..model import Model
from ..request import Request
from ..sampling import SamplingParams
from .example import Text
from .lines import read_lines
from .progress import Progress, Say
from .prompts import BEGINNINGS, Unseen, UserTurn, of_files, usable

TEMPERATURES = (0.0, 0.8, 0.0, 1.0)  # answers take turns; greedy ones are what a head is judged by
_TURN_TOKENS = 96
_PASSES = 4  # over the prompts of files
_NUMBERS = 8  # more than an answer needs with all that was invented in vain
_SHORTEST = 3  # tokens of an answer that is worth keeping


@dataclass(frozen=True)
class Wanted:
    """tokens: of all answers together. length: of prompt and answer at most. files: of prompts; none: invented ones."""

    tokens: int
    length: int
    files: tuple[str, ...]
    seed: int


@dataclass
class _Job:
    """A prompt on its way through the engine; invented: it is still being written."""

    words: str
    tokens: list[int]
    temperature: float
    request: Request
    invented: bool = False


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

    def generate(self, engine: Engine, wanted: Wanted, say: Say) -> None:
        """Appends answers until there are as many tokens as wanted, or no prompts any more."""
        if self.tokens >= wanted.tokens:
            return
        progress = Progress(say, "generate", "tokens", wanted.tokens, self.tokens)
        source = _Source(engine, wanted, self.words)
        with open(self.path, "a", encoding="utf-8") as file:
            for job in source.finished(lambda under_way: progress.at(self.tokens + under_way)):
                answer = job.request.result.tokens
                if len(answer) < _SHORTEST:
                    continue
                self._keep(Text(tuple(job.tokens), tuple(answer), job.temperature == 0), job.words)
                line = {"prompt": job.words, "tokens": job.tokens, "answer": answer, "temperature": job.temperature}
                file.write(json.dumps(line) + "\n")
                file.flush()
                if self.tokens >= wanted.tokens:
                    break
        source.stop()
        progress.done = self.tokens
        progress.end(f", {len(self.texts):,} answers")

    def _keep(self, text: Text, words: str) -> None:
        self.texts.append(text)
        self.tokens += len(text.answer)
        self.words.append(words)


class _Source:
    """Keeps the engine busy: prompts in, answers out in the order in which they end."""

    def __init__(self, engine: Engine, wanted: Wanted, seen: list[str]) -> None:
        self.engine, self.wanted = engine, wanted
        self.unseen = Unseen(seen)
        self.numbers = count(_NUMBERS * len(seen))  # of seeds: a resumed run asks for other things
        self.turns = cycle(TEMPERATURES)
        self.jobs: deque[_Job] = deque()
        self.dry = 0  # invented prompts in a row that were of no use
        self.files = None if not wanted.files else self._of_files(wanted.files, len(seen))
        self.turn = UserTurn.of(engine.template).before if self.files is None else ""

    def finished(self, tell: Callable[[int], None]) -> Iterator[_Job]:
        """Runs the engine until the prompts end; whoever has enough stops asking.

        tell: takes the tokens of the answers that are being written.
        """
        slots = len(self.engine.loop.slots)
        while True:
            while len(self.jobs) < 2 * slots and self._begin():
                pass
            if not self.jobs:
                return
            self.engine.step()
            tell(sum(len(job.request.result.tokens) for job in self.jobs if not job.invented))
            for job in [job for job in self.jobs if job.request.done]:
                self.jobs.remove(job)
                job.request.wait()  # raises what went wrong
                if not job.invented:
                    yield job
                elif self._answer_to(job):
                    self.dry = 0
                else:
                    self.dry += 1

    def stop(self) -> None:
        """Gives up what is under way."""
        for job in self.jobs:
            job.request.cancel()

    def _begin(self) -> bool:
        if self.files is None:
            self._invent()
            return True
        words = next(self.files, None)
        if words is not None:
            self._ask(words)
        return words is not None

    def _of_files(self, files: tuple[str, ...], done: int) -> Iterator[str]:
        """The prompts of files, several times over, without those that were answered."""
        prompts = of_files(files)
        for number in range(done, _PASSES * len(prompts)):
            yield prompts[number % len(prompts)]

    def _invent(self) -> None:
        if self.dry > 200:
            raise TrainingError("the target thinks of no new prompts for itself: give some with --prompts FILE.jsonl")
        number = next(self.numbers)
        words = BEGINNINGS[number % len(BEGINNINGS)]
        tokens = _opened(self.engine.pair.model, self.turn + words)
        params = SamplingParams(temperature=1.0, seed=_seed(self.wanted.seed, number), max_tokens=_TURN_TOKENS)
        self.jobs.append(_Job(words, tokens, 1.0, self.engine.submit(tokens, params), invented=True))

    def _answer_to(self, job: _Job) -> bool:
        """Asks what the target invented, if it is a whole new prompt."""
        result = job.request.result
        words = (job.words + result.text).strip()
        fits = result.finish_reason == "stop" and usable(words) and self.unseen.take(words)
        return fits and self._ask(words)

    def _ask(self, words: str) -> bool:
        """Whether a prompt leaves room for an answer; it is asked then."""
        tokens = prompt_tokens(self.engine, words)
        left = self.wanted.length - len(tokens)
        if left < _SHORTEST:
            return False
        temperature, seed = next(self.turns), _seed(self.wanted.seed, next(self.numbers))
        params = SamplingParams(temperature=temperature, top_k=0, top_p=1.0, min_p=0.02, seed=seed, max_tokens=left)
        self.jobs.append(_Job(words, tokens, temperature, self.engine.submit(tokens, params)))
        return True


def prompt_tokens(engine: Engine, words: str) -> list[int]:
    """A prompt as the engine's chat asks it, or as it is where the target has no chat template."""
    try:
        engine.template  # noqa: B018 - whether there is one
    except InputError:
        return engine.pair.model.tokenize(words)
    return engine.chat_prompt([{"role": "user", "content": words}])


def _opened(model: Model, text: str) -> list[int]:
    """A text that a template began, with the begin token once."""
    begin = model.piece(model.info.token_bos, special=True).decode("utf-8", "replace") if model.info.add_bos else ""
    begun = bool(begin) and text.startswith(begin)
    return model.tokenize(text, add_special=not begun, parse_special=True)


def _seed(seed: int, number: int) -> int:
    return (seed * 1_000_003 + number) % (2**32 - 1)
