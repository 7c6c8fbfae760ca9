"""Layer inputs ("features") against an independent forward pass, and by consistency where there is none.

Row and layer errors of one must fail: every comparison is also made with the neighbours, which must differ.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from llama_eagle import Batch, Context, EagleError, InputError, Model
from loops import EXACT
from processes import run_python
from reference import forward, tree_mask, tree_positions
from tiny import TinyTarget
from trees import random_tree

pytestmark = pytest.mark.native

TOLERANCE = 1e-4  # relative to the largest entry; f32 cache, flash attention off
Tiny = Callable[..., TinyTarget]


# multiplies by its output matrix behind the graph builder's back, so the rows of layer n cannot be kept: refused
NO_LAST_OUTPUT = ("deepseek2",)


def all_layers(target: TinyTarget) -> tuple[int, ...]:
    return tuple(range(target.shape.n_layer + (target.shape.arch not in NO_LAST_OUTPUT)))


def text(target: TinyTarget, count: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).integers(3, target.shape.n_vocab, count).astype(np.int32)


def error(rows: np.ndarray, expected: np.ndarray) -> float:
    return float(np.abs(rows - expected).max() / np.abs(expected).max())


def split(features: np.ndarray, count: int) -> np.ndarray:
    """[rows, count * width] -> [count, rows, width]"""
    return features.reshape(len(features), count, -1).swapaxes(0, 1)


def same(got: np.ndarray, expected: np.ndarray) -> bool:
    """Whether layer inputs [layers, rows, width] agree, while neither the next layer nor the next row would."""
    assert error(got, np.roll(expected, 1, axis=0)) > 0.1
    assert error(got, np.roll(expected, 1, axis=1)) > 0.1
    return all(error(g, e) < TOLERANCE for g, e in zip(got, expected, strict=True))


@pytest.mark.parametrize("arch", ["llama", "qwen2"])
@pytest.mark.parametrize("n_ubatch", [512, 32, 7, 1])
def test_every_layer_of_every_row_equals_the_reference(arch: str, n_ubatch: int, tiny_target: Tiny) -> None:
    target = tiny_target(arch)
    tokens, ids = text(target, 75), all_layers(target)
    expected = forward(target.tensors, target.shape, tokens).layer_inputs
    with Model(target.path) as model, Context(model, ids, n_ctx=256, n_ubatch=n_ubatch, **EXACT) as context:
        context.decode(Batch(tokens))
        assert same(split(context.features(), len(ids)), expected)
        picked = np.array([74, 3, 3, 40])
        assert same(split(context.features(picked), len(ids)), expected[:, picked])


@pytest.mark.parametrize("arch", ["llama", "qwen2"])
def test_any_subset_in_any_order_with_repeats(arch: str, tiny_target: Tiny) -> None:
    target = tiny_target(arch)
    tokens = text(target, 20)
    expected = forward(target.tensors, target.shape, tokens).layer_inputs
    n = target.shape.n_layer
    for ids in ((n, 0), (5, 3, 2), (4,), (n,), (0,), (2, 2, n, n)):
        with Model(target.path) as model, Context(model, ids, n_ctx=256, **EXACT) as context:
            context.decode(Batch(tokens))
            for got, layer in zip(split(context.features(), len(ids)), ids, strict=True):
                assert error(got, expected[layer]) < TOLERANCE
                others = [error(got, expected[i]) for i in range(n + 1) if i != layer]
                assert min(others) > 0.1


@pytest.mark.parametrize("arch", ["llama", "qwen2"])
@pytest.mark.parametrize("unified", [True, False])
@pytest.mark.parametrize("n_ubatch", [512, 5])
def test_two_interleaved_sequences_in_batch_order(arch: str, unified: bool, n_ubatch: int, tiny_target: Tiny) -> None:
    target = tiny_target(arch)
    ids = all_layers(target)
    texts = [text(target, 23, 2), text(target, 14, 3)]
    order = np.random.default_rng(4).permutation([0] * 23 + [1] * 14)
    refs = [forward(target.tensors, target.shape, t).layer_inputs for t in texts]
    place = [np.cumsum(order == s) - 1 for s in (0, 1)]
    expected = np.stack([refs[s][:, place[s][i]] for i, s in enumerate(order)], axis=1)
    parts = [Batch([texts[s][place[s][i]]], seq_id=int(s), outputs=[i % 3 == 0]) for i, s in enumerate(order)]
    params = {**EXACT, "n_ctx": 512, "n_ubatch": n_ubatch, "n_seq_max": 2, "kv_unified": unified}
    with Model(target.path) as model, Context(model, ids, **params) as context:
        context.decode(Batch.join(parts))
        assert same(split(context.features(), len(ids)), expected)


@pytest.mark.parametrize("arch", ["llama", "qwen2"])
@pytest.mark.parametrize("n_ubatch", [64, 4])
def test_inside_a_tree(arch: str, n_ubatch: int, tiny_target: Tiny) -> None:
    target = tiny_target(arch)
    ids = all_layers(target)
    prefix = text(target, 30)
    tree = random_tree(np.random.default_rng(5), 13, target.shape.n_vocab)
    tokens = np.concatenate([prefix, [tree.root], tree.tokens])
    mask, at = tree_mask(31, tree.parents), tree_positions(31, tree.parents)
    expected = forward(target.tensors, target.shape, tokens, at, mask)
    with Model(target.path) as model, Context(model, ids, n_ctx=256, n_ubatch=n_ubatch, **EXACT) as context:
        context.decode(Batch(prefix))
        context.decode(Batch(tree))
        assert same(split(context.features(), len(ids)), expected.layer_inputs[:, 30:])
        assert error(context.logits(), expected.logits[30:]) < TOLERANCE


@pytest.mark.parametrize("arch", ["llama", "qwen2", "gemma2", "gemma3", "llama4", "deepseek2"])
@pytest.mark.parametrize("outputs", ["none", "last", "first", "some", "all"])
def test_logits_are_those_of_a_context_without_features(arch: str, outputs: str, tiny_target: Tiny) -> None:
    """Whichever rows have logits: extraction changes neither their values nor their order.

    The last layer's output widens the last matrix products, which may round its logits another way.
    """
    target = tiny_target(arch)
    n = target.shape.n_layer
    wanted = {"none": [0] * 40, "last": None, "first": [1] + [0] * 39, "all": [1] * 40}.get(outputs, [0, 0, 1, 0] * 10)
    tokens = text(target, 40)
    with Model(target.path) as model:
        plain = Context(model, n_ctx=256, n_ubatch=16, **EXACT)
        plain.decode(Batch(tokens, outputs=wanted))
        for ids in [(1, 2)] if arch in NO_LAST_OUTPUT else [(1, 2), (n,), (0, n)]:
            with Context(model, ids, n_ctx=256, n_ubatch=16, **EXACT) as context:
                context.decode(Batch(tokens, outputs=wanted))
                rows, expected = context.logits(), plain.logits()
                assert rows.shape == expected.shape
                assert np.array_equal(rows, expected) or (n in ids and error(rows, expected) < 1e-6)
                assert context.features().shape == (40, len(ids) * model.info.n_embd)
                assert np.isfinite(context.features()).all()
        plain.close()


def head(target: TinyTarget, rows: np.ndarray) -> np.ndarray:
    """Final norm and output matrix of a tiny target, float64."""
    x = rows.astype(np.float64)
    x = x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + target.shape.eps) * target.tensors["output_norm.weight"]
    logits = x @ target.tensors.get("output.weight", target.tensors["token_embd.weight"]).T
    return 30 * np.tanh(logits / 30) if target.shape.arch == "gemma2" else logits


@pytest.mark.parametrize("arch", ["llama", "qwen2", "gemma2", "gemma3", "llama4"])
def test_the_last_output_through_norm_and_head_gives_the_logits(arch: str, tiny_target: Tiny) -> None:
    target = tiny_target(arch)
    n = target.shape.n_layer
    tokens = text(target, 50)
    with Model(target.path) as model, Context(model, (n - 1, n), n_ctx=256, n_ubatch=16, **EXACT) as context:
        context.decode(Batch(tokens, outputs=[1] * 50))
        before, last = split(context.features(), 2)
        logits = context.logits()
        assert error(head(target, last), logits) < TOLERANCE
        assert error(head(target, before), logits) > 0.1, "one layer off"
        assert error(head(target, np.roll(last, 1, axis=0)), logits) > 0.1, "one row off"


@pytest.mark.parametrize("arch", ["llama", "qwen2", "gemma2", "gemma3", "llama4", "deepseek2"])
def test_layer_zero_is_the_scaled_embedding(arch: str, tiny_target: Tiny) -> None:
    target = tiny_target(arch)
    tokens = text(target, 20)
    scale = np.sqrt(target.shape.n_embd) if arch.startswith("gemma") else 1.0
    with Model(target.path) as model, Context(model, (0, 1), n_ctx=256, n_ubatch=8, **EXACT) as context:
        context.decode(Batch(tokens))
        first, second = split(context.features(), 2)
        expected = target.tensors["token_embd.weight"][tokens] * scale
        assert error(first, expected) < TOLERANCE < error(second, expected)


@pytest.mark.parametrize("arch", ["gemma2", "gemma3", "llama4", "deepseek2"])
def test_layers_do_not_depend_on_the_way_tokens_are_decoded(arch: str, tiny_target: Tiny) -> None:
    target = tiny_target(arch)
    tokens, ids = text(target, 48), all_layers(target)
    with Model(target.path) as model, Context(model, ids, n_ctx=256, **EXACT) as context:
        context.decode(Batch(tokens))
        whole = context.features()
        context.clear()
        pieces = []
        for first in range(0, 48, 12):
            context.decode(Batch(tokens[first : first + 12]))
            pieces.append(context.features())
        assert error(np.concatenate(pieces), whole) < 1e-3
        assert error(np.roll(np.concatenate(pieces), 1, axis=0), whole) > 0.1


@pytest.mark.parametrize("arch", NO_LAST_OUTPUT)
def test_a_last_output_that_cannot_be_had_is_refused_by_name(arch: str, tiny_target: Tiny) -> None:
    target = tiny_target(arch)
    words = f"architecture {arch} does not give the output of its last layer"
    with Model(target.path) as model, pytest.raises(EagleError, match=words):
        Context(model, (target.shape.n_layer,), n_ctx=256)


def test_before_any_decode_there_are_no_rows(tiny_target: Tiny) -> None:
    """In a process of its own: this ended in an assertion of llama.cpp once."""
    code = (
        "c = Context(Model(path), (1, 6), n_ctx=256)\nassert c.features().shape == (0, 128)\nrefused(c.features, [0])"
    )
    run_python(code, tiny_target("llama").path)


def test_rows_of_the_last_decode_only(tiny_target: Tiny) -> None:
    target = tiny_target("llama")
    with Model(target.path) as model, Context(model, (1,), n_ctx=256, **EXACT) as context:
        context.decode(Batch(text(target, 3)))
        kept = context.features()
        with pytest.raises(InputError):
            context.decode(Batch([5, -1]))
        np.testing.assert_array_equal(context.features(), kept)
        for rows in ([3], [-1], [0, 1, 2, 3]):
            with pytest.raises(InputError, match="features"):
                context.features(rows)


@pytest.mark.parametrize("ids", [(7,), (-2,), (2, 99), (2**40,), ("a",), (1.5,), 5, None, (0,) * 65])
def test_bad_ids_are_input_errors(ids: Any, tiny_target: Tiny) -> None:
    with Model(tiny_target("llama").path) as model, pytest.raises(InputError):
        Context(model, ids, n_ctx=256)
