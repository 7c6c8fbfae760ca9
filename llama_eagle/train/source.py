"""Source: what a writer is asked to write, prompts of files or such as the target invents, and the answers to them."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count, cycle

from ..chat import ChatTemplate
from ..errors import InputError, TrainingError
from ..model import Model
from .example import Computed, Text
from .prompts import BEGINNINGS, Unseen, UserTurn, of_files, usable
from .writer import Writer

TEMPERATURES = (0.0, 0.8, 0.0, 1.0)  # answers take turns; greedy ones are what a head is judged by
SHORTEST = 3  # tokens of an answer that is worth keeping
_TURN_TOKENS = 96
_PASSES = 4  # over the prompts of files
_DRY = 400  # invented prompts in a row that were of no use
_NUMBERS = 3  # prompts that were begun for one that was answered


@dataclass(frozen=True)
class Wanted:
    """tokens: of all answers together. length: of prompt and answer at most. files: of prompts; none: invented ones."""

    tokens: int
    length: int
    files: tuple[str, ...]
    seed: int


@dataclass(frozen=True)
class Written:
    """An answer, the words that it answers, and what the target computed of both."""

    words: str
    text: Text
    temperature: float
    computed: Computed


@dataclass(frozen=True)
class Chat:
    """A target's words and tokens; template None: it has none, and continues what it is given."""

    model: Model
    template: ChatTemplate | None

    @staticmethod
    def of(model: Model) -> "Chat":
        """With the template of its file."""
        info = model.info
        names = [model.piece(t, special=True).decode("utf-8", "replace") if t >= 0 else "" for t in _ends(model)]
        source = model.meta("tokenizer.chat_template") if info.n_vocab else None
        return Chat(model, ChatTemplate(source, *names) if source else None)

    def asked(self, words: str) -> list[int]:
        """Tokens behind which an answer to the words begins."""
        if self.template is None:
            return self.model.tokenize(words)
        return self._tokens(self.template.render([{"role": "user", "content": words}]))

    def begun(self, words: str) -> list[int]:
        """Tokens of a user's turn that begins with the words. Raises InputError where there are no such turns."""
        if self.template is None:
            raise InputError(
                "the target has no chat template to invent prompts with: give some with --prompts FILE.jsonl"
            )
        return self._tokens(UserTurn.of(self.template).before + words)

    def _tokens(self, text: str) -> list[int]:
        """Of a text that a template began, with the begin token once."""
        begin = self.model.piece(_ends(self.model)[0], special=True).decode("utf-8", "replace") if self._adds else ""
        begun = bool(begin) and text.startswith(begin)
        return self.model.tokenize(text, add_special=not begun, parse_special=True)

    @property
    def _adds(self) -> bool:
        return self.model.info.add_bos and _ends(self.model)[0] >= 0


class Source:
    """Gives a writer work. seen: prompts that were answered. part: number of this source, and how many there are."""

    def __init__(self, chat: Chat, writer: Writer, wanted: Wanted, seen: list[str], part: tuple[int, int] = (0, 1)):
        self.chat, self.writer, self.wanted = chat, writer, wanted
        self.unseen = Unseen(seen)
        own, parts = part
        self.numbers = count(_NUMBERS * len(seen) + own, parts)
        self.turns = cycle(TEMPERATURES)
        self.words: dict[int, str] = {}  # of each row
        self.answers: dict[int, int] = {}  # rows that answer: tokens of the prompt
        self.dry = 0
        self.prompts: Iterator[str] | None = None
        if wanted.files:
            prompts = of_files(wanted.files)
            every = range(len(seen) + own, _PASSES * len(prompts), parts)
            self.prompts = iter([prompts[number % len(prompts)] for number in every])

    def written(self) -> Iterator[Written]:
        """Answers in the order in which they end, until the prompts end; whoever has enough stops asking."""
        for row in range(len(self.writer.tokens)):
            self._begin(row)
        while self.words:
            for row in self.writer.step():
                words, prompt = self.words.pop(row), self.answers.pop(row, 0)
                if prompt:
                    if self.writer.known[row] >= prompt + SHORTEST:
                        yield self._answer(row, words, prompt)
                    self._begin(row)
                elif not self._invented(row, words):
                    self._begin(row)

    def _answer(self, row: int, words: str, prompt: int) -> Written:
        writer = self.writer
        tokens = writer.tokens[row, : writer.known[row]].tolist()
        temperature = float(writer.temperature[row])
        text = Text(tuple(tokens[:prompt]), tuple(tokens[prompt:]), temperature == 0)
        return Written(words, text, temperature, writer.computed(row, prompt))

    def _begin(self, row: int) -> None:
        """Gives a row its next work, if there is any."""
        if self.prompts is None:
            words = BEGINNINGS[next(self.numbers) % len(BEGINNINGS)]
            tokens = self.chat.begun(words)
            if len(tokens) + SHORTEST > self.wanted.length:
                raise InputError(
                    f"length {self.wanted.length} is too short: a chat of this target takes {len(tokens)} to begin"
                )
            self.words[row] = words
            self.writer.give(row, tokens, 1.0, min(len(tokens) + _TURN_TOKENS, self.wanted.length))
        else:
            while (given := next(self.prompts, None)) is not None and not self._ask(row, given):
                pass

    def _invented(self, row: int, words: str) -> bool:
        """Asks what the target invented, if it is a whole new prompt."""
        writer, model = self.writer, self.chat.model
        *tokens, last = writer.tokens[row, len(self.chat.begun(words)) : writer.known[row]].tolist()
        words = (words + model.detokenize(tokens)).strip()
        if model.is_eog(last) and usable(words) and self.unseen.take(words) and self._ask(row, words):
            self.dry = 0
            return True
        self.dry += 1
        if self.dry > _DRY:
            raise TrainingError("the target thinks of no new prompts for itself: give some with --prompts FILE.jsonl")
        return False

    def _ask(self, row: int, words: str) -> bool:
        """Whether a prompt leaves room for an answer; it is asked then."""
        tokens = self.chat.asked(words)
        if self.wanted.length - len(tokens) < SHORTEST:
            return False
        self.words[row], self.answers[row] = words, len(tokens)
        self.writer.give(row, tokens, next(self.turns), self.wanted.length)
        return True


def _ends(model: Model) -> tuple[int, int]:
    return model.info.token_bos, model.info.token_eos
