"""Opens the native library. The only module that knows where it lies; the rest says `from .ffi import C, ffi`."""

import logging
import os
import sys
from pathlib import Path
from typing import Any

from . import _eagle_cffi
from .errors import AbortedError, ContextFullError, InputError, NativeError

ffi: Any = _eagle_cffi.ffi
log = logging.getLogger("llama_eagle")

_NAMES = {"darwin": "libllama_eagle.dylib", "win32": "llama_eagle.dll"}
_LEVELS = {2: logging.INFO, 3: logging.WARNING, 4: logging.ERROR}  # ggml_log_level; the rest is debug


def native_library() -> Path:
    """Where the native library is: $LLAMA_EAGLE_LIBRARY, or `lib/` beside the generated declarations."""
    given = os.environ.get("LLAMA_EAGLE_LIBRARY")
    if given:
        return Path(given)
    return Path(_eagle_cffi.__file__).parent / "lib" / _NAMES.get(sys.platform, "libllama_eagle.so")


def _open() -> Any:
    path = native_library()
    try:
        library = ffi.dlopen(str(path))
    except OSError as error:
        raise NativeError(f"cannot open the native library {path}: {error}; reinstall llama-eagle") from error
    library.eagle_backends_load(os.fsencode(path.parent))
    return library


C: Any = _open()
# a draft's cache is longer than its target's context, and its tokens may be the target's alone
OF_DRAFTS = ("possible training context overflow", "dummy tokens")
_ERRORS = {C.EAGLE_FULL: ContextFullError, C.EAGLE_ABORTED: AbortedError, C.EAGLE_INVALID: InputError}


def check(code: int, context: Any) -> None:
    """Turns a code of the shim into an exception with the text kept in the context's handle."""
    if code == C.EAGLE_OK:
        return
    text = ffi.string(C.eagle_context_error(context)).decode("utf-8", "replace")
    drain_log()
    raise _ERRORS.get(code, NativeError)(text)


def own(pointer: Any, free: Any, *parents: object) -> Any:
    """A pointer that frees itself when collected, and keeps the objects it depends on alive until then."""

    def release(handle: Any) -> None:
        free(handle)

    release.parents = parents  # type: ignore[attr-defined]
    return ffi.gc(pointer, release)


def drain_log(expected: tuple[str, ...] = ()) -> None:
    """Hands llama.cpp's log lines, kept by the shim, to the `llama_eagle` logger; those that hold an `expected` text as
    debug lines, whatever llama.cpp thinks of them."""
    text = ffi.new("char[2048]")
    level = ffi.new("int32_t *")
    while C.eagle_log_next(text, 2048, level) >= 0:
        line = ffi.string(text).decode("utf-8", "replace")
        if any(part in line for part in expected):
            log.debug(line)
        elif line.strip():
            log.log(_LEVELS.get(level[0], logging.DEBUG), line)


def keep_all_log_lines() -> None:
    """Keeps debug lines too, instead of warnings and errors only."""
    C.eagle_log_level(0)


def build_info() -> str:
    """What the library says of itself: llama.cpp's version and the processor's features that it uses."""
    return str(ffi.string(C.eagle_llama_cpp()).decode("utf-8", "replace"))
