"""The header of a model's GGUF, with its token list. Within kept_headers() a file is read once, whoever asks for it.

Knows no key of any architecture. Of a split file it reads the part that it is given.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from ..errors import ModelError
from .header import GgufHeader, TensorEntry, read_header
from .metadata import Metadata
from .vocab import TOKENS

_Key = tuple[str, int, int]  # path, size, time of the last change
_kept: ContextVar["dict[_Key, GgufHeader] | None"] = ContextVar("kept", default=None)


@contextmanager
def kept_headers() -> Iterator[None]:
    """Keeps headers until its end: looking at a pair before it is loaded costs no second reading then."""
    token = _kept.set({})
    try:
        yield
    finally:
        _kept.reset(token)


@contextmanager
def named_errors(path: Path) -> Iterator[None]:
    """Every ModelError inside says first which file cannot be loaded."""
    try:
        yield
    except ModelError as error:
        raise ModelError(f"cannot load {path}: {error}") from None


def model_header(path: Path) -> GgufHeader:
    """The header of a file. Raises ModelError where it is broken."""
    kept = _kept.get()
    if kept is None:
        return read_header(path, frozenset({TOKENS}))
    try:
        state = path.stat()
    except OSError as error:
        raise ModelError(f"it cannot be read: {error}") from None
    key = (str(path), state.st_size, state.st_mtime_ns)
    if key not in kept:
        kept[key] = read_header(path, frozenset({TOKENS}))
    return kept[key]


def metadata_of(header: GgufHeader, tensors: list[TensorEntry] | None = None) -> Metadata:
    """Typed look-ups in a header. tensors: of all parts, if it is split. Raises ModelError where it is no model's."""
    meta = Metadata(header, tensors)
    if not meta.arch:
        raise ModelError("it has no general.architecture: it is no model, or it was damaged")
    return meta


def whole(meta: Metadata, key: str) -> int | None:
    """A size of the architecture, the first of an array; None where it is absent."""
    return None if meta.get(key) is None else meta.size(key, 0, 0, 1 << 40)
