"""What scripts/soak.py takes for another text, and what for a floating-point tie."""

from collections.abc import Iterator

import numpy as np
import pytest

from llama_eagle import SamplingParams
from soak_requests import Plain, Wanted
from tiny import TinyPair

pytestmark = pytest.mark.native

GREEDY = Wanted((5, 9, 77), SamplingParams(temperature=0, max_tokens=12, ignore_eos=True))
WARM = Wanted((5, 9, 77), SamplingParams(temperature=1, repeat_penalty=1.1, seed=1, max_tokens=12, ignore_eos=True))


@pytest.fixture(scope="module")
def plain(tiny_good_pair: TinyPair) -> Iterator[Plain]:
    made = Plain(tiny_good_pair.target.path)
    yield made
    made.close()


@pytest.mark.parametrize("wanted", [GREEDY, WARM], ids=["greedy", "warm"])
def test_another_text_is_no_tie(plain: Plain, wanted: Wanted) -> None:
    text = plain.text(wanted)
    assert len(text) == 12
    assert not plain.is_tie(wanted, text)
    assert not plain.is_tie(wanted, text[:5])
    for at in (0, 5):
        best = np.argsort(-plain._logits([*wanted.prompt, *text[:at]], 1))
        other = int(next(token for token in best if token != text[at]))
        assert not plain.is_tie(wanted, [*text[:at], other, *text[at + 1 :]])


@pytest.mark.parametrize(("gap", "tie"), [(1e-7, True), (0.1, False)])
def test_two_equal_logits_are_a_tie(plain: Plain, monkeypatch: pytest.MonkeyPatch, gap: float, tie: bool) -> None:
    text = plain.text(GREEDY)
    row = np.zeros(plain.engine.pair.model.info.n_vocab, np.float32)
    row[text[3]], row[7] = 9.0, 9.0 - gap
    monkeypatch.setattr(plain, "_logits", lambda tokens, step: row)
    assert text[3] != 7
    assert plain.is_tie(GREEDY, [*text[:3], 7]) == tie
