"""Model: a loaded GGUF file, target or draft. Knows its vocabulary and sizes, no context and no cache."""

import os
import threading
import weakref
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from .checks import vector, whole
from .errors import ClosedError, InputError, ModelError
from .ffi import OF_DRAFTS, C, drain_log, ffi, own
from .gguf_files.check import check_gguf

POST_NORM = -1  # feature id: the last hidden state after the final norm, before any scale in front of the head
_TEXT_LIMIT = 1 << 24  # bytes of a metadata value
_NO_VOCAB = 0  # LLAMA_VOCAB_TYPE_NONE


@dataclass(frozen=True)
class ModelInfo:
    """Sizes of a model. `n_logits` is the width of a row of logits: the draft vocabulary for a draft with its own.

    `features` of a draft: what it reads of its target, as Context takes it; `n_embd_target`: the width of each.
    """

    n_vocab: int
    n_logits: int
    n_embd: int
    n_layer: int
    n_ctx_train: int
    features: tuple[int, ...]
    n_embd_target: int
    is_draft: bool
    is_recurrent: bool
    token_bos: int
    token_eos: int
    add_bos: bool
    n_params: int
    size: int
    has_vocab: bool = True


class Model:
    """A GGUF model in memory.

    `target` gives a draft the embeddings and the head it lacks; the draft keeps it alive.
    Raises ModelError when the file cannot be loaded or does not fit the target.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        target: "Model | None" = None,
        gpu_layers: int = -1,
        use_mmap: bool = True,
        vocab_only: bool = False,
    ) -> None:
        if not isinstance(path, str | os.PathLike):
            raise InputError(f"the path of a model must be a str or a path, got {type(path).__name__}")
        if target is not None and not isinstance(target, Model):
            raise InputError(f"target must be a Model, got {type(target).__name__}")
        self.path = Path(path)
        self.target = target
        self._emitted: dict[int, tuple[bytes, bool]] = {}
        self.lock = threading.RLock()  # held while a native call uses the model, so that close() waits
        self._users: weakref.WeakSet[Any] = weakref.WeakSet()
        if not self.path.is_file():
            raise ModelError(f"no such model file: {self.path}")
        check_gguf(self.path)
        params = ffi.new("eagle_model_params *")
        params.n_gpu_layers = whole("gpu_layers", gpu_layers)
        params.use_mmap = int(use_mmap)
        params.vocab_only = int(vocab_only)
        with target.lock if target is not None else nullcontext():
            params.target = ffi.NULL if target is None else target.handle
            error = ffi.new("char[1024]")
            pointer = C.eagle_model_load(os.fsencode(self.path), params, error, 1024)
            drain_log(() if target is None else OF_DRAFTS)
            if pointer == ffi.NULL:
                raise ModelError(f"cannot load {self.path}: {ffi.string(error).decode('utf-8', 'replace')}")
            self._handle = own(pointer, C.eagle_model_free, target)
            if target is not None:
                target.add_user(self)
        self.info = self._describe()

    @property
    def handle(self) -> Any:
        """The native pointer. Raises ClosedError after close()."""
        if self._handle is None:
            raise ClosedError(f"model {self.path.name} is closed")
        return self._handle

    @property
    def closed(self) -> bool:
        """Whether close() was called."""
        return self._handle is None

    def add_user(self, user: Any) -> None:
        """Remembers a context or draft that must be closed before this model."""
        self._users.add(user)

    def close(self) -> None:
        """Frees the model; closing twice is fine. Raises InputError while contexts or drafts still use it."""
        with self.lock:
            if self._handle is None:
                return
            count = sum(not user.closed for user in self._users)
            if count:
                raise InputError(
                    f"model {self.path.name} is in use by {count} context(s) or draft(s): close them first"
                )
            ffi.release(self._handle)
            self._handle = None

    def __enter__(self) -> "Model":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _describe(self) -> ModelInfo:
        raw = ffi.new("eagle_model_info *")
        C.eagle_model_describe(self._handle, raw)
        return ModelInfo(
            n_vocab=raw.n_vocab,
            n_logits=raw.n_logits,
            n_embd=raw.n_embd,
            n_layer=raw.n_layer,
            n_ctx_train=raw.n_ctx_train,
            features=tuple(raw.features[i] for i in range(raw.n_features)),
            n_embd_target=raw.n_embd_target,
            is_draft=bool(raw.is_draft),
            is_recurrent=bool(raw.is_recurrent),
            token_bos=raw.token_bos,
            token_eos=raw.token_eos,
            add_bos=bool(raw.add_bos),
            n_params=raw.n_params,
            size=raw.size,
            has_vocab=raw.vocab_type != _NO_VOCAB,
        )

    def meta(self, key: str) -> str | None:
        """A metadata value of the file as text, or None."""
        if not isinstance(key, str):
            raise InputError(f"key must be a str, not {type(key).__name__}")
        size = 4096
        while size <= _TEXT_LIMIT:
            buffer = ffi.new("char[]", size)
            with self.lock:
                length = C.eagle_model_meta(self.handle, key.encode("utf-8", "surrogatepass"), buffer, size)
            if length < 0:
                return None
            if length < size:
                return ffi.string(buffer).decode("utf-8", "replace")
            size = length + 1
        raise ModelError(f"metadata {key} of {self.path.name} is longer than {_TEXT_LIMIT} bytes")

    def draft_map(self) -> np.ndarray | None:
        """int32[n_logits]: the target's token id of each draft id, or None when both vocabularies are one."""
        ids = np.zeros(self.info.n_logits, dtype=np.int32)
        with self.lock:
            mapped = C.eagle_model_d2t(self.handle, ffi.cast("int32_t *", ids.ctypes.data))
        return ids if mapped else None

    def tokenize(self, text: str, *, add_special: bool = True, parse_special: bool = False) -> list[int]:
        """Token ids of a text. add_special: BOS where the model wants it; parse_special: control tokens are read."""
        if not isinstance(text, str):
            raise InputError(f"text must be a str, not {type(text).__name__}")
        self._need_vocab()
        raw = text.encode("utf-8", "surrogatepass")
        size = len(raw) + 8
        tokens = ffi.new("int32_t[]", size)
        with self.lock:
            count = C.eagle_model_tokenize(
                self.handle, raw, len(raw), tokens, size, int(add_special), int(parse_special)
            )
        if count < 0:
            raise ModelError(f"{self.path.name} cannot tokenize the text: has it a vocabulary?")
        return list(tokens[0:count])

    def piece(self, token: int, *, special: bool = False) -> bytes:
        """The bytes of one token; control tokens are empty unless `special`."""
        self._need_vocab()
        size = 64
        while True:
            buffer = ffi.new("char[]", size)
            with self.lock:
                length = C.eagle_model_piece(self.handle, self._token(token), buffer, size, int(special))
            if length >= 0:
                return bytes(ffi.buffer(buffer, length))
            if -length <= size or -length > _TEXT_LIMIT:
                raise InputError(f"token id {token} has no text in {self.path.name}")
            size = -length

    def detokenize(self, tokens: list[int]) -> str:
        """The text of a list of tokens; bytes that are no UTF-8 become U+FFFD."""
        ids = vector("tokens", tokens, np.int32).tolist()
        return b"".join(self.piece(token) for token in ids).decode("utf-8", "replace")

    def is_eog(self, token: int) -> bool:
        """Whether a token ends a generation."""
        with self.lock:
            return bool(C.eagle_model_is_eog(self.handle, self._token(token)))

    def emitted(self, token: int) -> tuple[bytes, bool]:
        """The bytes of a token and whether it ends a generation, kept from the first time on."""
        known = self._emitted.get(token)
        if known is None:
            known = self._emitted[token] = (self.piece(token), self.is_eog(token))
        return known

    def _need_vocab(self) -> None:
        if not self.info.has_vocab:
            raise ModelError(f"{self.path.name} has no vocabulary, only token ids: give a GGUF that carries one")

    def _token(self, token: int) -> int:
        return whole("token id", token, 0, self.info.n_vocab - 1)
