"""Answer: one text in the making. Tokens in, pieces of text out; it ends at an end token or a stop text.

Knows a vocabulary and no contexts.
"""

from .generate import Step
from .model import Model
from .result import Piece, Result
from .sampling import SamplingParams
from .text import StopStrings, Utf8Stream


class Answer:
    """Adds up the steps of one sequence to a Result.

    ended: nothing comes behind what it has. repeated: how many of its tokens another answer had emitted.
    """

    def __init__(self, model: Model, params: SamplingParams, result: Result) -> None:
        self.result = result
        self.ended = False
        self.repeated = 0
        self._model = model
        self._params = params
        self._utf8 = Utf8Stream()
        self._stops = StopStrings(params.stop)

    def take(self, step: Step) -> Piece:
        """The piece of a step, cut where the answer ends."""
        before = len(self.result.tokens)
        piece = self._piece(step)
        if before:  # the first token is the prefill's, and no step
            self.result.spec.count(step, len(piece.tokens), self.result.prompt_tokens + before)
        return piece

    def repeat(self, other: Result) -> None:
        """Takes tokens that another answer emitted, which are no steps of this one."""
        k = self._params.logprobs
        logprobs = () if k is None else tuple(one.cut(k) for one in other.logprobs)
        self._piece(Step(tuple(other.tokens), 0, 0, 0, logprobs))
        self.repeated = len(other.tokens)

    def _piece(self, step: Step) -> Piece:
        taken, text = self._read(step.tokens)
        self.result.tokens += taken
        self.result.text += text
        logprobs = step.logprobs[: len(taken)]
        self.result.logprobs += logprobs
        drafted = min(step.accepted, len(taken))
        return Piece(text, taken, (True,) * drafted + (False,) * (len(taken) - drafted), logprobs)

    def _read(self, tokens: tuple[int, ...]) -> tuple[tuple[int, ...], str]:
        """Those of some tokens that belong to the answer, and their text."""
        known = [self._model.emitted(token) for token in tokens]
        if not self._params.stop and True not in [ends for _, ends in known]:  # the usual step, at once
            return tokens, self._utf8.feed(b"".join([piece for piece, _ in known]))
        text = ""
        for count, token in enumerate(tokens, start=1):
            text += self._text_of(token)
            if self.ended:
                return tokens[:count], text
        return tokens, text

    def _text_of(self, token: int) -> str:
        piece, ends = self._model.emitted(token)
        if ends and not self._params.ignore_eos:
            self.ended = True
            return self._held_back()
        text, stopped = self._stops.feed(self._utf8.feed(piece))
        self.ended = stopped
        return text

    def _held_back(self) -> str:
        """What waited for the rest of a stop text or of a character."""
        text, stopped = self._stops.feed(self._utf8.flush())
        return text if stopped else text + self._stops.flush()

    def rest(self) -> Piece:
        """The last piece, without tokens, of an answer that ends at its limit."""
        text = self._held_back()
        self.result.text += text
        return Piece(text, (), ())
