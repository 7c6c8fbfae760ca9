"""The references against themselves: identities that break when a layer, row or mask is off."""

import itertools
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from reference import (
    Eagle3,
    Limits,
    causal_mask,
    chunk_mask,
    forward,
    grow_reference,
    grow_scores,
    tree_mask,
    tree_positions,
    window_mask,
)
from reference.growth import log_softmax
from reference.layers import rms_norm
from tiny import HeadShape, TinyPair, TinyTarget, random_head

PARENTS = [-1, -1, 0, 0, 1, 2, 4]
PREFIX = [72, 101, 108, 108, 111]
NODES = [32, 33, 119, 120, 121, 122, 123]


def path_to(node: int) -> list[int]:
    """Nodes from a child of the root down to `node`."""
    path: list[int] = []
    while node >= 0:
        path.insert(0, node)
        node = PARENTS[node]
    return path


@pytest.mark.parametrize("arch", ["llama", "qwen2"])
def test_tree_rows_equal_their_paths_as_sequences(arch: str, tiny_target: Callable[..., TinyTarget]) -> None:
    target = tiny_target(arch)
    tree = forward(target.tensors, target.shape, PREFIX + NODES, tree_positions(5, PARENTS), tree_mask(5, PARENTS))
    for node in range(len(NODES)):
        plain = forward(target.tensors, target.shape, PREFIX + [NODES[i] for i in path_to(node)])
        np.testing.assert_allclose(tree.logits[5 + node], plain.logits[-1], rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(tree.layer_inputs[:, 5 + node], plain.layer_inputs[:, -1], rtol=1e-9, atol=1e-9)


def test_a_visible_sibling_changes_the_logits(tiny_target: Callable[..., TinyTarget]) -> None:
    target, mask = tiny_target("llama"), tree_mask(5, PARENTS)
    clean = forward(target.tensors, target.shape, PREFIX + NODES, tree_positions(5, PARENTS), mask)
    mask[5 + 3, 5 + 2] = True
    leaky = forward(target.tensors, target.shape, PREFIX + NODES, tree_positions(5, PARENTS), mask)
    assert np.abs(leaky.logits[5 + 3] - clean.logits[5 + 3]).max() > 0.1


@pytest.mark.parametrize("arch", ["llama", "qwen2"])
def test_last_layer_input_through_norm_and_head_gives_the_logits(
    arch: str, tiny_target: Callable[..., TinyTarget]
) -> None:
    target = tiny_target(arch)
    out = forward(target.tensors, target.shape, PREFIX)
    assert out.layer_inputs.shape == (target.shape.n_layer + 1, len(PREFIX), target.shape.n_embd)
    np.testing.assert_array_equal(out.layer_inputs[0], target.tensors["token_embd.weight"][PREFIX].astype(np.float64))

    def logits(layer: int) -> np.ndarray:
        hidden = rms_norm(out.layer_inputs[layer], target.tensors["output_norm.weight"], target.shape.eps)
        return hidden @ target.tensors["output.weight"].T.astype(np.float64)

    np.testing.assert_allclose(logits(-1), out.logits, rtol=1e-12, atol=1e-12)
    assert np.abs(logits(-2) - out.logits).max() > 0.1


def test_both_rope_layouts_agree_on_permuted_weights(tiny_target: Callable[..., TinyTarget]) -> None:
    target = tiny_target("llama")
    halves = np.concatenate([np.arange(0, 16, 2), np.arange(1, 16, 2)])
    moved = dict(target.tensors)
    for name, weight in target.tensors.items():
        if name.endswith(("attn_q.weight", "attn_k.weight")):
            heads = weight.reshape(-1, 16, weight.shape[1])
            moved[name] = heads[:, halves].reshape(weight.shape)
    neox = forward(moved, replace(target.shape, arch="qwen2"), PREFIX).logits
    norm = forward(target.tensors, target.shape, PREFIX).logits
    np.testing.assert_allclose(neox, norm, rtol=1e-9, atol=1e-9)
    wrong = forward(moved, target.shape, PREFIX).logits
    assert np.abs(wrong - norm).max() > 0.1


def test_positions_are_relative_and_a_window_hides(tiny_target: Callable[..., TinyTarget]) -> None:
    target, tokens = tiny_target("llama"), list(range(40, 60))
    at = np.arange(20)
    plain = forward(target.tensors, target.shape, tokens).logits
    np.testing.assert_allclose(
        forward(target.tensors, target.shape, tokens, at + 100).logits, plain, rtol=1e-7, atol=1e-7
    )
    windowed = forward(target.tensors, target.shape, tokens, at, causal_mask(at) & window_mask(at, 4)).logits
    np.testing.assert_allclose(windowed[:4], plain[:4], rtol=1e-12, atol=1e-12)
    assert np.abs(windowed[4] - plain[4]).max() > 0.1


def test_masks_by_hand() -> None:
    assert window_mask([0, 1, 2, 3], 2)[3].tolist() == [False, False, True, True]
    assert chunk_mask([6, 7, 8], 8).tolist() == [[True, True, False], [True, True, False], [False, False, True]]
    assert tree_mask(2, [-1, -1, 1]).astype(int).tolist() == [
        [1, 0, 0, 0, 0],
        [1, 1, 0, 0, 0],
        [1, 1, 1, 0, 0],
        [1, 1, 0, 1, 0],
        [1, 1, 0, 1, 1],
    ]
    assert tree_positions(2, [-1, -1, 1]).tolist() == [0, 1, 2, 2, 3]


def head_inputs(pair: TinyPair) -> tuple[Eagle3, list[int], np.ndarray]:
    """A fresh network, the tokens that follow each feature (the last is the root), and the encoded features."""
    target = pair.target
    tokens = [*PREFIX, 44, 45]
    out = forward(target.tensors, target.shape, tokens)
    net = Eagle3(pair.state, pair.head, target.tensors["token_embd.weight"])
    features = np.concatenate([out.layer_inputs[i] for i in pair.head.layers], axis=1)
    return net, [*tokens[1:], int(out.logits[-1].argmax())], net.encode(features)


def test_head_in_pieces_equals_head_at_once(tiny_pair: TinyPair) -> None:
    net, tokens, g = head_inputs(tiny_pair)
    hidden, logits = net.decode(tokens, g, np.arange(7))
    net.truncate(0)
    for i in range(7):
        one_hidden, one_logits = net.decode(tokens[i : i + 1], g[i : i + 1], [i])
        np.testing.assert_allclose(one_hidden[0], hidden[i], rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(one_logits[0], logits[i], rtol=1e-9, atol=1e-9)


def test_draft_ids_map_to_target_ids(tiny_pair: TinyPair) -> None:
    net, tokens, g = head_inputs(tiny_pair)
    full = net.scatter(net.decode(tokens, g, np.arange(7))[1])
    assert full.shape == (7, tiny_pair.head.n_vocab)
    np.testing.assert_array_equal(np.isfinite(full[0]), tiny_pair.state["t2d"])
    assert (net.target_ids != np.arange(len(net.target_ids))).any()


@pytest.mark.parametrize("field", ["norm_before_residual", "norm_before_fc"])
def test_variants_of_the_head_differ(field: str, tiny_pair: TinyPair) -> None:
    net, tokens, _ = head_inputs(tiny_pair)
    shape = replace(tiny_pair.head, **{field: True})
    other = Eagle3(random_head(shape), shape, net.embeddings)
    features = np.random.default_rng(0).standard_normal((7, 3 * 64))
    logits = [n.decode(tokens, n.encode(features), np.arange(7))[1] for n in (net, other)]
    assert np.abs(logits[0] - logits[1]).max() > 0.1


def test_head_of_another_width_brings_its_embeddings() -> None:
    shape = HeadShape(n_embd=96, own_embeddings=True)
    net = Eagle3(random_head(shape), shape)
    assert net.decode([1, 2], net.encode(np.ones((2, 192))), [0, 1])[0].shape == (2, 96)
    with pytest.raises(ValueError, match="own_embeddings"):
        HeadShape(n_embd=96)
    with pytest.raises(ValueError, match="embeddings"):
        Eagle3(random_head(HeadShape()), HeadShape())


def test_growth_with_a_full_beam_equals_enumeration() -> None:
    rng = np.random.default_rng(7)
    table = {
        path: log_softmax(rng.standard_normal((1, 3)))[0]
        for n in range(3)
        for path in itertools.product(range(3), repeat=n)
    }

    def score(path: tuple[int, ...]) -> float:
        return float(sum(table[path[:i]][path[i]] for i in range(len(path))))

    def word(flat: int, pool: list) -> tuple[int, ...]:
        return () if flat < 0 else (*word(pool[flat].parent, pool), pool[flat].token)

    # depth 2 with a beam of all three children misses no candidate, so the tree is the best nodes of the whole table
    tree = grow_scores(table[()], lambda beam, pool: np.stack([table[word(i, pool)] for i in beam]), Limits(7, 2, 3))
    paths = [p for n in (1, 2) for p in itertools.product(range(3), repeat=n)]
    best = sorted(paths, key=score, reverse=True)[:7]
    words: list[tuple[int, ...]] = []
    for token, parent in zip(tree.ids, tree.parents, strict=True):
        words.append((*(words[parent] if parent >= 0 else ()), int(token)))
    assert sorted(words) == sorted(best)
    np.testing.assert_allclose(tree.scores, [score(w) for w in words])
    assert tree.depths.tolist() == sorted(len(w) for w in words)


def test_ties_go_to_the_smaller_flat_index() -> None:
    flat = np.log(np.full(4, 0.25))
    certain = np.array([-np.inf, 0.0, -np.inf, -np.inf])
    tree = grow_scores(flat, lambda beam, pool: np.stack([certain] * len(beam)), Limits(4, 2, 2))
    # every node's child scores as much as the node: parents come first, then the first beam row's child
    assert tree.ids.tolist() == [0, 1, 1, 1]
    assert tree.parents.tolist() == [-1, -1, 0, 1]


def test_tree_scores_equal_chains_of_a_fresh_head(tiny_pair: TinyPair) -> None:
    net, tokens, g = head_inputs(tiny_pair)
    tree = grow_reference(net, tokens, g, 0, Limits(nodes=10, depth=4, top_k=3))
    assert net.length == 7
    assert len(tree.ids) == 10
    assert (tree.parents < np.arange(10)).all()
    assert (np.diff(tree.depths) >= 0).all()
    assert tree.depths.max() > 1
    for node in range(10):
        path, up = [], node
        while up >= 0:
            path.insert(0, up)
            up = int(tree.parents[up])
        net.truncate(0)
        hidden, logits = net.decode(tokens, g, np.arange(7))
        total, fed = 0.0, hidden[-1:]
        for step, i in enumerate(path):
            total += float(log_softmax(logits[-1:])[0, tree.ids[i]])
            fed, logits = net.decode(net.target_ids[tree.ids[i : i + 1]], fed, [7 + step])
        assert total == pytest.approx(float(tree.scores[node]), rel=1e-9)


def test_chain_is_the_tree_of_width_one(tiny_pair: TinyPair) -> None:
    net, tokens, g = head_inputs(tiny_pair)
    tree = grow_reference(net, tokens, g, 0, Limits(nodes=4, depth=4, top_k=1))
    assert tree.parents.tolist() == [-1, 0, 1, 2]
    assert tree.depths.tolist() == [1, 2, 3, 4]


def test_the_good_head_guesses_its_target(tiny_good_pair: TinyPair) -> None:
    target, net = tiny_good_pair.target, head_inputs(tiny_good_pair)[0]
    tokens = [72]
    for _ in range(40):  # greedy text of the target
        tokens.append(int(forward(target.tensors, target.shape, tokens).logits[-1].argmax()))
    out = forward(target.tensors, target.shape, tokens)
    features = np.concatenate([out.layer_inputs[i] for i in tiny_good_pair.head.layers], axis=1)
    _, logits = net.decode(tokens[1:], net.encode(features)[:-1], np.arange(40))
    guesses = net.target_ids[logits.argmax(axis=1)]
    hits = float(np.mean(guesses == out.logits[1:].argmax(axis=1)))
    assert 0.3 < hits < 1.0
