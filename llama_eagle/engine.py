"""Engine: one target, one draft, text in and text out. The package's front door.

Makes requests of prompts; which runs when is scheduler.py's business, what a step is generate.py's, a pair pair.py's.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any

import numpy as np

from . import saved_request
from .chat import ChatTemplate
from .checks import file_path, vector, whole
from .errors import ContextFullError, InputError
from .generate import Loop, Step
from .model_files import pair_files
from .options import EngineOptions
from .pair import Pair
from .policy import Fixed
from .request import OnPiece, Request
from .result import Piece, Result, SpecStats, Timings
from .sampler import Sampler
from .sampling import SamplingParams
from .scheduler import Scheduler
from .static_tree import StaticTree

Message = dict[str, str]


class Engine:
    """A target and its draft, ready to generate.

    Without arguments it is the embedded pair. target: a GGUF, or an id on the hub, OWNER/NAME[:QUANT]. draft: a GGUF, a
    checkpoint folder (converted once), an id, None, or "auto": the embedded head for the embedded target, a known one
    for an id, else none. Further keyword arguments are EngineOptions. `result` holds the last finished generation.
    """

    def __init__(
        self,
        target: str | os.PathLike[str] | None = None,
        draft: str | os.PathLike[str] | None = "auto",
        **options: Any,
    ) -> None:
        self.options = EngineOptions.of(**options)
        self.result = Result()
        files = pair_files(target, draft if self.options.spec != "off" else None)
        self.pair = Pair(files.target, files.draft, self.options)
        policy, own = self.pair.planner or Fixed(self.pair.shape), self.options
        self.loop = Loop(self.pair.target, self.pair.drafter, policy, own.n_parallel, own.accept)
        self.scheduler = Scheduler(self.loop, self._observe, self._fork, own.keep if own.context_shift else None)
        self._template: ChatTemplate | None = None

    def close(self) -> None:
        """Frees models and contexts; closing twice is fine."""
        self.pair.close()

    def __enter__(self) -> "Engine":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def template(self) -> ChatTemplate:
        """The model's chat template. Raises InputError when it has none."""
        if self._template is None:
            self.use_template(self.pair.model.meta("tokenizer.chat_template") or "")
        assert self._template is not None
        return self._template

    def use_template(self, source: str) -> None:
        """Takes a jinja chat template in place of the model's own."""
        info, piece = self.pair.model.info, self.pair.model.piece
        self._template = ChatTemplate(source, _special(info.token_bos, piece), _special(info.token_eos, piece))

    def chat(self, messages: Sequence[Message], params: SamplingParams | None = None) -> Iterator[Piece]:
        """Streams the answer to a list of {"role", "content"} messages; the cache keeps what earlier turns share."""
        return self.stream(self.chat_prompt(messages), params)

    def chat_prompt(self, messages: Sequence[Message]) -> list[int]:
        """Token ids that ask for the answer to messages, as chat() uses them: for generate(), submit() and others."""
        prompt = self.template.render(list(messages), add_generation_prompt=True)
        return self.pair.model.tokenize(prompt, add_special=not _starts_with_bos(prompt, self.pair), parse_special=True)

    def generate(
        self, prompt: str | Sequence[int], params: SamplingParams | None = None, on_piece: OnPiece | None = None
    ) -> Result:
        """The whole completion of a text or of token ids.

        on_piece: called with each piece as it comes; what it raises ends the completion and is raised here.
        """
        request = self._request(prompt, params)
        request.on_piece = on_piece
        for _ in self._stream(request):
            pass
        return request.result

    def completions(
        self, prompt: str | Sequence[int], params: SamplingParams | None = None, n: int = 2
    ) -> list[Result]:
        """`n` completions of one prompt, which is decoded once; n_parallel of them run at a time.

        Number i has the seed of `params`, or a drawn one, plus i (modulo 2**32 - 1), and the text that generate() gives
        with that seed. Raises what goes wrong with any of them; the others are given up then.
        """
        params = (params or SamplingParams()).seeded()
        seeds = [((params.seed or 0) + i) % (2**32 - 1) for i in range(whole("n", n, 1))]
        with self.scheduler.lock:  # forks of an empty text, whoever else runs the engine
            requests = [self.submit(prompt, params)]
            for seed in seeds[1:]:
                other = replace(params, seed=seed)
                requests.append(self.submit(prompt, other) if requests[0].done else requests[0].fork(other))
        try:
            return [request.wait() for request in requests]
        finally:
            for request in requests:
                request.stop()

    def stream(self, prompt: str | Sequence[int], params: SamplingParams | None = None) -> Iterator[Piece]:
        """Yields the completion piece by piece; `result` is complete when the iterator is exhausted or closed.

        It begins with the first piece that is asked for, when a slot is free: close an iterator that is not wanted.
        """
        return self._stream(self._request(prompt, params))

    def submit(
        self, prompt: str | Sequence[int], params: SamplingParams | None = None, on_piece: OnPiece | None = None
    ) -> Request:
        """Queues a completion and returns at once; n_parallel of them run at a time.

        Iterating any request, wait() or step() runs all of them. on_piece: called with each piece as it comes, in the
        middle of a step. What it raises ends this request alone, whose iterator and wait() raise it. It may submit,
        fork and cancel requests, and must not run them.
        """
        request = self._request(prompt, params)
        request.on_piece = on_piece
        self.scheduler.submit(request)
        return request

    def step(self) -> bool:
        """One step of the running requests: one decode of the target. False: there is nothing to do."""
        return self.scheduler.step()

    def forget(self) -> None:
        """Frees the cells that ended requests left for prompts that begin alike."""
        self.scheduler.forget()

    def save(self, request: Request, path: str | os.PathLike[str]) -> None:
        """Writes a running request to a file: both caches, what the draft has not seen, how tokens are chosen.

        Raises InputError for one that is not running and SessionError where the file cannot be written.
        """
        with self.scheduler.lock:
            slot = self.scheduler.slot_of(request)
            if slot.shifted:
                raise InputError("the request's context was shifted: it cannot be saved")
            saved_request.save(file_path(path), request, slot, self.loop)

    def restore(self, path: str | os.PathLike[str]) -> Request:
        """The request of a file, running again: it goes on with the text that it would have had.

        Its result holds what was emitted before, without log probabilities; iterating gives what comes. Raises
        SessionError for a file that is damaged or of another pair or build, ContextFullError where the room is too
        small, and InputError when no slot is free.
        """
        pair = self.pair
        with self.scheduler.lock:
            state, session = saved_request.read(file_path(path), self.loop)
            sampler = Sampler(pair.model, state.params)
            state.feed(sampler)
            request = Request(
                self.scheduler, list(state.prompt), sampler, self._result(state.params, list(state.prompt))
            )
            request.answer.repeat(Result(tokens=list(state.accepted)))
            tokens = request.tokens
            self.scheduler.adopt(request, lambda slot: saved_request.restore(session, slot, tokens, self.loop))
        return request

    def _stream(self, request: Request) -> Iterator[Piece]:
        self.scheduler.submit(request)
        try:
            yield from request
        finally:
            request.stop()
            self.result = request.result

    def _request(self, prompt: str | Sequence[int], params: SamplingParams | None) -> Request:
        if isinstance(prompt, str):
            tokens = self.pair.model.tokenize(prompt)
        else:
            tokens = vector("prompt", prompt, np.int32).tolist()
        if not tokens:
            raise InputError("the prompt is empty: give some text")
        n_ctx = self.loop.target.n_ctx
        if len(tokens) > n_ctx:
            raise ContextFullError(f"the prompt has {len(tokens)} tokens, the context {n_ctx}: shorten it or raise -c")
        sampler = Sampler(self.pair.model, params or SamplingParams())
        sampler.prompt(tokens)
        return Request(self.scheduler, tokens, sampler, self._result(sampler.params, tokens))

    def _fork(self, parent: Request, params: SamplingParams | None) -> Request:
        sampler = Sampler(self.pair.model, params or replace(parent.params, seed=-1))
        sampler.prompt(parent.prompt)
        for token in parent.result.tokens:
            sampler.accept(token)
        child = Request(self.scheduler, parent.prompt, sampler, self._result(sampler.params, parent.prompt))
        child.parent = parent
        child.answer.repeat(parent.result)
        return child

    def _result(self, params: SamplingParams, prompt: list[int]) -> Result:
        pair = self.pair
        draft = pair.drafter.context.model.path.name if pair.drafter else None
        result = Result(model=pair.model.path.name, draft=draft, seed=params.seed or 0, prompt=prompt)
        result.prompt_tokens = len(prompt)
        result.settings = {**vars(self.options), **params.as_settings()}
        result.spec = SpecStats(mode=_mode(pair))
        result.timings = Timings(pair.load_s, pair.calibrate_s, plain_tokens_per_s=pair.plain_tokens_per_s)
        return result

    def _observe(self, step: Step) -> None:
        if self.pair.watch is not None:
            self.pair.watch.count(step)


def _mode(pair: Pair) -> str:
    if pair.drafter is None:
        return "off"
    if pair.planner is not None:
        return "auto"
    if isinstance(pair.shape, StaticTree):
        return "static"
    return "chain" if pair.shape and pair.shape.top_k == 1 else "tree"


def _special(token: int, piece: Any) -> str:
    return str(piece(token, special=True).decode("utf-8", "replace")) if token >= 0 else ""


def _starts_with_bos(prompt: str, pair: Pair) -> bool:
    bos = _special(pair.model.info.token_bos, pair.model.piece)
    return bool(bos) and prompt.startswith(bos)
