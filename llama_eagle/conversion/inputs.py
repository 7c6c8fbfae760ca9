"""Where a conversion's inputs are: paths as they are, hub ids fetched. Knows names, not contents."""

from pathlib import Path

from ..errors import EagleError, InputError
from ..hub.names import is_hub_name


def find_checkpoint(text: str | Path) -> Path:
    """The folder of a checkpoint: an existing path, or fetched where `text` is spelled like a hub id."""
    if not _is_id(text):
        return Path(text)
    from ..hub.fetch import fetch_checkpoint  # noqa: PLC0415 - the hub's client loads slowly

    found = fetch_checkpoint(str(text))
    if found.is_file():
        raise InputError(f"{text} holds a GGUF, which needs no conversion: it lies at {found}")
    return found


def find_target(text: str | Path) -> Path:
    """The GGUF or folder of a target: an existing path, or fetched where `text` is spelled like a hub id."""
    if not _is_id(text):
        return Path(text)
    from ..hub.fetch import fetch_target_config  # noqa: PLC0415 - as above

    return fetch_target_config(str(text))


def find_verifier(name: str) -> Path:
    """The target that a checkpoint names. Raises InputError with the way out where it cannot be had."""
    if not Path(name).is_dir() and not _is_id(name):
        raise InputError(f"the draft names its target {name!r}, which is not here: give the target with --target")
    try:
        return find_target(name)
    except EagleError as error:
        raise InputError(f"the draft's target {name} cannot be had ({error}): give the target with --target") from None


def _is_id(text: str | Path) -> bool:
    if text == "":  # as a path it would be the working directory
        raise InputError("the name of the checkpoint or target is empty: give a path or a hub id (OWNER/NAME)")
    return isinstance(text, str) and is_hub_name(text)
