"""A sequence's state as bytes: restored it continues alike, and bytes that are no state change nothing."""

import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llama_eagle import Batch, Context, ContextFullError, DraftTree, EagleError, InputError, Model, NativeError
from loops import EXACT
from loops import prompt as text
from mamba import write_mamba
from tiny import TinyPair, TinyTarget

pytestmark = pytest.mark.native

Tiny = Callable[..., TinyTarget]
KINDS = ("llama", "gemma3", "gemma2", "llama4", "deepseek2", "mamba")
SIZES: dict[str, Any] = {"n_ctx": 512, "n_batch": 64, "n_ubatch": 32, "n_seq_max": 2, **EXACT}
TREE = DraftTree.from_lists(5, [7, 8, 9], [-1, 0, 0])
CELL = 12  # bytes of a cell's position, count of sequences and sequence, behind magic, id, caches and cells


@pytest.fixture(scope="module")
def models(tiny_target: Tiny, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Model]:
    paths = {kind: tiny_target(kind).path for kind in KINDS if kind != "mamba"}
    paths["mamba"] = write_mamba(tmp_path_factory.mktemp("mamba") / "mamba.gguf")
    return {kind: Model(path) for kind, path in paths.items()}


@pytest.fixture(scope="module")
def llama(models: dict[str, Model]) -> Model:
    return models["llama"]


def fill(context: Context, tokens: list[int], seq_id: int = 0) -> None:
    for first in range(0, len(tokens), 60):
        context.decode(Batch(tokens[first : first + 60], seq_id=seq_id))


def after(context: Context, tokens: list[int], seq_id: int = 0) -> np.ndarray:
    context.decode(Batch(tokens, seq_id=seq_id, outputs=[1] * len(tokens)))
    return context.logits()


@pytest.mark.parametrize("unified", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_a_restored_sequence_continues_alike(kind: str, unified: bool, models: dict[str, Model]) -> None:
    """Into another context and another sequence, over what was there, with the window's cache gone round.

    Other cells sum in another order: gemma2's logits differ by 1e-3 then, in a fresh decode as well.
    """
    params = {**SIZES, "kv_unified": unified, "n_ctx": 1024}
    with Context(models[kind], **params) as first, Context(models[kind], **{**params, "n_ctx": 2048}) as second:
        fill(first, text(400))
        state = first.state()
        expected = after(first, [9, 11, 12])
        fill(second, text(30, 1), 0)
        fill(second, text(50, 2), 1)
        other = second.state(0)
        second.set_state(state, 1)
        assert (second.n_past(0), second.n_past(1)) == (30, 400)
        np.testing.assert_allclose(after(second, [9, 11, 12], 1), expected, atol=5e-3)
        assert second.state(0) == other
        second.set_state(state, 0)
        np.testing.assert_allclose(after(second, [9, 11, 12], 0), expected, atol=5e-3)


@pytest.mark.parametrize("kind", ["llama", "gemma3", "deepseek2"])
@pytest.mark.parametrize("types", [("f16", "f16"), ("bf16", "bf16"), ("q8_0", "q8_0")])
def test_cache_types_under_flash_attention(kind: str, types: tuple[str, str], tiny_target: Tiny) -> None:
    sizes = {} if kind == "deepseek2" else {"head_dim": 32}
    params = {"n_ctx": 512, "n_threads": 1, "flash_attn": "on", "type_k": types[0], "type_v": types[1]}
    model = Model(tiny_target(kind, **sizes).path)
    with Context(model, **params) as first, Context(model, **params) as second:
        fill(first, text(60))
        second.set_state(first.state())
        np.testing.assert_allclose(after(second, [9]), after(first, [9]), atol=1e-3)


@pytest.mark.parametrize("kind", ["llama", "gemma3"])
def test_a_tree_grows_on_a_restored_sequence(kind: str, models: dict[str, Model]) -> None:
    with Context(models[kind], **SIZES) as first, Context(models[kind], **SIZES) as second:
        fill(first, text(400))
        second.set_state(first.state())
        for context in (first, second):
            context.decode(Batch(TREE))
        np.testing.assert_allclose(second.logits(), first.logits(), atol=1e-4)
        for context in (first, second):
            context.commit([0, 2])
        np.testing.assert_allclose(after(second, [4]), after(first, [4]), atol=1e-4)
        assert second.n_past() == 404  # root, two nodes, and this


def test_a_draft(tiny_pair: TinyPair) -> None:
    with Model(tiny_pair.target.path) as target, Model(tiny_pair.path, target=target) as draft:
        first, second = Context(draft, n_ctx=256, **EXACT), Context(draft, n_ctx=256, **EXACT)
        g = np.random.default_rng(0).standard_normal((9, draft.info.n_embd)).astype(np.float32)
        first.decode(Batch(text(8), embd=g[:8]))
        second.set_state(first.state())
        for context in (first, second):
            context.decode(Batch([7], embd=g[8:]))
        np.testing.assert_allclose(second.logits(), first.logits(), atol=1e-4)
        np.testing.assert_allclose(second.hidden(), first.hidden(), atol=1e-4)
        first.close()
        second.close()


def test_a_copy_that_llama_cpp_put_off(llama: Model) -> None:
    """Between separate caches a copy is made with the next decode, which must be before a state is read or written."""
    with Context(llama, **{**SIZES, "kv_unified": False}) as context:
        fill(context, text(50))
        state = context.state()
        context.seq_cp(0, 1)
        copied = context.state(1)
        assert len(copied) == len(state)
        fill(context, text(40, 1), 1)
        context.set_state(copied, 1)
        np.testing.assert_allclose(after(context, [9], 1), after(context, [9], 0), atol=1e-4)
        context.seq_rm(0, 0)
        fill(context, text(60, 2), 0)
        context.seq_cp(0, 1)
        context.set_state(state, 1)
        with Context(llama, **SIZES) as fresh:
            fill(fresh, text(50))
            np.testing.assert_allclose(after(context, [9], 1), after(fresh, [9]), atol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_an_empty_state_empties(kind: str, models: dict[str, Model]) -> None:
    with Context(models[kind], **SIZES) as context:
        state = context.state(1)
        fill(context, text(20))
        context.set_state(state)
        assert context.n_past() == 0
        fill(context, text(30, 1))
        with Context(models[kind], **SIZES) as fresh:
            fill(fresh, text(30, 1))
            np.testing.assert_allclose(after(context, [9]), after(fresh, [9]), atol=1e-4)


def test_uncommitted_nodes_are_refused(llama: Model) -> None:
    with Context(llama, **SIZES) as context:
        fill(context, text(20))
        state = context.state()
        context.decode(Batch(TREE))
        for call in (context.state, lambda: context.set_state(state)):
            with pytest.raises(InputError, match="3 uncommitted nodes"):
                call()
        context.rollback()
        context.seq_rm(0, 20)
        assert context.state() == state


def patched(state: bytes, at: int, value: int) -> bytes:
    return state[:at] + struct.pack("<i", value) + state[at + 4 :]


def test_bytes_that_are_no_state_change_nothing(llama: Model) -> None:
    with Context(llama, **SIZES) as context:
        fill(context, text(20))
        state = context.state()
        cells = 16
        bad = {
            "ends too early": [state[:n] for n in (0, 3, 8, 12, 15, 16, 100, 300, len(state) - 1)],
            "behind its end": [state + b"\0"],
            "does not begin": [patched(state, 0, 5)],
            "kv_unified or n_seq_max": [patched(state, 8, 2)],
            "no free cells": [patched(state, 12, 600), patched(state, 12, -1)],
            "its positions": [patched(state, cells, -1), patched(state, cells, 1), patched(state, cells, 2**30)],
            "several sequences": [patched(state, cells + 4, 2)],
            "layers": [patched(state, cells + 20 * CELL + 4, 10000)],
        }
        for words, states in bad.items():
            for each in states:
                with pytest.raises((InputError, ContextFullError), match=words):
                    context.set_state(each)
        assert context.n_past() == 20
        assert context.state() == state
        for wrong in (None, 5, [1], "text"):
            with pytest.raises(InputError, match="a state is bytes"):
                context.set_state(wrong)  # type: ignore[arg-type]


def test_another_layout_leaves_the_sequence_empty(llama: Model) -> None:
    other = {**SIZES, "type_k": "f16"}
    with Context(llama, **SIZES) as first, Context(llama, **other) as second:
        fill(first, text(20))
        fill(second, text(30))
        with pytest.raises(NativeError, match=r"empty now: .*mismatched key type"):
            second.set_state(first.state())
        assert (second.n_past(), second.cells_used()) == (0, 0)
        fill(second, text(20))
        np.testing.assert_allclose(after(second, [9]), after(first, [9]), atol=1e-2)


def test_states_of_other_models_and_memories(models: dict[str, Model]) -> None:
    contexts = {kind: Context(model, **SIZES) for kind, model in models.items()}
    for context in contexts.values():
        fill(context, text(20))
    states = {kind: context.state() for kind, context in contexts.items()}
    for kind, context in contexts.items():
        for other in set(KINDS) - {kind, "gemma2"}:
            if {kind, other} == {"gemma2", "gemma3"}:
                continue  # equal layouts: a session's header tells them apart
            with pytest.raises((InputError, NativeError), match="state"):
                context.set_state(states[other])
            assert context.n_past() in (0, 20)
    for context in contexts.values():
        context.close()


def test_no_room(llama: Model, models: dict[str, Model]) -> None:
    with Context(llama, **SIZES) as context:
        fill(context, text(300))
        state = context.state()
        fill(context, text(100, 1), 1)
        context.set_state(state, 0)
        with pytest.raises(ContextFullError, match="no free cells for a state of 300"):
            context.set_state(state, 1)
        assert (context.n_past(0), context.n_past(1)) == (300, 100)
    for model in (llama, models["mamba"], models["gemma3"]):
        with Context(model, **SIZES) as long, Context(model, **{**SIZES, "n_ctx": 256}) as short:
            fill(long, text(300))
            with pytest.raises(ContextFullError, match=r"300"):
                short.set_state(long.state())
            assert short.n_past() == 0


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data(), kind=st.sampled_from(["llama", "gemma3", "mamba"]))
def test_no_bytes_abort_the_process(data: st.DataObject, kind: str, models: dict[str, Model]) -> None:
    with Context(models[kind], **SIZES) as context:
        fill(context, text(12))
        state = bytearray(context.state())
        end = data.draw(st.sampled_from([400, len(state)]))
        for _ in range(data.draw(st.integers(1, 4))):
            at = data.draw(st.integers(0, end - 4))
            state[at : at + 4] = data.draw(st.sampled_from([b"\xff" * 4, b"\0" * 4, b"\1\0\0\0", b"\0\0\0\x7f"]))
        try:
            context.set_state(bytes(state))
        except EagleError:
            assert context.n_past() in (0, 12)
        context.decode(Batch([5]))
        assert context.cells_used() <= context.n_past()
