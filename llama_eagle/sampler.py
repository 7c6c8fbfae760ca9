"""Sampler: chooses tokens from a target's logits by SamplingParams. A handle on the native one around llama.cpp's.

It sees exactly the tokens that it was given or chose: a draft token that was not accepted never reaches it.
"""

from types import TracebackType
from typing import Any

import numpy as np

from .checks import vector, whole
from .context import Context
from .errors import ClosedError, InputError, NativeError
from .ffi import C, drain_log, ffi, own
from .model import Model
from .sampling import SamplingParams
from .schema import schema_grammar


class Sampler:
    """Draws token i of a text with number i of the seed's stream. `params` are those given, the seed always a number.

    Raises InputError for a grammar or schema that cannot be used and for biases of unknown tokens.
    """

    def __init__(self, model: Model, params: SamplingParams | None = None) -> None:
        if not isinstance(model, Model):
            raise InputError(f"a sampler needs a Model, got {type(model).__name__}")
        self.model = model
        self.params = (params or SamplingParams()).seeded()
        raw, kept = _raw_params(self.params)
        error = ffi.new("char[1024]")
        with model.lock:
            pointer = C.eagle_sampler_init(model.handle, raw, error, 1024)
        drain_log()
        del kept
        if pointer == ffi.NULL:
            raise InputError(ffi.string(error).decode("utf-8", "replace"))
        self._handle = own(pointer, C.eagle_sampler_free, model)

    @property
    def handle(self) -> Any:
        """The native pointer. Raises ClosedError after close() of it or its model."""
        if self._handle is None:
            raise ClosedError("the sampler is closed")
        if self.model.closed:
            raise ClosedError(f"the sampler's model {self.model.path.name} is closed")
        return self._handle

    @property
    def closed(self) -> bool:
        """Whether close() was called."""
        return self._handle is None

    def close(self) -> None:
        """Frees the sampler; closing twice is fine."""
        with self.model.lock:
            if self._handle is not None:
                ffi.release(self._handle)
                self._handle = None

    def __enter__(self) -> "Sampler":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def clone(self) -> "Sampler":
        """A sampler of its own in the same state, and with the same numbers to come."""
        with self.model.lock:
            pointer = C.eagle_sampler_clone(self.handle)
            if pointer == ffi.NULL:
                raise NativeError(self._error())
        other = object.__new__(Sampler)
        other.model, other.params = self.model, self.params
        other._handle = own(pointer, C.eagle_sampler_free, self.model)
        return other

    def reset(self) -> None:
        """Forgets all tokens and starts the seed's stream again."""
        with self.model.lock:
            self._check(C.eagle_sampler_reset(self.handle))

    def prompt(self, tokens: list[int]) -> None:
        """Shows it the prompt: penalties count its tokens, a grammar begins behind them."""
        ids = vector("tokens", tokens, np.int32)
        with self.model.lock:
            self._check(C.eagle_sampler_prompt(self.handle, ffi.from_buffer("int32_t[]", ids), len(ids)))

    def accept(self, token: int) -> None:
        """Adds a token to the text that it did not choose. Raises InputError when a grammar forbids it."""
        with self.model.lock:
            self._check(C.eagle_sampler_accept(self.handle, whole("token id", token)))

    def sample(self, context: Context, row: int = -1) -> int:
        """Draws and accepts the token behind a row of the last decode's outputs; -1 is the last row."""
        token = ffi.new("int32_t *")
        with context.lock, self.model.lock:
            at = row + C.eagle_n_outputs(context.handle) if whole("row", row) < 0 else row
            code = C.eagle_sample(self.handle, context.handle, at, token)
            if code != C.EAGLE_OK:
                text = ffi.string(C.eagle_context_error(context.handle)).decode("utf-8", "replace")
                raise (InputError if code == C.EAGLE_INVALID else NativeError)(text)
        return int(token[0])

    def distribution(self, row: np.ndarray) -> np.ndarray:
        """float64[n_vocab]: what the next token would be drawn from, for a row of logits, float32[n_vocab]."""
        n_vocab = self.model.info.n_vocab
        logits = np.ascontiguousarray(row, dtype=np.float32)
        if logits.shape != (n_vocab,):
            raise InputError(f"a row of logits must have shape [{n_vocab}], got {logits.shape}")
        ids, left = np.empty(n_vocab, np.int32), np.empty(n_vocab, np.float32)
        buffers = (ffi.from_buffer("int32_t[]", ids), ffi.from_buffer("float[]", left))
        with self.model.lock:
            count = C.eagle_sampler_candidates(self.handle, ffi.from_buffer("float[]", logits), *buffers)
            self._check(min(count, 0))
        weights = np.exp(left[:count].astype(np.float64) - left[:count].max())
        out = np.zeros(n_vocab)
        out[ids[:count]] = weights / weights.sum()
        return out

    @property
    def emitted(self) -> int:
        """Tokens of the text so far, the prompt's not among them."""
        return int(self._info().n_emitted)

    @property
    def draws(self) -> int:
        """How often it was asked for a token."""
        return int(self._info().n_draws)

    @property
    def is_argmax(self) -> bool:
        """Whether it only ever takes the largest logit, which needs no sampler; it counts no tokens then."""
        return bool(self._info().is_argmax)

    def _info(self) -> Any:
        info = ffi.new("eagle_sampler_info *")
        with self.model.lock:
            C.eagle_sampler_describe(self.handle, info)
        return info

    def _check(self, code: int) -> None:
        if code != C.EAGLE_OK:
            raise (InputError if code == C.EAGLE_INVALID else NativeError)(self._error())

    def _error(self) -> str:
        return str(ffi.string(C.eagle_sampler_error(self._handle)).decode("utf-8", "replace"))


def _raw_params(params: SamplingParams) -> tuple[Any, list[Any]]:
    """The native struct, and the buffers that it points into."""
    raw = ffi.new("eagle_sampler_params *")
    for name in (
        "temperature", "top_k", "top_p", "min_p", "typical_p", "repeat_penalty", "repeat_last_n", "presence_penalty",
        "frequency_penalty", "seed",
    ):  # fmt: skip
        setattr(raw, name, getattr(params, name))
    raw.stop_at_eog = int(not params.ignore_eos)
    ids = ffi.new("int32_t[]", [token for token, _ in params.biases] or 1)
    values = ffi.new("float[]", [bias for _, bias in params.biases] or 1)
    raw.n_bias, raw.bias_tokens, raw.bias_values = len(params.biases), ids, values
    text = params.grammar if params.json_schema is None else schema_grammar(params.json_schema)
    grammar = ffi.NULL if text is None else ffi.new("char[]", _bytes(text))
    raw.grammar = grammar
    return raw, [ids, values, grammar]


def _bytes(grammar: str) -> bytes:
    if "\0" in grammar:
        raise InputError("grammar has a NUL character")
    try:
        return grammar.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"grammar is no valid text: {error}") from None
