"""Kept graphs: sizes that take turns build none anew, and every number is that of a graph built for it."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from llama_eagle import Batch, Context, Engine, Model, SamplingParams
from loops import EXACT, prompt
from tiny import TinyPair, TinyTarget

pytestmark = pytest.mark.native

Tiny = Callable[..., TinyTarget]
SIZES = (1, 4, 2, 9, 3, 17, 1, 5, 64)
GREEDY = SamplingParams(temperature=0, max_tokens=60, ignore_eos=True)


@pytest.fixture(scope="module")
def model(tiny_target: Tiny) -> Model:
    return Model(tiny_target("llama", n_ctx_train=8192).path)


@pytest.fixture
def twins(model: Model, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Context, Context]]:
    """A context that keeps graphs, and one that builds each anew."""
    params: dict[str, Any] = {"n_ctx": 1024, "n_seq_max": 2, **EXACT}
    with Context(model, (1, 2), **params) as keeps:
        monkeypatch.setenv("LLAMA_GRAPH_REUSE_DISABLE", "1")
        with Context(model, (1, 2), **params) as builds:
            yield keeps, builds


def decode_alike(twins: tuple[Context, Context], size: int, seq_id: int = 0) -> None:
    words = np.random.default_rng(size).integers(3, 200, size)
    rows = []
    for context in twins:
        context.decode(Batch(words, seq_id=seq_id, outputs=np.ones(size, np.int8)))
        rows.append((context.logits(), context.features()))
    assert all(np.array_equal(a, b) for a, b in zip(*rows, strict=True))


def take_back(twins: tuple[Context, Context], keep: int) -> None:
    for context in twins:
        context.seq_rm(0, keep)


def test_sizes_in_turn(twins: tuple[Context, Context]) -> None:
    decode_alike(twins, 20)
    built = []
    for _ in range(4):
        for size in SIZES:
            decode_alike(twins, size)
            take_back(twins, 20)
        built.append(twins[0].stats().n_built)
    assert built == [1 + len(set(SIZES))] * 4
    assert twins[0].stats().n_reused == 4 * len(SIZES) - len(set(SIZES))
    assert twins[1].stats().n_reused == 0
    assert twins[1].stats().n_built == 1 + 4 * len(SIZES)


def test_more_sizes_than_are_kept(twins: tuple[Context, Context]) -> None:
    decode_alike(twins, 20)
    for _ in range(2):
        for size in range(1, 25):
            decode_alike(twins, size)
            take_back(twins, 20)
    assert twins[0].stats().n_reused == 0
    decode_alike(twins, 24)
    assert twins[0].stats().n_reused == 1


def test_a_prompt_between(twins: tuple[Context, Context]) -> None:
    """Its graph lies in the same memory; the cache grows past the cells that the kept graphs see."""
    for past in (20, 300):
        decode_alike(twins, past)
        for size in SIZES:
            decode_alike(twins, size)
            take_back(twins, past)
        decode_alike(twins, 100)
        for size in SIZES:
            decode_alike(twins, size)
        take_back(twins, 0)


def test_another_sequence_and_a_shift(twins: tuple[Context, Context]) -> None:
    decode_alike(twins, 40)
    for size in SIZES:
        decode_alike(twins, size)
    for context in twins:
        context.shift(10, 16)  # is computed by a graph of its own
    for size in SIZES:
        decode_alike(twins, size)
        decode_alike(twins, size, seq_id=1)
    for context in twins:
        context.seq_cp(0, 1)
    for size in SIZES:
        decode_alike(twins, size, seq_id=1)


def test_a_draft_encodes_and_decodes_in_turn(tiny_pair: TinyPair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Encoder and decoder share sizes and memory, and a large batch comes between."""
    with Model(tiny_pair.target.path) as target, Model(tiny_pair.path, target=target) as head:
        outcomes = []
        for disabled in ("0", "1"):
            monkeypatch.setenv("LLAMA_GRAPH_REUSE_DISABLE", disabled)
            with Context(head, n_ctx=1024, **EXACT) as draft:
                rng = np.random.default_rng(0)
                rows: list[np.ndarray] = []
                for size in (3, 2, 3, 500, 2, 3, 1, 64, 3):
                    g = draft.encode(rng.normal(size=(size, draft.feature_width)))
                    draft.decode(Batch(rng.integers(3, 200, size), embd=g))
                    rows += [g, draft.logits(), draft.hidden()]
                outcomes.append(rows)
    assert all(np.array_equal(a, b) for a, b in zip(*outcomes, strict=True))


CHILD = """
import sys
from llama_eagle import Engine, SamplingParams
from loops import EXACT, prompt
for spec in ("tree", "chain"):
    with Engine(sys.argv[1], sys.argv[2], spec=spec, n_ctx=512, **EXACT) as engine:
        print(engine.generate(prompt(30), SamplingParams(temperature=0, max_tokens=60, ignore_eos=True)).tokens)
"""


def test_texts_without_kept_graphs(tiny_good_pair: TinyPair) -> None:
    files = str(tiny_good_pair.target.path), str(tiny_good_pair.path)
    texts = []
    for disabled in ("0", "1"):
        environment = {**os.environ, "LLAMA_GRAPH_REUSE_DISABLE": disabled, "PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, "-c", CHILD, *files]
        here = Path(__file__).parent
        texts.append(subprocess.run(command, check=True, capture_output=True, env=environment, cwd=here).stdout)
    assert texts[0] == texts[1]


@pytest.mark.parametrize("options", [{"spec": "tree", "draft_nodes": 8}, {"spec": "chain", "draft_max": 3}], ids=str)
def test_no_graph_is_built_in_steady_state(tiny_good_pair: TinyPair, options: dict[str, Any]) -> None:
    with Engine(tiny_good_pair.target.path, tiny_good_pair.path, n_ctx=512, **options, **EXACT) as engine:
        first = engine.generate(prompt(30), GREEDY).spec
        assert first.graphs_built + first.graphs_reused > 3 * first.steps
        again = engine.generate(prompt(30), GREEDY).spec
        assert again.graphs_built == 0
        assert again.graphs_reused == first.graphs_built + first.graphs_reused
        assert again.as_dict()["graphs_built"] == 0
