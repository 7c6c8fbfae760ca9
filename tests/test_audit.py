"""The audit's verdicts: by made-up logits for each rule, and on texts of a tiny pair."""

from typing import Any, cast

import numpy as np
import pytest

from llama_eagle import Batch, Context
from llama_eagle.audit import Audit, Verdict
from loops import SHAPES, load, prompt, run, text
from tiny import TinyPair

pytestmark = pytest.mark.native


class Scorer:
    """A context whose logits depend on how many tokens came last: `single` for one, `linear` for more."""

    n_batch = 4

    def __init__(self, single: list[float], linear: list[float]) -> None:
        self.scores = single, linear
        self.pieces: list[list[int]] = []
        self.runs: list[list[list[int]]] = []

    def clear(self) -> None:
        self.pieces = []
        self.runs.append(self.pieces)

    def decode(self, batch: Batch) -> None:
        self.pieces.append(batch.tokens.tolist())

    def logits(self) -> np.ndarray:
        return np.array([self.scores[len(self.pieces[-1]) > 1]], dtype=np.float32)


def judge(single: list[float], linear: list[float], other: int = 1, record: float = 0.5) -> Verdict:
    """The verdict on texts that part at their fourth token: plain decoding took 0, the drafted run `other`."""
    audit = Audit(cast(Any, Scorer(single, linear)), record)
    return audit.judge([9, 9, 9], [5, 6, 7, 0], [5, 6, 7, other], 3)


NEAR = [2.0, 1.9, 0.0], [1.9, 2.0, 0.0]


def test_a_tie() -> None:
    verdict = judge(*NEAR)
    assert (verdict.kind, verdict.at) == ("tie", 3)
    assert verdict.gap == pytest.approx(0.1, abs=1e-6)
    assert verdict.difference == pytest.approx(0.1, abs=1e-6)


@pytest.mark.parametrize(
    ("scores", "changes"),
    [
        (([2.0, 1.5, 0.0], [1.9, 1.6, 0.0]), {}),
        (([2.0, 1.9, 0.0], [2.0, 1.9, 0.0]), {}),
        (([2.0, 1.9, 0.0], [1.4, 2.0, 0.0]), {}),
        (NEAR, {"other": 2}),
        (NEAR, {"record": 0.05}),
        (([2.0, 1.9, 0.0], [1.4, 2.0, 0.0]), {"record": 9.0}),
    ],
    ids=["a wide gap", "no difference", "too large a difference", "not second best", "beyond the record", "the limit"],
)
def test_errors(scores: tuple[list[float], list[float]], changes: dict[str, Any]) -> None:
    verdict = judge(*scores, **changes)
    assert (verdict.kind, verdict.at) == ("error", 3)


@pytest.mark.parametrize(("drafted", "kind", "at"), [([5, 6], "identical", -1), ([5], "error", 1), ([], "error", 0)])
def test_lengths(drafted: list[int], kind: str, at: int) -> None:
    audit = Audit(cast(Any, Scorer([1.0], [1.0])))
    for pair in ([5, 6], drafted), (drafted, [5, 6]):
        verdict = audit.judge([9], *pair, 3)
        assert (verdict.kind, verdict.at) == (kind, at)


def test_how_a_prefix_is_scored() -> None:
    """The prompt in batches of the context's size, the text by one and by whole steps, of which the last is full."""
    scorer = Scorer([1.0, 0.5], [1.0, 0.5])
    Audit(cast(Any, scorer)).judge([1, 2, 3, 4, 5], [10, 11, 12, 13, 0], [10, 11, 12, 13, 1], 3)
    first = [[1, 2, 3, 4], [5]]
    assert scorer.runs == [
        [*first, [10], [11], [12], [13]],
        [*first, [10], [11, 12, 13]],
    ]


def test_texts_of_a_pair(tiny_good_pair: TinyPair) -> None:
    loaded = load(tiny_good_pair)
    asked = prompt(20)
    plain = text(run(loaded.plain(), asked, 40))[:40]
    drafted = text(run(loaded.loop(SHAPES["tree16"]), asked, 40))[:40]
    with Context(loaded.model, n_ctx=512) as context:
        audit = Audit(context)
        assert audit.judge(asked, plain, drafted, 17) == Verdict("identical")
        drafted[30] = (drafted[30] + 1) % 250
        verdict = audit.judge(asked, plain, drafted, 17)
        assert (verdict.kind, verdict.at) == ("error", 30)
        assert verdict.gap > 0
        assert verdict.difference < 0.1
