"""The audit's verdicts: by made-up logits for each rule, and on texts of a tiny pair."""

from typing import Any, cast

import numpy as np
import pytest

from llama_eagle import Batch, Context, Sampler, SamplingParams
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


def test_texts_of_a_seed(tiny_good_pair: TinyPair) -> None:
    """Equal ones, and one whose number lies far from any boundary to the other token."""
    loaded = load(tiny_good_pair)
    params, asked = SamplingParams(seed=3, temperature=1.0, ignore_eos=True), prompt(20)
    texts = []
    for loop in (loaded.plain(), loaded.loop(SHAPES["tree16"])):
        with Sampler(loaded.model, params) as sampler:
            texts.append(text(list(loop.steps(loop.start(asked, sampler), 40)))[:40])
    with Context(loaded.model, n_ctx=512) as context:
        audit = Audit(context)
        assert audit.judge_sampled(asked, *texts, 17, params) == Verdict("identical")
        wrong = [*texts[1][:30], (texts[1][30] + 9) % 250]
        verdict = audit.judge_sampled(asked, texts[0], wrong, 17, params)
        assert (verdict.kind, verdict.at) == ("error", 30)
        assert audit.judge_sampled(asked, texts[0], texts[1][:9], 17, params) == Verdict("error", 9)


def test_a_number_at_a_boundary(tiny_good_pair: TinyPair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two scorings that differ by 0.01 in a probability: a number this close to the boundary is a tie."""
    params, edge = SamplingParams(seed=3, temperature=1.0, top_k=0, top_p=1.0, min_p=0.0), 0.6
    model = load(tiny_good_pair).model
    rows = [np.full(model.info.n_vocab, -1e3, np.float32) for _ in range(2)]
    for row, share in zip(rows, (edge, edge + 0.01), strict=True):
        row[[5, 9]] = np.log([share, 1 - share])
    with Context(model, n_ctx=256) as context:
        audit = Audit(context)
        monkeypatch.setattr(audit, "_logits", lambda prompt, text, step: rows[step > 1])
        for number, kind in ((0.6, "tie"), (0.605, "tie"), (0.595, "tie"), (0.63, "error"), (0.5, "error")):
            monkeypatch.setattr("llama_eagle.audit.uniform", lambda seed, index, number=number: number)
            assert audit.judge_sampled([1, 2], [5], [9], 4, params).kind == kind
