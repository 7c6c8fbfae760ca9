"""Patch 0009: products of interleaved Q4_1 and Q8_0 rows give each row of a batch what its token alone gives."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from llama_eagle import Batch, Context, Model
from reference import forward
from tiny import TinyTarget, target_shape, write_target

pytestmark = pytest.mark.native
MOST = 41
ROUNDING = 0.04  # of activations to eight bits through six layers: 0.025 with vec_dot, too


@dataclass
class Alone:
    """A target, tokens, and the logits behind each when every token is decoded alone."""

    target: TinyTarget
    model: Model
    tokens: np.ndarray
    logits: np.ndarray


def context(model: Model) -> Context:
    """With K and V of f32, so that next to nothing but the products rounds."""
    return Context(model, n_ctx=128, n_threads=2, type_k="f32", type_v="f32", flash_attn="on")


@pytest.fixture(scope="module", params=[("q4_1", 272), ("q8_0", 272), ("q4_1", 275)], ids=["q4_1", "q8_0", "odd rows"])
def alone(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Alone]:
    """Rows of 3, 4 and 6 blocks; a head of 275 rows is no multiple of eight and stays as it is."""
    dtype, n_vocab = request.param
    folder: Path = tmp_path_factory.mktemp(dtype)
    sizes = {"n_embd": 96, "n_head": 4, "n_head_kv": 2, "head_dim": 32, "n_ff": 192, "n_vocab": n_vocab}
    target = write_target(folder / "target.gguf", target_shape("llama", dtype=dtype, **sizes))
    with Model(target.path) as model, context(model) as one:
        tokens = np.random.default_rng(1).integers(3, n_vocab, MOST)
        rows = []
        for token in tokens:
            one.decode(Batch([token]))
            rows.append(one.logits()[0])
        yield Alone(target, model, tokens, np.array(rows))


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 24, 33, 41])
def test_a_batch_is_bitwise_its_tokens_alone(alone: Alone, count: int) -> None:
    with context(alone.model) as batch:
        batch.decode(Batch(alone.tokens[:count], outputs=[1] * count))
        np.testing.assert_array_equal(batch.logits(), alone.logits[:count])


def test_products_are_those_of_the_stored_weights(alone: Alone) -> None:
    expected = forward(alone.target.tensors, alone.target.shape, alone.tokens).logits
    assert error(alone.logits, expected) < ROUNDING
    assert error(alone.logits, np.roll(expected, 1, axis=1)) > 1  # one row taken for another would show


def error(got: np.ndarray, expected: np.ndarray) -> float:
    """Root mean square, relative to the spread of what is expected."""
    return float(np.sqrt(((got - expected) ** 2).mean()) / expected.std())
