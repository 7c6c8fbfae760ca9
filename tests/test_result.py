"""Counts of a generation: acceptance by depth, tokens a step, and the document that --json prints."""

import json
from typing import Any

import pytest

from llama_eagle.generate import Step
from llama_eagle.result import Piece, Result, SpecStats

pytestmark = pytest.mark.native


def step(accepted: int, drafted: int, depth: int) -> Step:
    return Step(tuple(range(accepted + 1)), accepted, drafted, depth)


def counted(*steps: tuple[Step, int], mode: str = "tree") -> SpecStats:
    stats = SpecStats(mode=mode)
    for each, emitted in steps:
        stats.count(each, emitted)
    return stats


def whole(*steps: Step) -> SpecStats:
    return counted(*((each, len(each.tokens)) for each in steps))


def test_accepted_by_depth() -> None:
    """A depth is tried when all before it were accepted and the tree goes that deep."""
    stats = whole(step(0, 16, 4), step(2, 16, 4), step(4, 16, 4), step(2, 5, 2), step(0, 0, 0))
    assert stats.tried_by_depth == [4, 3, 2, 1]
    assert stats.accepted_by_depth == [3, 3, 1, 1]
    document = stats.as_dict()
    assert document["accept_by_depth"] == [3 / 4, 1.0, 1 / 2, 1.0]
    assert (document["steps"], document["drafted"], document["accepted"]) == (5, 53, 8)
    assert document["tokens_per_step"] == 13 / 5
    assert document["shapes"] == {"16": 3, "5": 1, "plain": 1}


def test_accepted_tokens_are_the_sum_over_depths() -> None:
    stats = whole(step(1, 9, 3), step(3, 9, 3), step(0, 9, 3), step(2, 9, 3))
    assert sum(stats.accepted_by_depth) == stats.accepted == 6
    assert stats.emitted == stats.accepted + stats.steps


@pytest.mark.parametrize(
    ("emitted", "tried", "accepted"),
    [(1, [1], [1]), (2, [1, 1], [1, 1]), (3, [1, 1, 1], [1, 1, 1]), (4, [1, 1, 1, 1], [1, 1, 1, 0])],
)
def test_what_lies_behind_an_end_token_does_not_count(emitted: int, tried: list[int], accepted: list[int]) -> None:
    """Three of a tree of depth 4 were accepted, of which the answer took some: the rest was neither right nor wrong."""
    stats = counted((step(3, 12, 4), emitted))
    assert stats.emitted == emitted
    assert stats.accepted == min(3, emitted)
    assert stats.tried_by_depth == tried
    assert stats.accepted_by_depth == accepted


def test_plain_decoding_has_one_token_a_step() -> None:
    stats = counted(*[(step(0, 0, 0), 1)] * 7, mode="off")
    document = stats.as_dict()
    assert document == {
        "mode": "off",
        "steps": 7,
        "drafted": 0,
        "accepted": 0,
        "tokens_per_step": 1.0,
        "accept_by_depth": [],
        "shapes": {},
        "graphs_built": 0,
        "graphs_reused": 0,
    }


def test_nothing_generated() -> None:
    assert SpecStats().as_dict()["tokens_per_step"] == 0.0


@pytest.fixture
def document() -> dict[str, Any]:
    """What --json prints about an answer of three tokens, after a round through JSON."""
    result = Result(text="x", tokens=[1, 2, 3], prompt_tokens=4, model="m.gguf")
    written: dict[str, Any] = json.loads(json.dumps(result.as_dict()))
    return written


NAMES = {  # as docs/json.md has them
    "": "text tokens finish_reason prompt_tokens completion_tokens model draft seed settings spec timings",
    "spec": "mode steps drafted accepted tokens_per_step accept_by_depth shapes graphs_built graphs_reused",
    "timings": "load_s calibrate_s prefill_s decode_s draft_s verify_s other_s tokens_per_s plain_tokens_per_s",
}


@pytest.mark.parametrize("part", NAMES)
def test_names_of_the_document(part: str, document: dict[str, Any]) -> None:
    assert list(document[part] if part else document) == NAMES[part].split()


def test_values_of_the_document(document: dict[str, Any]) -> None:
    assert (document["text"], document["tokens"], document["prompt_tokens"]) == ("x", [1, 2, 3], 4)
    assert document["completion_tokens"] == 3
    assert document["finish_reason"] == "length"
    assert document["draft"] is None
    assert document["timings"]["plain_tokens_per_s"] is None


def test_a_piece_says_where_its_tokens_come_from() -> None:
    piece = Piece("ab", (1, 2), (True, False))
    assert (piece.text, piece.tokens, piece.from_draft) == ("ab", (1, 2), (True, False))


def test_positions_are_counted_by_the_thousand() -> None:
    stats = SpecStats(mode="tree")
    for position, emitted in ((5, 3), (1023, 4), (1024, 2), (5000, 1)):
        stats.count(Step((7,) * emitted, emitted - 1, 8, 4), emitted, position)
    stats.count(Step((7,), 0, 0, 0), 1, 6000)
    assert stats.by_position() == [(0, 3.5), (1024, 2.0), (4096, 1.0)]
