"""The Drafter over several steps: its cache is always that of a fresh prefill of the text."""

from collections.abc import Iterator

import numpy as np
import pytest

from heads import Head, check_tree, error, load, rows
from llama_eagle import Batch, Context, Drafter, InputError, TreeShape
from reference import Limits, grow_reference
from tiny import HeadShape

pytestmark = pytest.mark.native


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Head:
    return load(tmp_path_factory.mktemp("good"), HeadShape(seed=2, n_head_kv=4, n_draft_vocab=240), good=True)


@pytest.fixture
def drafter(good: Head) -> Iterator[Drafter]:
    with good.context(n_batch=32, n_ubatch=16) as context:
        yield Drafter(context)


def fresh(good: Head, tokens: np.ndarray, features: np.ndarray) -> np.ndarray:
    """Logits behind a prefill of the text: cell i holds (feature of i, token i + 1)."""
    with good.context() as context:
        context.decode(Batch(tokens[1:], embd=context.encode(features[: len(tokens) - 1])))
        return context.logits()


def check_cache(good: Head, drafter: Drafter, tokens: np.ndarray, features: np.ndarray) -> None:
    """The draft's cache is that of a fresh prefill: as long, and the next pair gives the same logits."""
    context = drafter.context
    assert context.n_past() == context.cells_used() == len(tokens) - 1
    assert context.n_nodes() == 0
    probe = np.append(tokens, 77)
    context.decode(Batch([77], embd=context.encode(features[len(tokens) - 1 : len(tokens)])))
    assert error(context.logits(), fresh(good, probe, features)) < 1e-4
    context.seq_rm(0, len(tokens) - 1)


def test_steps_leave_the_cache_of_a_fresh_prefill(good: Head, drafter: Drafter) -> None:
    """The prompt is longer than n_batch; steps accept between none and five tokens."""
    tokens, features = rows(good, 200)
    at = 75
    drafter.observe(tokens[:50].tolist(), features[:50])
    drafter.catch_up()
    drafter.observe(tokens[50:75].tolist(), features[50:75])
    for accepted in (0, 1, 5, 0, 0, 3, 40, 2):
        tree = drafter.grow(int(tokens[at]), TreeShape(8, 3, 3))
        check_cache(good, drafter, tokens[: at + 1], features)
        net = good.reference()
        expected = grow_reference(net, tokens[1 : at + 1], net.encode(features[:at]), 0, Limits(8, 3, 3))
        check_tree(good, tree, int(tokens[at]), expected)
        drafter.observe(tokens[at : at + 1 + accepted].tolist(), features[at : at + 1 + accepted])
        at += 1 + accepted


def test_observing_token_by_token_is_the_same(good: Head, drafter: Drafter) -> None:
    tokens, features = rows(good, 40)
    for i in range(40):
        drafter.observe([int(tokens[i])], features[i : i + 1])
        if i % 7 == 0:
            drafter.catch_up()
    drafter.catch_up()
    check_cache(good, drafter, tokens, features)


@pytest.mark.parametrize("keep", [0, 1, 20, 59])
def test_rewind(good: Head, drafter: Drafter, keep: int) -> None:
    tokens, features = rows(good, 60)
    drafter.observe(tokens.tolist(), features)
    drafter.catch_up()
    drafter.rewind(keep)
    assert drafter.context.n_past() == keep
    other, changed = rows(good, 60, seed=9)
    other[: keep + 1], changed[:keep] = tokens[: keep + 1], features[:keep]
    drafter.observe(other[keep:].tolist(), changed[keep:])
    drafter.catch_up()
    check_cache(good, drafter, other, changed)


def test_rewind_forgets_a_half_grown_tree(good: Head, drafter: Drafter) -> None:
    tokens, features = rows(good, 30)
    drafter.observe(tokens.tolist(), features)
    drafter.catch_up()
    drafter.context.decode(Batch([5, 6], embd=np.zeros((2, 64)), parents=[-1, 0]))
    drafter.rewind(10)
    assert drafter.context.n_past() == drafter.context.cells_used() == 10


def test_grow_wants_an_observation(good: Head, drafter: Drafter) -> None:
    tokens, features = rows(good, 30)
    with pytest.raises(InputError, match="observe"):
        drafter.grow(5, TreeShape())
    drafter.observe(tokens.tolist(), features)
    drafter.grow(5, TreeShape(4, 2, 2))
    with pytest.raises(InputError, match="observe"):
        drafter.grow(5, TreeShape(4, 2, 2))


@pytest.mark.parametrize(("tokens", "count"), [([1, 2], 1), ([1], 2), ([], 0)])
def test_observe_wants_a_row_a_token(drafter: Drafter, tokens: list[int], count: int) -> None:
    with pytest.raises(InputError):
        drafter.observe(tokens, np.zeros((count, 192), np.float32))


def test_a_draft_longer_than_its_training_is_no_warning(good: Head, caplog: pytest.LogCaptureFixture) -> None:
    """Its cache is longer than the target's context by design; a target's own is worth a warning."""
    good.context(n_ctx=1024).close()
    assert not [record for record in caplog.records if record.levelname == "WARNING"]
    assert good.model.target is not None
    Context(good.model.target, n_ctx=1024).close()
    assert any("n_ctx_train" in record.message for record in caplog.records)
