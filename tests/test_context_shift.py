"""Context shift against what a rotation must do: relative positions count, and a first layer's keys are fresh ones."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from llama_eagle import AbortedError, Batch, Context, DraftTree, InputError, Model
from loops import EXACT
from loops import prompt as text
from mamba import write_mamba
from reference import forward
from tiny import TinyPair, TinyTarget, target_shape, write_target

pytestmark = pytest.mark.native

Tiny = Callable[..., TinyTarget]
SIZES: dict[str, Any] = {"n_ctx": 256, "n_batch": 256, "n_seq_max": 2, "swa_full": True, **EXACT}
MOVED = ("llama", "qwen2", "gemma2", "gemma3", "deepseek2")


def after(context: Context, tokens: list[int], seq_id: int = 0) -> np.ndarray:
    context.decode(Batch(tokens, seq_id=seq_id, outputs=[1] * len(tokens)))
    return context.logits()


def filled(model: Model, count: int = 100, **params: Any) -> Context:
    context = Context(model, **{**SIZES, **params})
    context.decode(Batch(text(count)))
    return context


@pytest.mark.parametrize("unified", [True, False])
@pytest.mark.parametrize("arch", MOVED)
def test_only_relative_positions_count(arch: str, unified: bool, tiny_target: Tiny) -> None:
    """Dropping the beginning alike, the shifted text continues as the one whose tokens stayed where they were."""
    model = Model(tiny_target(arch).path)
    params = {"kv_unified": unified, "n_ctx": 256 if unified else 512}
    with filled(model, **params) as shifted, filled(model, **params) as still:
        row = shifted.logits()
        shifted.shift(0, 40)
        np.testing.assert_array_equal(shifted.logits(), row)
        still.seq_rm(0, 0, 40)
        assert (shifted.n_past(), still.n_past()) == (60, 100)
        np.testing.assert_allclose(after(shifted, [7, 8, 9]), after(still, [7, 8, 9]), atol=5e-3)


@pytest.mark.parametrize("arch", MOVED)
def test_twice_by_one_is_once_by_two(arch: str, tiny_target: Tiny) -> None:
    model = Model(tiny_target(arch).path)
    with filled(model) as twice, filled(model) as once:
        twice.shift(4, 1)
        twice.shift(4, 1)
        once.shift(4, 2)
        assert twice.n_past() == once.n_past() == 98
        np.testing.assert_allclose(after(twice, [7, 8]), after(once, [7, 8]), atol=5e-3)


@pytest.mark.parametrize("keep", [0, 1, 30])
@pytest.mark.parametrize("discard", [1, 50])
def test_one_layer_is_a_fresh_decode_of_the_shorter_text(keep: int, discard: int, tiny_target: Tiny) -> None:
    """Its keys and values depend on token and position alone. The next row is also computed in numpy."""
    target = tiny_target("llama", n_layer=1)
    model = Model(target.path)
    left = [*text(100)[:keep], *text(100)[keep + discard :]]
    with filled(model) as context, Context(model, **SIZES) as fresh:
        context.shift(keep, discard)
        fresh.decode(Batch(left))
        rows = after(context, [7, 8])
        np.testing.assert_allclose(rows, after(fresh, [7, 8]), atol=1e-4)
        expected = forward(target.tensors, target.shape, np.array([*left, 7, 8])).logits[-2:]
        np.testing.assert_allclose(rows, expected, atol=1e-3)
        context.seq_rm(0, len(left))
        context.decode(Batch(DraftTree.from_lists(7, [8, 9], [-1, -1])))
        np.testing.assert_allclose(context.logits()[1], rows[1], atol=1e-4)


@pytest.mark.parametrize("types", [("f16", "f16"), ("q8_0", "q8_0"), ("q4_0", "f16")])
def test_cache_types(types: tuple[str, str], tiny_target: Tiny) -> None:
    model = Model(tiny_target("llama", n_layer=1, head_dim=64).path)
    params = {"flash_attn": "on", "type_k": types[0], "type_v": types[1]}
    with filled(model, **params) as context, Context(model, **{**SIZES, **params}) as fresh:
        context.shift(10, 40)
        fresh.decode(Batch([*text(100)[:10], *text(100)[50:]]))
        worst = np.abs(after(context, [7]) - after(fresh, [7])).max()
        assert worst < {"f16": 0.02, "q8_0": 0.2, "q4_0": 1.0}[types[0]]


def test_a_draft_of_one_layer(tiny_pair: TinyPair) -> None:
    with Model(tiny_pair.target.path) as target, Model(tiny_pair.path, target=target) as draft:
        context, fresh = Context(draft, **SIZES), Context(draft, **SIZES)
        g = np.random.default_rng(0).standard_normal((61, draft.info.n_embd)).astype(np.float32)
        tokens = text(61)
        context.decode(Batch(tokens[:60], embd=g[:60]))
        context.shift(5, 25)
        fresh.decode(Batch([*tokens[:5], *tokens[30:60]], embd=np.concatenate([g[:5], g[30:60]])))
        for each in (context, fresh):
            each.decode(Batch(tokens[60:], embd=g[60:]))
        np.testing.assert_allclose(context.logits(), fresh.logits(), atol=1e-4)
        context.close()
        fresh.close()


def test_a_shifted_state_can_be_saved(tiny_target: Tiny) -> None:
    model = Model(tiny_target("llama").path)
    with filled(model) as context, Context(model, **SIZES) as other:
        context.shift(4, 30)
        other.set_state(context.state())
        np.testing.assert_allclose(after(other, [7]), after(context, [7]), atol=1e-4)


def test_an_abort_does_not_stop_half_way(tiny_target: Tiny) -> None:
    model = Model(tiny_target("llama").path)
    with filled(model) as context, filled(model) as other:
        context.abort()
        context.shift(4, 30)
        other.shift(4, 30)
        with pytest.raises(AbortedError):
            context.decode(Batch([7]))
        context.resume()
        np.testing.assert_allclose(after(context, [7]), after(other, [7]), atol=1e-4)


def test_a_text_longer_than_the_context(tiny_target: Tiny) -> None:
    """Every shift frees its cells; another sequence does not notice."""
    model = Model(tiny_target("llama").path)
    with filled(model, 50) as context:
        context.decode(Batch(text(60, 1), seq_id=1))
        kept = context.state(1)
        for token in text(500, 2):
            if context.cells_used() == context.n_ctx:
                context.shift(10, 70)
            context.decode(Batch([token]))
        assert context.cells_used() == context.n_past() + 60
        assert np.isfinite(context.logits()).all()
        assert context.state(1) == kept


@pytest.mark.parametrize("unified", [True, False])
def test_cells_shared_with_a_copy(unified: bool, tiny_target: Tiny) -> None:
    model = Model(tiny_target("llama").path)
    with filled(model, kv_unified=unified, n_ctx=512) as context:
        context.seq_cp(0, 1)
        expected = context.state(1)
        if unified:
            with pytest.raises(InputError, match="shares its cells with a copy"):
                context.shift(4, 30)
            context.set_state(context.state())
        context.shift(4, 30)
        assert (context.n_past(0), context.n_past(1)) == (70, 100)
        assert context.state(1) == expected


def test_a_recurrent_state(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Only its position moves: it has seen what it has seen."""
    model = Model(write_mamba(tmp_path_factory.mktemp("mamba") / "mamba.gguf"))
    with filled(model) as context, filled(model) as other:
        assert context.can_shift
        context.shift(4, 30)
        assert context.n_past() == 70
        np.testing.assert_array_equal(after(context, [7]), after(other, [7]))
        context.seq_cp(0, 1)
        with pytest.raises(InputError, match="shares its cells"):
            context.shift(4, 30)


def test_what_cannot_be_shifted(tiny_target: Tiny, tmp_path_factory: pytest.TempPathFactory) -> None:
    llama, gemma = Model(tiny_target("llama").path), Model(tiny_target("gemma3").path)
    half = write_target(tmp_path_factory.mktemp("rope") / "t.gguf", target_shape("llama", head_dim=64))
    refused = [
        (llama, {"type_k": "bf16"}, "bf16 cannot be rotated"),
        (gemma, {"swa_full": False, "n_ctx": 1024}, "swa_full"),
        (Model(tiny_target("llama4").path), {}, "llama4 rotates its keys in a way"),
        (
            Model(tiny_target("deepseek2").path),
            {"type_k": "q8_0", "type_v": "q8_0", "flash_attn": "on"},
            "in part|of this size",
        ),
        (Model(tiny_target("llama", head_dim=32).path), {"type_k": "q8_0"}, "heads of this size"),
    ]
    for model, params, words in refused:
        with filled(model, **params) as context:
            assert not context.can_shift
            with pytest.raises(InputError, match=rf"cannot be shifted: .*{words}"):
                context.shift(4, 30)
            assert context.n_past() == 100
    with filled(Model(half.path), type_k="q8_0", type_v="q8_0", flash_attn="on") as context:
        assert context.can_shift


def test_wrong_arguments(tiny_target: Tiny) -> None:
    with filled(Model(tiny_target("llama").path)) as context:
        for keep, discard in ((-1, 5), (0, 0), (0, -1), (0, 100), (99, 1), (2**31 - 1, 2**31 - 1)):
            with pytest.raises(InputError, match="keep >= 0, discard >= 1 and a token behind"):
                context.shift(keep, discard)
        with pytest.raises(InputError, match="sequence id"):
            context.shift(0, 5, 2)
        with pytest.raises(InputError, match="of 0 tokens"):
            context.shift(0, 5, 1)
        context.decode(Batch(DraftTree.from_lists(5, [7], [-1])))
        with pytest.raises(InputError, match="1 uncommitted nodes"):
            context.shift(0, 5)
        assert context.n_past() == 101


def test_a_window_that_went_on_is_not_torn(tiny_target: Tiny) -> None:
    """What would come into the window again is no longer in its cache."""
    model = Model(tiny_target("gemma3", window=64, n_ctx_train=1024).path)
    with Context(model, **{**SIZES, "n_seq_max": 1}) as context:
        context.decode(Batch(text(200)))
        context.shift(100, 20)
        for token in text(150, 1):
            if context.n_past() == context.n_ctx:
                context.shift(0, 100)
            context.decode(Batch([token]))
        with pytest.raises(InputError, match="sliding window no longer holds"):
            context.shift(40, context.n_past() - 60)
