"""The last hidden state after the final norm as a feature: EAGLE-1 and EAGLE-2 read it for every token of a prompt."""

from collections.abc import Callable

import numpy as np
import pytest

from heads import EXACT, TOLERANCE, error
from llama_eagle import POST_NORM, Batch, Context, EagleError, Model
from reference import forward, tree_mask, tree_positions
from tiny import TinyTarget
from trees import random_tree

Tiny = Callable[..., TinyTarget]


def tokens_of(target: TinyTarget, count: int = 40) -> np.ndarray:
    return np.random.default_rng(1).integers(3, target.shape.n_vocab, count).astype(np.int32)


@pytest.mark.parametrize("arch", ["llama", "qwen2"])
@pytest.mark.parametrize("n_ubatch", [512, 7, 1])
def test_every_row_equals_the_reference(arch: str, n_ubatch: int, tiny_target: Tiny) -> None:
    target = tiny_target(arch)
    tokens = tokens_of(target)
    out = forward(target.tensors, target.shape, tokens)
    with Model(target.path) as model, Context(model, (POST_NORM,), n_ubatch=n_ubatch, **EXACT) as context:
        context.decode(Batch(tokens))
        assert error(context.features(), out.hidden) < TOLERANCE
        assert error(context.features(), out.layer_inputs[-1]) > 0.1, "before the norm"
        assert error(np.roll(context.features(), 1, axis=0), out.hidden) > 0.1, "one row off"
        assert error(context.features([39, 2]), out.hidden[[39, 2]]) < TOLERANCE
        assert error(context.logits(), out.logits[-1:]) < TOLERANCE


@pytest.mark.parametrize("ids", [(2, 5, POST_NORM), (POST_NORM, 6, 0), (POST_NORM, POST_NORM, 6), (6,)])
def test_mixed_with_layer_inputs(ids: tuple[int, ...], tiny_target: Tiny) -> None:
    target = tiny_target("llama")
    tokens = tokens_of(target)
    out = forward(target.tensors, target.shape, tokens)
    with Model(target.path) as model, Context(model, ids, n_ubatch=16, **EXACT) as context:
        context.decode(Batch(tokens, outputs=[0, 1] * 20))
        for got, i in zip(np.split(context.features(), len(ids), axis=1), ids, strict=True):
            assert error(got, out.hidden if i == POST_NORM else out.layer_inputs[i]) < TOLERANCE
        assert error(context.logits(), out.logits[1::2]) < TOLERANCE


@pytest.mark.parametrize("arch", ["llama", "qwen2", "gemma2", "gemma3", "llama4"])
@pytest.mark.parametrize("wanted", [None, [1] * 40, [0] * 40, [0, 0, 1, 0] * 10], ids=["last", "all", "none", "some"])
def test_the_head_turns_it_into_the_logits(arch: str, wanted: list[int] | None, tiny_target: Tiny) -> None:
    target = tiny_target(arch)
    tokens = tokens_of(target)
    output = target.tensors.get("output.weight", target.tensors["token_embd.weight"])
    with Model(target.path) as model:
        with Context(model, n_ubatch=16, **EXACT) as plain:
            plain.decode(Batch(tokens, outputs=wanted))
            expected = plain.logits()
        with Context(model, (POST_NORM,), n_ubatch=16, **EXACT) as context:
            context.decode(Batch(tokens, outputs=wanted))
            logits = context.features().astype(np.float64) @ output.T
            logits = 30 * np.tanh(logits / 30) if arch == "gemma2" else logits
            rows = [39] if wanted is None else np.flatnonzero(wanted)
            assert context.logits().shape == expected.shape
            if len(rows):
                assert error(context.logits(), expected) < 1e-6
                assert error(logits[rows], expected) < TOLERANCE


def test_two_sequences_in_batch_order(tiny_target: Tiny) -> None:
    target = tiny_target("llama")
    texts = [tokens_of(target, 20), tokens_of(target, 20)[::-1]]
    order = [0, 1, 1, 0] * 10
    place = [sum(order[:i][k] == s for k in range(i)) for i, s in enumerate(order)]
    expected = [forward(target.tensors, target.shape, t).hidden for t in texts]
    with Model(target.path) as model, Context(model, (POST_NORM,), n_seq_max=2, n_ubatch=6, **EXACT) as context:
        parts = [Batch([texts[s][p]], seq_id=s, outputs=[1]) for s, p in zip(order, place, strict=True)]
        context.decode(Batch.join(parts))
        rows = np.stack([expected[s][p] for s, p in zip(order, place, strict=True)])
        assert error(context.features(), rows) < TOLERANCE < error(np.roll(context.features(), 1, axis=0), rows)


def test_inside_a_tree(tiny_target: Tiny) -> None:
    target = tiny_target("llama")
    prefix = tokens_of(target, 30)
    tree = random_tree(np.random.default_rng(5), 13, target.shape.n_vocab)
    tokens = np.concatenate([prefix, [tree.root], tree.tokens])
    expected = forward(
        target.tensors, target.shape, tokens, tree_positions(31, tree.parents), tree_mask(31, tree.parents)
    )
    with Model(target.path) as model, Context(model, (POST_NORM,), n_ubatch=8, **EXACT) as context:
        context.decode(Batch(prefix))
        context.decode(Batch(tree))
        assert error(context.features(), expected.hidden[30:]) < TOLERANCE


def test_refused_by_name_where_it_cannot_be_had(tiny_target: Tiny) -> None:
    with Model(tiny_target("deepseek2").path) as model, pytest.raises(EagleError, match="architecture deepseek2"):
        Context(model, (POST_NORM,), **EXACT)
