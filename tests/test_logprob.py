"""Log probabilities: numpy's log softmax of the target's logits, whatever was drafted, cut where the text is cut."""

import json
from typing import Any

import numpy as np
import pytest

from llama_eagle import Batch, Context, Engine, InputError, Result, SamplingParams
from llama_eagle.logprob import TokenLogprob
from loops import EXACT, prompt
from tiny import TinyPair

pytestmark = pytest.mark.native


def engine(pair: TinyPair, **options: Any) -> Engine:
    return Engine(pair.target.path, pair.path, **{"spec": "tree", "n_ctx": 1024, "n_parallel": 4, **EXACT, **options})


def params(**changes: Any) -> SamplingParams:
    return SamplingParams(**{"seed": 3, "max_tokens": 25, "ignore_eos": True, "logprobs": 3, **changes})


def defined(made: Engine, result: Result, k: int) -> list[TokenLogprob]:
    """From the logits of the whole text decoded at once, in numpy."""
    text = [*result.prompt, *result.tokens]
    with Context(made.pair.model, n_ctx=1024, **EXACT) as fresh:
        fresh.decode(Batch(text[:-1], outputs=[True] * (len(text) - 1)))
        rows = fresh.logits().astype(np.float64)[len(result.prompt) - 1 :]
    rows = rows - rows.max(axis=1, keepdims=True)
    logp = rows - np.log(np.exp(rows).sum(axis=1, keepdims=True))
    best = np.argsort(-logp, axis=1, kind="stable")[:, :k]
    return [
        TokenLogprob(token, row[token], tuple((int(i), float(row[i])) for i in ids))
        for token, row, ids in zip(result.tokens, logp, best, strict=True)
    ]


def check(found: list[TokenLogprob], expected: list[TokenLogprob]) -> None:
    assert [one.token for one in found] == [one.token for one in expected]
    assert [one.logprob for one in found] == pytest.approx([one.logprob for one in expected], abs=1e-4)
    for one, two in zip(found, expected, strict=True):
        assert [token for token, _ in one.top] == [token for token, _ in two.top]
        assert [value for _, value in one.top] == pytest.approx([value for _, value in two.top], abs=1e-4)


@pytest.mark.parametrize(
    "changes",
    [
        {"temperature": 0},
        {"temperature": 0, "logprobs": 0},
        {"temperature": 1.5, "logprobs": 20},
        {"top_k": 2, "repeat_penalty": 1.5, "logit_bias": {70: 4.0, 71: float("-inf")}},
    ],
)
@pytest.mark.parametrize("spec", ["tree", "chain", "static", "off"])
def test_they_are_the_log_softmax_of_the_logits(tiny_good_pair: TinyPair, spec: str, changes: dict[str, Any]) -> None:
    with engine(tiny_good_pair, spec=spec) as made:
        result = made.generate(prompt(30), params(**changes))
        assert result.spec.accepted > 0 or spec == "off"
        assert len(result.logprobs) == 25
        check(result.logprobs, defined(made, result, params(**changes).logprobs or 0))


def test_each_request_has_its_own(tiny_good_pair: TinyPair) -> None:
    with engine(tiny_good_pair) as made:
        requests = [made.submit(prompt(20, i), params(logprobs=k)) for i, k in enumerate((None, 0, 5, 2, None, 1))]
        for request in requests:
            result, k = request.wait(), request.params.logprobs
            check(result.logprobs, [] if k is None else defined(made, result, k))


def test_pieces_carry_them(tiny_good_pair: TinyPair) -> None:
    with engine(tiny_good_pair) as made:
        pieces = list(made.stream(prompt(30), params(stop=("\0never",))))
        assert [one for piece in pieces for one in piece.logprobs] == made.result.logprobs
        assert all(tuple(one.token for one in piece.logprobs) == piece.tokens for piece in pieces)
        assert not any(piece.logprobs for piece in made.stream(prompt(30), params(logprobs=None)))


def test_they_end_with_the_text(tiny_good_pair: TinyPair) -> None:
    with engine(tiny_good_pair) as made:
        whole = made.generate(prompt(30), params())
        for end in range(3, 9):
            cut = made.generate(prompt(30), params(stop=(whole.text[end : end + 3],)))
            check(cut.logprobs, whole.logprobs[: len(cut.tokens)])


def test_a_fork_begins_with_those_of_its_parent(tiny_good_pair: TinyPair) -> None:
    with engine(tiny_good_pair) as made:
        request = made.submit(prompt(30), params())
        while len(request.result.tokens) < 8:
            made.step()
        same, fewer, none = (request.fork(params(logprobs=k)) for k in (3, 1, None))
        with pytest.raises(InputError, match="logprobs 4 of a text that has 3"):
            request.fork(params(logprobs=4))
        whole = request.wait().logprobs
        check(same.wait().logprobs, whole)
        check(fewer.wait().logprobs, [one.cut(1) for one in whole])
        assert none.wait().logprobs == []


def test_a_preempted_text_keeps_its_own(tiny_good_pair: TinyPair) -> None:
    with engine(tiny_good_pair, n_ctx=256) as small:
        requests = [small.submit(prompt(60, i), params(max_tokens=90)) for i in range(4)]
        for request in requests:
            check(request.wait().logprobs, defined(small, request.result, 3))


def test_the_document_has_them_when_asked(tiny_good_pair: TinyPair) -> None:
    with engine(tiny_good_pair) as made:
        plain = made.generate(prompt(9), params(logprobs=None)).as_dict()
        asked = json.loads(json.dumps(made.generate(prompt(9), params(max_tokens=2)).as_dict()))
        assert [*plain, "logprobs"] == list(asked)
        assert [one["token"] for one in asked["logprobs"]] == asked["tokens"]
        assert [len(one["top"]) for one in asked["logprobs"]] == [3, 3]
        assert list(asked["logprobs"][0]["top"][0]) == ["token", "logprob"]
        assert made.generate(prompt(9), params(max_tokens=0)).as_dict()["logprobs"] == []


def test_what_the_model_forbids_is_null_in_json() -> None:
    one = TokenLogprob(5, float("-inf"), ((5, float("-inf")), (6, -1.5)))
    assert one.as_dict() == {
        "token": 5,
        "logprob": None,
        "top": [{"token": 5, "logprob": None}, {"token": 6, "logprob": -1.5}],
    }
