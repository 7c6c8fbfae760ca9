"""Every layout of tiny/layouts.py, converted and run through the package: a prompt, three chained steps, a small tree.

The numbers expected are those of the checkpoint itself (reference/checkpoint_net.py), which never sees the GGUF.
"""

from dataclasses import replace

import numpy as np
import pytest

from heads import EXACT, TOLERANCE, error
from llama_eagle import Batch, Context, Model
from llama_eagle.conversion.converter import convert
from reference import rope_divisors
from reference.checkpoint_net import CheckpointNet
from test_rope import yarn_divisor
from tiny import target_shape, write_folder, write_target
from tiny.layouts import CASES, HIDDEN, VOCAB

pytestmark = pytest.mark.native
ROWS, STEPS = 11, 3
TREE, LEVELS = (-1, -1, 0, 1, 1, 2, 4), ((0, 1), (2, 3, 4), (5, 6))  # parents of the nodes
RUNS = [*((case, True) for case in CASES), *((case, False) for case in CASES if CASES[case]().arch == "eagle")]


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    shape = target_shape("llama", n_embd=HIDDEN, n_layer=12, n_head=2, n_head_kv=1, n_ff=32, n_vocab=VOCAB)
    return write_target(tmp_path_factory.mktemp("target") / "target.gguf", shape)


@pytest.mark.parametrize(("case", "with_target"), RUNS)
def test_the_converted_head_computes_what_the_checkpoint_does(tmp_path, target, case, with_target):
    draft = CASES[case]()
    net = CheckpointNet(draft, target.tensors["token_embd.weight"], target.tensors["output.weight"])
    check(tmp_path, net, target, target.path if with_target else None)


def rope_cases():
    """Config of a scaling, and what it means for the network: divisors, magnitude, rotated entries."""
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}
    llama3 = {
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    }  # fmt: skip
    linear = {"type": "linear", "factor": 4.0}
    stretched = [yarn_divisor(i, 16, 1e4, yarn) for i in range(8)]
    return {
        "yarn": ({"rope_scaling": yarn}, (stretched, 0.1 * np.log(4) + 1, 0)),
        "llama3": (
            {"rope_scaling": llama3}, (rope_divisors({"rope_theta": 1e4, "rope_scaling": llama3}, 16), 1.0, 0),
        ),
        "linear": ({"rope_scaling": linear}, (4.0, 1.0, 0)),
        "dynamic": ({"rope_scaling": {"type": "dynamic", "factor": 4.0}}, (1.0, 1.0, 0)),
        "partial": ({"partial_rotary_factor": 0.5}, (1.0, 1.0, 8)),
    }  # fmt: skip


@pytest.mark.parametrize("case", list(rope_cases()))
def test_rope_scalings_reach_the_network(tmp_path, target, case):
    changes, (divisors, magnitude, rotated) = rope_cases()[case]
    draft = CASES["vllm_layers"]()
    draft = replace(draft, config={**draft.config, **changes})
    net = CheckpointNet(draft, target.tensors["token_embd.weight"], target.tensors["output.weight"])
    net.divisors, net.magnitude, net.rotated = divisors, magnitude, rotated
    check(tmp_path, net, target, target.path)


def check(tmp_path, net, target, given):
    """Converts the net's checkpoint for the target that is given and compares both."""
    draft = net.draft
    folder = write_folder(tmp_path / "draft", draft.config, draft.state)
    convert(folder, given, tmp_path / "head.gguf", "f32")
    rng = np.random.default_rng(5)
    tokens = list(rng.integers(3, VOCAB, ROWS))
    features = rng.standard_normal((ROWS, HIDDEN * len(draft.layers))).astype(np.float32)
    model = Model(tmp_path / "head.gguf", target=Model(target.path))
    with Context(model, **EXACT) as context:
        g = context.encode(features)
        expected = net.encode(features.astype(np.float64))
        assert error(g, expected) < TOLERANCE
        context.decode(Batch(tokens, embd=g))
        for _ in range(STEPS):
            fed, logits = net.run(tokens, expected)
            assert error(context.logits()[-1], logits[-1]) < TOLERANCE
            assert error(context.hidden()[-1], fed[-1]) < TOLERANCE
            tokens.append(int(net.target_ids[logits[-1].argmax()]))
            expected = np.concatenate([expected, fed[-1:]])
            context.decode(Batch(tokens[-1:], embd=context.hidden()[-1:]))
        check_tree(context, net, tokens, expected)


def check_tree(context, net, tokens, g):
    """Decodes TREE level by level behind the last token; each node's row must be that of its path, run alone."""
    past, paths, got = context.n_past(), {-1: (tokens, g)}, {-1: context.hidden()[-1]}
    for level in LEVELS:
        parents = [TREE[node] for node in level]
        ids = [int(net.target_ids[7 * node % len(net.target_ids)]) for node in level]
        embd = np.stack([got[parent] for parent in parents])
        context.decode(Batch(ids, embd=embd, parents=parents, outputs=[1] * len(ids)))
        for row, (node, parent) in enumerate(zip(level, parents, strict=True)):
            before, features = paths[parent]
            fed, _ = net.run(before, features)
            paths[node] = ([*before, ids[row]], np.concatenate([features, fed[-1:]]))
            fed, logits = net.run(*paths[node])
            assert error(context.logits()[row], logits[-1]) < TOLERANCE
            assert error(context.hidden()[row], fed[-1]) < TOLERANCE
            got[node] = context.hidden()[row]
    assert context.n_nodes() == len(TREE)
    context.rollback()
    assert context.cells_used() == past
