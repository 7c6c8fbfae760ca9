"""Request: a prompt and what becomes of it, one of many that an engine runs at once."""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Protocol

from .answer import Answer
from .errors import InputError
from .generate import Step
from .result import Piece, Result
from .sampler import Sampler
from .sampling import SamplingParams
from .slot import Seconds

OnPiece = Callable[[Piece], None]


class Runner(Protocol):
    """What runs requests."""

    def step(self) -> bool:
        """One step of all that run."""

    def stop(self, request: "Request") -> None:
        """Ends one, keeping its cells for a later prompt."""

    def cancel(self, request: "Request") -> None:
        """Ends one and frees its cells."""

    def fork(self, request: "Request", params: SamplingParams | None) -> "Request":
        """Queues another continuation of one."""


class Request:
    """Iterating it gives the text piece by piece and runs the engine meanwhile, other requests included.

    prompt: token ids. params: with the seed that it has or was given. result: complete when `done`. It may be given up
    at any moment with cancel(), which frees its cells.
    """

    def __init__(self, runner: Runner, prompt: list[int], sampler: Sampler, result: Result) -> None:
        self._runner = runner
        self.prompt = prompt
        self.sampler = sampler
        self.result = result
        self.answer = Answer(sampler.model, sampler.params, result)
        self.done = False
        self.error: BaseException | None = None
        self.seconds = Seconds()
        self.parent: Request | None = None
        self.on_piece: OnPiece | None = None
        self._pieces: deque[Piece] = deque()

    @property
    def params(self) -> SamplingParams:
        """How its tokens are chosen."""
        return self.sampler.params

    @property
    def tokens(self) -> list[int]:
        """Prompt and emitted tokens: what its sequence is made of."""
        return self.prompt + self.result.tokens

    @property
    def left(self) -> int:
        """How many tokens its limit still allows."""
        limit = self.params.max_tokens
        return 2**63 if limit < 0 else limit - len(self.result.tokens)

    @property
    def waits(self) -> bool:
        """Whether it is a fork of one that has not decoded what they share yet."""
        return self.parent is not None and not self.parent.done and not self.parent.result.tokens

    def __iter__(self) -> Iterator[Piece]:
        while True:
            while self._pieces:
                yield self._pieces.popleft()
            if self.done:
                break
            self._runner.step()
        if self.error is not None:
            raise self.error

    def wait(self) -> Result:
        """The whole completion. Raises what went wrong with it."""
        for _ in self:
            pass
        return self.result

    def cancel(self) -> None:
        """Gives it up and frees its cells; what was emitted stays in `result`. Nothing happens when it is done."""
        self._runner.cancel(self)

    def stop(self) -> None:
        """Ends it where it is; the cells stay for a prompt that begins alike, until the room is needed."""
        self._runner.stop(self)

    def fork(self, params: SamplingParams | None = None) -> "Request":
        """Another continuation of the text as it is now; what both share is decoded once.

        params: its own, by default these with another seed. Raises InputError when the text is over, and where it has
        no log probabilities, or fewer, for one that wants them.
        """
        if self.done:
            raise InputError("the request is done: only a running one can be forked")
        have, wanted = self.params.logprobs, None if params is None else params.logprobs
        if self.result.tokens and wanted is not None and (have is None or have < wanted):
            raise InputError(f"a fork wants logprobs {wanted} of a text that has {have}: ask from its beginning")
        return self._runner.fork(self, params)

    def take(self, step: Step) -> None:
        """Adds a step to the text; `answer.ended` says whether it is over."""
        self._give(self.answer.take(step))

    def _give(self, piece: Piece) -> None:
        self._pieces.append(piece)
        if self.on_piece is None or self.error is not None:
            return
        try:
            self.on_piece(piece)
        except BaseException as error:  # the steps of others are not over yet: the scheduler ends this one
            self.error = error

    def finish(self) -> None:
        """Its end, whatever the reason: an end token, a limit, an error or a cancellation."""
        if self.done:
            return
        self.done = True
        if self.answer.ended:
            self.result.finish_reason = "stop"
        self.result.timings.take(self.seconds, self.result.completion_tokens - self.answer.repeated)
        self.sampler.close()

    def rest(self) -> None:
        """Gives what was held back, when the text ends at a limit."""
        piece = self.answer.rest()
        if piece.text:
            self._give(piece)
