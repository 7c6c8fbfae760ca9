"""Patch 0009: products of Q4_1 with a few columns give each row of a batch what its token alone gives."""

from pathlib import Path

import numpy as np
import pytest

from llama_eagle import Batch, Context, Model
from tiny import target_shape, write_target

pytestmark = pytest.mark.native
MOST = 41


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    """Rows of 3, 4 and 6 blocks; heads and K/V of f32, so that nothing but the products may differ."""
    folder: Path = tmp_path_factory.mktemp("q4_1")
    shape = target_shape("llama", n_embd=96, n_head=4, n_head_kv=2, head_dim=32, n_ff=192, dtype="q4_1")
    return Model(write_target(folder / "target.gguf", shape).path)


def context(model: Model) -> Context:
    return Context(model, n_ctx=128, n_threads=2, type_k="f32", type_v="f32", flash_attn="off")


@pytest.fixture(scope="module")
def alone(model: Model) -> tuple[np.ndarray, np.ndarray]:
    """Tokens, and the logits behind each when every token is decoded alone."""
    tokens = np.random.default_rng(1).integers(3, model.info.n_vocab, MOST)
    rows = []
    with context(model) as one:
        for token in tokens:
            one.decode(Batch([token]))
            rows.append(one.logits()[0])
    return tokens, np.array(rows)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 24, 33, 41])
def test_a_batch_is_bitwise_its_tokens_alone(model: Model, alone: tuple[np.ndarray, np.ndarray], count: int) -> None:
    tokens, rows = alone
    with context(model) as batch:
        batch.decode(Batch(tokens[:count], outputs=[1] * count))
        np.testing.assert_array_equal(batch.logits(), rows[:count])
