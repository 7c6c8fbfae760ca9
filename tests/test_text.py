"""Bytes to text and stop texts: whatever the pieces are, the outcome is that of the whole."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_eagle.errors import InputError
from llama_eagle.text import StopStrings, Utf8Stream


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(p % (len(data) + 1) for p in places), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(edges)]


def test_a_character_waits_for_its_bytes() -> None:
    stream = Utf8Stream()
    assert [stream.feed(bytes([b])) for b in "a😀é".encode()] == ["a", "", "", "", "😀", "", "é"]
    assert stream.flush() == ""


def test_an_unfinished_character_at_the_end() -> None:
    stream = Utf8Stream()
    assert stream.feed("ok😀".encode()[:-1]) == "ok"
    assert stream.flush() == "\ufffd"
    assert stream.flush() == ""
    assert stream.feed(b"new") == "new"


def test_invalid_bytes_do_not_swallow_what_follows() -> None:
    assert Utf8Stream().feed(b"a\xffb\xe2\x28c\x80") == "a\ufffdb\ufffd(c\ufffd"


@given(data=st.binary(max_size=30) | st.text(max_size=20).map(str.encode), places=st.lists(st.integers(0, 99)))
def test_pieces_do_not_matter(data: bytes, places: list[int]) -> None:
    stream = Utf8Stream()
    text = "".join(stream.feed(piece) for piece in cut(data, places)) + stream.flush()
    assert text == data.decode("utf-8", "replace")


def run(stops: list[str], pieces: list[str]) -> tuple[str, bool]:
    stream = StopStrings(stops)
    text = "".join(stream.feed(piece)[0] for piece in pieces)
    return text + stream.flush(), stream.stopped


@pytest.mark.parametrize(
    ("stops", "pieces", "text", "stopped"),
    [
        ([], ["abc", "def"], "abcdef", False),
        (["END"], ["abc EN", "D more"], "abc ", True),
        (["END"], ["abc EN", "T"], "abc ENT", False),
        (["END"], ["abc E", "N"], "abc EN", False),
        (["END"], ["END"], "", True),
        (["aab"], ["aa", "ab"], "a", True),  # the held text starts the stop text later
        (["b", "abc"], ["abc"], "a", True),  # complete first
        (["b", "ab"], ["a", "b"], "", True),  # the longer of two that end together
        (["\n\n"], ["a\n", "b\n", "\nc"], "a\nb", True),
    ],
)
def test_stop_texts(stops: list[str], pieces: list[str], text: str, stopped: bool) -> None:
    assert run(stops, pieces) == (text, stopped)


def test_text_is_held_back_no_longer_than_needed() -> None:
    stream = StopStrings(["END"])
    assert stream.feed("abE") == ("ab", False)
    assert stream.feed("x") == ("Ex", False)
    assert stream.feed("END") == ("", True)
    assert stream.feed("more") == ("", True)
    assert stream.flush() == ""


@given(
    text=st.text(alphabet="ab", max_size=12),
    stops=st.lists(st.text(alphabet="ab", min_size=1, max_size=4), max_size=3),
    places=st.lists(st.integers(0, 99)),
)
def test_stop_texts_do_not_depend_on_the_pieces(text: str, stops: list[str], places: list[int]) -> None:
    ends = [(end, end - len(stop)) for stop in stops for end in range(len(text) + 1) if text[:end].endswith(stop)]
    expected = (text[: min(ends)[1]], True) if ends else (text, False)
    assert run(stops, [piece.decode() for piece in cut(text.encode(), places)]) == expected


@pytest.mark.parametrize("stops", ["END", [""], [1], [b"x"]])
def test_wrong_stop_texts(stops: list[str]) -> None:
    with pytest.raises(InputError, match="stop"):
        StopStrings(stops)
