"""Judge: asks the audit about texts that differ. Counts nothing."""

from types import TracebackType
from typing import Any

from ..audit import Audit
from ..context import Context
from .measure import Text


class Judge:
    """The audit over an engine's target, in a context that is opened when it is first asked."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self._context: Context | None = None

    def __call__(self, plain: Text, drafted: Text) -> str:
        """The kind of verdict: identical, tie or error."""
        if self._context is None:
            self._context = Context(self._engine.pair.model, **self._engine.options.context_params())
        return Audit(self._context).judge(plain.prompt, plain.tokens, drafted.tokens, drafted.step).kind

    def __enter__(self) -> "Judge":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._context is not None:
            self._context.close()
