"""cli/color.py: only what was drafted is underlined, also where text comes later than its tokens."""

import re

from llama_eagle.cli.color import Underline
from llama_eagle.result import Piece

BYTES = {1: b"one ", 2: b"two ", 3: b"three", 4: "ü".encode()[:1], 5: "ü".encode()[1:], 6: b""}


def underlined(text):
    return "".join(re.findall("\x1b\\[4m(.*?)\x1b\\[24m", text))


def test_drafted_tokens():
    marked = Underline(BYTES.__getitem__).mark(Piece("one two three", (1, 2, 3), (True, True, False)))
    assert underlined(marked) == "one two "
    assert re.sub("\x1b\\[\\d+m", "", marked) == "one two three"


def test_nothing_drafted_has_no_codes():
    assert Underline(BYTES.__getitem__).mark(Piece("one two ", (1, 2), (False, False))) == "one two "


def test_text_that_was_held_back():
    underline = Underline(BYTES.__getitem__)
    assert underlined(underline.mark(Piece("o", (1, 2), (True, False)))) == "o"
    late = underline.mark(Piece("ne two three", (3,), (True,)))
    assert re.findall("\x1b\\[4m(.*?)\x1b\\[24m", late) == ["ne ", "three"]


def test_character_cut_between_tokens_and_a_token_without_text():
    underline = Underline(BYTES.__getitem__)
    assert underline.mark(Piece("", (6, 4), (False, True))) == ""
    assert underlined(underline.mark(Piece("üone ", (5, 1), (False, False)))) == "ü"
