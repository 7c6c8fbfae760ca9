"""Text out of token bytes: Utf8Stream joins pieces to characters, StopStrings ends a text. Knows no tokens."""

import codecs
from collections.abc import Iterable

from .errors import InputError


class Utf8Stream:
    """Turns the bytes of successive tokens into text; a character that is cut between tokens waits for its rest."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, data: bytes) -> str:
        """The text that is complete now; invalid bytes become U+FFFD."""
        return self._decoder.decode(data)

    def flush(self) -> str:
        """Ends the text: U+FFFD for an unfinished character, else nothing. The stream can be used anew."""
        text = self._decoder.decode(b"", True)
        self._decoder.reset()
        return text


class StopStrings:
    """Lets text through up to the first of some stop texts, which may lie across pieces and is never let through.

    The stop text that is complete first wins, the longest one of those that end together: the outcome does not depend
    on how the text is cut into pieces.
    """

    def __init__(self, stops: Iterable[str] = ()) -> None:
        if isinstance(stops, str):
            raise InputError(f"stops must be a list of texts, got the text {stops!r}")
        self._stops = tuple(stops)
        for stop in self._stops:
            if not isinstance(stop, str) or not stop:
                raise InputError(f"a stop text must be a non-empty str, got {stop!r}")
        self._held = ""
        self.stopped = False

    def feed(self, text: str) -> tuple[str, bool]:
        """Text that can be shown now, and whether a stop text was hit; nothing comes after one."""
        if self.stopped:
            return "", True
        text = self._held + text
        self._held = ""
        hits = [(at + len(stop), at) for stop in self._stops if (at := text.find(stop)) >= 0]
        if hits:
            self.stopped = True
            return text[: min(hits)[1]], True
        keep = max((_overlap(text, stop) for stop in self._stops), default=0)
        shown = len(text) - keep
        self._held = text[shown:]
        return text[:shown], False

    def flush(self) -> str:
        """The text that was held back, when it ends here without a stop text."""
        text, self._held = self._held, ""
        return text


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of `text` that begins `stop` without being all of it."""
    for length in range(min(len(text), len(stop) - 1), 0, -1):
        if text.endswith(stop[:length]):
            return length
    return 0
