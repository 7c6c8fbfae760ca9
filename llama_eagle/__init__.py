"""EAGLE draft trees for every model that llama.cpp runs: the same text, faster."""

TYPE_CHECKING = False  # typing's, whose import alone takes as long as the rest

if TYPE_CHECKING:
    from typing import Any

    from .acceptance import Path, accept
    from .async_engine import AsyncEngine
    from .batch import Batch
    from .context import Context
    from .context_params import ContextParams
    from .conversion.converter import convert
    from .draft import Drafter, grow, grow_static
    from .engine import Engine
    from .errors import (
        AbortedError,
        CheckpointError,
        ClosedError,
        ContextFullError,
        DownloadError,
        EagleError,
        InputError,
        ModelError,
        NativeError,
        SessionError,
        UsageError,
    )
    from .logprob import TokenLogprob
    from .model import POST_NORM, Model
    from .result import Piece, Result
    from .sampler import Sampler
    from .sampling import SamplingParams
    from .static_tree import StaticTree
    from .tree import DraftTree, TreeShape
    from .uniforms import Uniforms

__version__ = "0.1.0"

# names load on first use, so that a command starts fast and --help need not open the native library
_MODULES = {
    "acceptance": ("Path", "accept"),
    "async_engine": ("AsyncEngine",),
    "batch": ("Batch",),
    "context": ("Context",),
    "context_params": ("ContextParams",),
    "conversion.converter": ("convert",),
    "draft": ("Drafter", "grow", "grow_static"),
    "engine": ("Engine",),
    "errors": (
        "AbortedError",
        "CheckpointError",
        "ClosedError",
        "ContextFullError",
        "DownloadError",
        "EagleError",
        "InputError",
        "ModelError",
        "NativeError",
        "SessionError",
        "UsageError",
    ),
    "logprob": ("TokenLogprob",),
    "model": ("POST_NORM", "Model"),
    "result": ("Piece", "Result"),
    "sampler": ("Sampler",),
    "sampling": ("SamplingParams",),
    "static_tree": ("StaticTree",),
    "tree": ("DraftTree", "TreeShape"),
    "uniforms": ("Uniforms",),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "POST_NORM",
    "AbortedError",
    "AsyncEngine",
    "Batch",
    "CheckpointError",
    "ClosedError",
    "Context",
    "ContextFullError",
    "ContextParams",
    "DownloadError",
    "DraftTree",
    "Drafter",
    "EagleError",
    "Engine",
    "InputError",
    "Model",
    "ModelError",
    "NativeError",
    "Path",
    "Piece",
    "Result",
    "Sampler",
    "SamplingParams",
    "SessionError",
    "StaticTree",
    "TokenLogprob",
    "TreeShape",
    "Uniforms",
    "UsageError",
    "accept",
    "convert",
    "grow",
    "grow_static",
]


def __getattr__(name: str) -> "Any":
    from importlib import import_module  # noqa: PLC0415

    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f".{_HOMES[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> "list[str]":
    return sorted({*globals(), *__all__})
