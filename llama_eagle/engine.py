"""Engine: one target, one draft, text in and text out. The package's front door.

Turns text into tokens and back, ends answers; what a step is lies in generate.py, what a pair is in pair.py.
"""

import os
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any

import numpy as np

from .chat import ChatTemplate
from .checks import vector
from .draft import Shape
from .errors import ContextFullError, InputError
from .generate import Fixed, Loop, Seconds, Step
from .model_files import pair_files
from .options import EngineOptions
from .pair import Pair
from .result import Piece, Result, SpecStats, Timings
from .sampler import Sampler
from .sampling import SamplingParams
from .static_tree import StaticTree
from .text import StopStrings, Utf8Stream

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
        self.loop = Loop(self.pair.target, self.pair.drafter, Fixed(self.pair.shape))
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
        prompt = self.template.render(list(messages), add_generation_prompt=True)
        tokens = self.pair.model.tokenize(
            prompt, add_special=not _starts_with_bos(prompt, self.pair), parse_special=True
        )
        return self.stream(tokens, params)

    def generate(self, prompt: str | Sequence[int], params: SamplingParams | None = None) -> Result:
        """The whole completion of a text or of token ids."""
        for _ in self.stream(prompt, params):
            pass
        return self.result

    def stream(self, prompt: str | Sequence[int], params: SamplingParams | None = None) -> Iterator[Piece]:
        """Yields the completion piece by piece; `result` is complete when the iterator is exhausted or closed.

        One generation at a time: an older iterator raises InputError once a newer one has begun.
        """
        params = params or SamplingParams()
        if isinstance(prompt, str):
            tokens = self.pair.model.tokenize(prompt)
        else:
            tokens = vector("prompt", prompt, np.int32).tolist()
        if not tokens:
            raise InputError("the prompt is empty: give some text")
        if len(tokens) > self.loop.target.n_ctx:
            raise ContextFullError(
                f"the prompt has {len(tokens)} tokens, the context {self.loop.target.n_ctx}: shorten it or raise -c"
            )
        return self._run(tokens, Sampler(self.pair.model, params))

    def _run(self, prompt: list[int], sampler: Sampler) -> Iterator[Piece]:
        params = sampler.params
        answer = _Answer(self, prompt, params)
        self.loop.seconds = Seconds()
        room = self.loop.target.n_ctx - len(prompt) + 1
        limit = room if params.max_tokens < 0 else min(params.max_tokens, room)
        try:
            if limit == 0:
                return
            root = self.loop.prefill(prompt, sampler)
            for step in self.loop.steps(root, limit):
                if self.pair.watch is not None:
                    self.pair.watch.count(step)
                yield answer.take(step)
                if answer.ended:
                    return
            answer.result.context_full = params.max_tokens < 0 or params.max_tokens > room
            rest = answer.rest()
            if rest.text:
                yield rest
        finally:
            sampler.close()
            self.result = answer.finish()


class _Answer:
    """One answer in the making: text, tokens and counts; ends at an end token or a stop text."""

    def __init__(self, engine: Engine, prompt: list[int], params: SamplingParams) -> None:
        self.engine = engine
        self.params = params
        self.ended = False
        self._utf8 = Utf8Stream()
        self._stops = StopStrings(params.stop)
        pair = engine.pair
        draft = pair.drafter.context.model.path.name if pair.drafter else None
        self.result = Result(model=pair.model.path.name, draft=draft, seed=params.seed or 0, prompt_tokens=len(prompt))
        self.result.settings = {**vars(engine.options), **params.as_settings()}
        self.result.spec = SpecStats(mode="off" if pair.drafter is None else _mode(pair.shape))

    def take(self, step: Step) -> Piece:
        """The piece of a step, cut where the answer ends."""
        text = ""
        taken: list[int] = []
        for token in step.tokens:
            taken.append(token)
            text += self._text_of(token)
            if self.ended:
                break
        if self.result.tokens:  # the first token comes from the prefill
            self.result.spec.count(step, len(taken))
        self.result.tokens += taken
        self.result.text += text
        return Piece(text, tuple(taken), tuple(i < step.accepted for i in range(len(taken))))

    def _text_of(self, token: int) -> str:
        model = self.engine.pair.model
        if model.is_eog(token) and not self.params.ignore_eos:
            self.ended = True
            return self._held_back()
        text, stopped = self._stops.feed(self._utf8.feed(model.piece(token)))
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

    def finish(self) -> Result:
        """The result with its timings."""
        result, seconds, pair = self.result, self.engine.loop.seconds, self.engine.pair
        if self.ended:
            result.finish_reason = "stop"
        result.timings = Timings(
            load_s=pair.load_s,
            calibrate_s=pair.calibrate_s,
            prefill_s=seconds.prefill,
            decode_s=seconds.decode,
            draft_s=seconds.draft,
            verify_s=seconds.verify,
            other_s=max(seconds.decode - seconds.draft - seconds.verify, 0.0),
            tokens_per_s=result.completion_tokens / seconds.decode if seconds.decode else 0.0,
            plain_tokens_per_s=pair.plain_tokens_per_s,
        )
        return result


def _mode(shape: Shape | None) -> str:
    if isinstance(shape, StaticTree):
        return "static"
    return "chain" if shape and shape.top_k == 1 else "tree"


def _special(token: int, piece: Any) -> str:
    return str(piece(token, special=True).decode("utf-8", "replace")) if token >= 0 else ""


def _starts_with_bos(prompt: str, pair: Pair) -> bool:
    bos = _special(pair.model.info.token_bos, pair.model.piece)
    return bool(bos) and prompt.startswith(bos)
