"""Nodes that a grammar forbids leave a tree before it is decoded: against clones of the sampler, and in whole texts."""

from collections.abc import Callable

import numpy as np
import pytest

from llama_eagle import Engine, InputError, Model, Sampler, SamplingParams
from llama_eagle.ffi import C, ffi
from tiny import TinyPair, TinyTarget

pytestmark = pytest.mark.native

GRAMMARS = ("root ::= [a-f]*", 'root ::= "ab" [a-z]+ "."', 'root ::= ("a" | "bc" [d-f])*', 'root ::= "abc"')


@pytest.fixture(scope="module")
def model(tiny_target: Callable[..., TinyTarget]) -> Model:
    return Model(tiny_target("llama", n_vocab=480).path)


Node = tuple[int, int, int]  # token, parent, depth


def random_tree(seed: int, ends: list[int]) -> list[Node]:
    """Level order, siblings unlike; mostly letters that a grammar may like."""
    rng = np.random.default_rng(seed)
    nodes: list[Node] = []
    level = [-1]
    for depth in range(1, 5):
        first = len(nodes)
        for parent in level:
            choices = [*range(ord("a"), ord("h")), ord("."), *ends, 470]
            for token in rng.choice(choices, int(rng.integers(0, 4)), replace=False):
                nodes.append((int(token), parent, depth))
        level = list(range(first, len(nodes)))
    return nodes


def kept(sampler: Sampler, nodes: list[Node]) -> list[Node]:
    """The definition: a node stays when its parent stays and a sampler behind that one takes its token."""
    behind: dict[int, Sampler] = {-1: sampler}
    number = {-1: -1}
    out: list[Node] = []
    for node, (token, parent, depth) in enumerate(nodes):
        if parent not in behind:
            continue
        clone = behind[parent].clone()
        try:
            clone.accept(token)
        except InputError:
            continue
        number[node] = len(out)
        out.append((token, number[parent], depth))
        behind[node] = clone
    return out


def prune(sampler: Sampler, nodes: list[Node]) -> list[Node]:
    arrays = np.array([*zip(*nodes, strict=True)], np.int32).reshape(3, -1).copy()
    rows = [ffi.cast("int32_t *", row.ctypes.data) for row in arrays]
    scores = ffi.new("float[]", max(len(nodes), 1))
    tree = ffi.new("eagle_tree *", (len(nodes), *rows, scores))
    assert C.eagle_prune(sampler.handle, tree) == C.EAGLE_OK
    return [tuple(int(x) for x in column) for column in arrays[:, : tree.n].T]  # type: ignore[misc]


@pytest.mark.parametrize("grammar", GRAMMARS)
def test_what_stays(model: Model, grammar: str) -> None:
    ends = [token for token in range(model.info.n_vocab) if model.is_eog(token)]
    removed = 0
    for seed in range(40):
        with Sampler(model, SamplingParams(grammar=grammar, seed=1)) as sampler:
            if seed % 3 == 0:
                sampler.accept(ord("a"))
            nodes = random_tree(seed, ends)
            expected = kept(sampler, nodes)
            assert prune(sampler, nodes) == expected
            removed += len(nodes) - len(expected)
            assert sampler.emitted == (seed % 3 == 0)
    assert removed > 100


def test_without_a_grammar_everything_stays(model: Model) -> None:
    nodes = random_tree(3, [])
    with Sampler(model, SamplingParams(seed=1)) as sampler:
        assert prune(sampler, nodes) == nodes


def test_fewer_nodes_are_decoded_and_the_text_stays(tiny_good_pair: TinyPair) -> None:
    params = SamplingParams(seed=4, grammar="root ::= [a-e]{40}", temperature=1.0)
    texts, drafted = [], []
    for spec in ("tree", "off"):
        with Engine(tiny_good_pair.target.path, tiny_good_pair.path, n_ctx=256, spec=spec, n_threads=1) as engine:
            result = engine.generate("Letters:", params)
            texts.append(result.tokens)
            drafted.append(max(map(int, result.spec.shapes.keys() - {"plain"}), default=0))
    assert texts[0] == texts[1]
    assert drafted[0] < 16
