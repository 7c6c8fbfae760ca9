"""Patch 0009: products of interleaved rows give each row of a batch what its token alone gives, in all its types."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType
from gguf.quants import dequantize

from gguf_edit import GgufFile
from llama_eagle import Batch, Context, Model
from llama_eagle.ffi import C, ffi
from reference import forward
from tiny import TinyTarget, target_shape, write_target

pytestmark = pytest.mark.native
MOST = 41
ROUNDING = 0.05  # of activations to eight bits through six layers: 0.025, or 0.042 where 256 values share a scale


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


@pytest.fixture(scope="module", params=["q4_0", "q4_1", "q5_0", "q8_0", "q4_k", "q6_k", "odd rows"])
def alone(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Alone]:
    """A head of 275 rows is no multiple of eight and stays as it is."""
    odd = request.param == "odd rows"
    kind = GGMLQuantizationType["Q4_1" if odd else request.param.upper()]
    n_vocab = 275 if odd else 272
    target = quantized(tmp_path_factory.mktemp(kind.name) / "target.gguf", kind, n_vocab)
    with Model(target.path) as model, context(model) as one:
        tokens = np.random.default_rng(1).integers(3, n_vocab, MOST)
        rows = []
        for token in tokens:
            one.decode(Batch([token]))
            rows.append(one.logits()[0])
        yield Alone(target, model, tokens, np.array(rows))


def quantized(path: Path, kind: GGMLQuantizationType, n_vocab: int) -> TinyTarget:
    """A target with matrices quantised by the library: rows of 3, 4 and 6 blocks of 32 values, or of 1 and 2 of 256."""
    small = {"n_embd": 96, "n_head": 4, "n_head_kv": 2, "head_dim": 32, "n_ff": 192}
    large = {"n_embd": 256, "n_head": 4, "n_head_kv": 4, "head_dim": 64, "n_ff": 512}
    sizes = large if kind.name.endswith("K") else small
    target = write_target(path, target_shape("llama", n_vocab=n_vocab, **sizes))
    file = GgufFile(path.read_bytes())
    parts: list[bytes] = []
    for entry in file.tensors:
        name, values = entry.name.decode(), target.tensors[entry.name.decode()]
        stored = values.tobytes()
        if values.ndim > 1:
            blocks = np.zeros((len(values), C.eagle_row_size(kind, values.shape[1])), np.uint8)
            source, out = ffi.from_buffer("float[]", values), ffi.cast("void *", blocks.ctypes.data)
            assert C.eagle_quantize(kind, source, out, *values.shape) == 0
            target.tensors[name], stored, entry.kind = dequantize(blocks, kind), blocks.tobytes(), kind
        entry.offset = sum(map(len, parts))
        parts.append(stored + bytes(-len(stored) % 32))
    file.data = b"".join(parts)
    path.write_bytes(bytes(file))
    return target


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 17, 33, 41])
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
