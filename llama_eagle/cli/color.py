"""Underlines what a draft had proposed. Knows pieces and the bytes of tokens, no terminal."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..result import Piece


_ON, _OFF = "\x1b[4m", "\x1b[24m"


class Underline:
    """Marks a stream of pieces. Text may come later than its tokens; it is matched to them byte by byte."""

    def __init__(self, bytes_of: Callable[[int], bytes]) -> None:
        self._bytes_of = bytes_of
        self._spans: deque[tuple[int, bool]] = deque()

    def mark(self, piece: Piece) -> str:
        """The text of a piece, accepted draft tokens underlined."""
        for token, drafted in zip(piece.tokens, piece.from_draft, strict=True):
            length = len(self._bytes_of(token))
            if length:
                self._spans.append((length, drafted))
        marked, on = "", False
        for character in piece.text:
            drafted = self._take(len(character.encode("utf-8", "replace")))
            if drafted != on:
                marked += _ON if drafted else _OFF
                on = drafted
            marked += character
        return marked + (_OFF if on else "")

    def _take(self, count: int) -> bool:
        """Removes bytes from the front; whether the first of them was drafted."""
        drafted = bool(self._spans and self._spans[0][1])
        while count and self._spans:
            length, kind = self._spans.popleft()
            if length > count:
                self._spans.appendleft((length - count, kind))
            count -= min(length, count)
        return drafted
