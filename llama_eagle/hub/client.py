"""How this package uses huggingface_hub: its endpoint, progress bars on terminals only, and a time limit that holds.

Knows no repository.
"""

import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from ..errors import DownloadError

SECONDS = 10.0  # for the hub's first answer, name lookup included

T = TypeVar("T")


def settings() -> Any:
    """huggingface_hub's constants. Raises DownloadError where it cannot read the environment that they come from."""
    try:
        from huggingface_hub import constants  # noqa: PLC0415 - slow to import
    except ValueError as error:
        names = ", ".join(sorted(name for name in os.environ if name.startswith("HF_")))
        raise DownloadError(f"huggingface_hub cannot read the environment ({error}): correct one of {names}") from None
    return constants


def endpoint() -> str:
    """Address of the hub: $HF_ENDPOINT, or huggingface_hub's own."""
    return (os.environ.get("HF_ENDPOINT") or str(settings().ENDPOINT)).rstrip("/")


def is_offline() -> bool:
    """Whether huggingface_hub's offline mode (HF_HUB_OFFLINE) is on."""
    return bool(settings().HF_HUB_OFFLINE)


def in_time(call: Callable[[], T], seconds: float) -> T:
    """What `call` returns, or its error; TimeoutError after `seconds`.

    The HTTP libraries' own limits count per address and leave out name lookup.
    """
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(call())
        except BaseException as error:  # handed to the caller
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if errors:
        raise errors[0]
    if not results:
        raise TimeoutError(f"no answer within {seconds:.0f} seconds")
    return results[0]


@contextmanager
def progress_bars(wanted: bool = True) -> Iterator[None]:
    """Bars of huggingface_hub where they are wanted and stderr is a terminal; none of its log lines either way."""
    from huggingface_hub import utils  # noqa: PLC0415

    hidden = not (wanted and is_terminal(sys.stderr)) and not utils.are_progress_bars_disabled()
    log = logging.getLogger("huggingface_hub")
    level = log.level
    if hidden:
        utils.disable_progress_bars()
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(level)
        if hidden:
            utils.enable_progress_bars()


def is_terminal(stream: Any) -> bool:
    """Whether a stream, which may be None, is a terminal."""
    return stream is not None and bool(stream.isatty())


def short(error: BaseException) -> str:
    """Class and first line of an error."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:200]}" if lines else type(error).__name__
