"""An engine without a model: says given pieces, so that the command line is tested without a native library."""

import time
from types import SimpleNamespace
from typing import Any

from llama_eagle.chat import ChatTemplate
from llama_eagle.errors import AbortedError
from llama_eagle.result import Piece, Result

WORDS = {1: b"Hello", 2: b" world", 3: b"!", 4: b"\n"}


class FakeContext:
    """A context that only knows whether it was aborted."""

    n_ctx = 64

    def __init__(self) -> None:
        self.aborted = False
        self.aborts = 0

    def abort(self) -> None:
        """As Context.abort."""
        self.aborted = True
        self.aborts += 1

    def resume(self) -> None:
        """As Context.resume."""
        self.aborted = False


class FakeModel:
    """Tokens 1 to 4."""

    path = SimpleNamespace(name="fake.gguf")
    info = SimpleNamespace(token_bos=1, token_eos=-1, n_ctx_train=64)

    def piece(self, token: int, *, special: bool = False) -> bytes:
        """As Model.piece."""
        return WORDS[token]


class FakeEngine:
    """Answers with `steps`, tuples of (tokens, number of them drafted); records what it was asked."""

    steps: tuple[tuple[tuple[int, ...], int], ...] = (((1,), 0), ((2, 3), 1))
    planner: Any = None
    drafts = True
    error: Exception | None = None
    seconds = 0.0  # a piece takes so long, unless aborted
    context_full = False
    made: "FakeEngine"

    def __init__(self, target: Any = None, draft: Any = "auto", **options: Any) -> None:
        type(self).made = self
        self.given = (target, draft)
        self.options = options
        self.asked: list[Any] = []
        self.closed = False
        drafter = SimpleNamespace(context=FakeContext()) if self.drafts and draft else None
        self.pair = SimpleNamespace(
            target=FakeContext(),
            drafter=drafter,
            model=FakeModel(),
            planner=self.planner,
            calibrate_s=0.0,
            rollback_memory="",
            gpu_note="",
        )
        self.result = Result()
        self.template: Any = None

    def __enter__(self) -> "FakeEngine":
        return self

    def __exit__(self, *error: object) -> None:
        self.closed = True

    def use_template(self, source: str) -> None:
        """As Engine.use_template."""
        self.template = ChatTemplate(source, WORDS[1].decode())

    def chat(self, messages: Any, params: Any) -> Any:
        """As Engine.chat."""
        self.asked.append([dict(message) for message in messages])
        return self._pieces(params)

    def stream(self, prompt: Any, params: Any) -> Any:
        """As Engine.stream."""
        self.asked.append(prompt)
        return self._pieces(params)

    def _pieces(self, params: Any) -> Any:
        self.params = params
        if self.error is not None:
            raise self.error
        result = Result(model="fake.gguf", draft="head.gguf", prompt_tokens=5, context_full=self.context_full)
        try:
            for tokens, drafted in self.steps:
                self._wait()
                text = b"".join(WORDS[token] for token in tokens).decode()
                result.tokens += tokens
                result.text += text
                result.spec.mode = "tree"
                yield Piece(text, tokens, tuple(i < drafted for i in range(len(tokens))))
        finally:
            self.result = result

    def _wait(self) -> None:
        end = time.monotonic() + self.seconds
        while time.monotonic() < end and not self.pair.target.aborted:
            time.sleep(0.005)
        if self.pair.target.aborted:
            raise AbortedError("decode was aborted")
