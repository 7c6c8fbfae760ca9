"""scripts/random_target.py: files that the library loads, of the types llama.cpp's quantiser would choose."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import gguf
import numpy as np
import pytest

from random_target import SHAPES, Shape, tensor_type, tensors, write_target
from tiny import target_shape
from tiny import write_target as write_tiny

SMALL = Shape("llama", 4, 256, 256, 2, 1, 300, 10000.0, tied=True)


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("vocabulary") / "v.gguf", target_shape("llama")).path


@pytest.mark.parametrize("kind", ["f16", "q4_k_m", "q8_0"])
@pytest.mark.parametrize(
    "shape", [SMALL, replace(SMALL, arch="qwen2", tied=False, biases=True)], ids=["llama", "qwen2"]
)
def test_it_loads_and_decodes(tmp_path, vocabulary, requires_native, shape, kind):
    from llama_eagle import Batch, Context, Model  # noqa: PLC0415

    path = tmp_path / "t.gguf"
    write_target(path, shape, kind, vocabulary, 0)
    model = Model(path)
    assert (model.info.n_vocab, model.info.n_layer) == (300, 4)
    assert model.tokenize("hello") == Model(vocabulary).tokenize("hello")
    with Context(model, n_ctx=64) as context:
        context.decode(Batch([5, 6, 299]))
        row = context.logits()[-1]
    assert np.isfinite(row).all()
    assert row.std() > 0.1


def test_equal_seeds_give_equal_files(tmp_path, vocabulary):
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        write_target(tmp_path / name, SMALL, "f16", vocabulary, seed)
    a, b, c = ((tmp_path / name).read_bytes() for name in "abc")
    assert a == b
    assert len(a) == len(c)
    assert a != c


def test_q4_k_m_is_the_mixture_of_llama_cpp():
    """As llama-quantize gave for networks of these layers, tied and not, in f16."""
    shape = SHAPES["llama-1b"]
    kinds = {name: tensor_type(name, size, "q4_k_m", shape) for name, size in tensors(shape).items()}
    six = Counter(name.split(".")[-2] for name, kind in kinds.items() if kind == gguf.GGMLQuantizationType.Q6_K)
    assert six == {"token_embd": 1, "attn_v": 8, "ffn_down": 8}
    untied = {
        name: tensor_type(name, size, "q4_k_m", SHAPES["llama3-8b"])
        for name, size in tensors(SHAPES["llama3-8b"]).items()
    }
    assert untied["output.weight"] == gguf.GGMLQuantizationType.Q6_K
    assert untied["token_embd.weight"] == gguf.GGMLQuantizationType.Q4_K
    assert kinds["output_norm.weight"] == gguf.GGMLQuantizationType.F32


def test_rows_of_no_whole_blocks_are_refused(tmp_path, vocabulary):
    with pytest.raises(SystemExit, match=r"rows of 96, no whole blocks of Q6_K"):
        write_target(tmp_path / "t.gguf", replace(SMALL, n_embd=96, head_dim=32), "q4_k_m", vocabulary, 0)
    assert not list(tmp_path.iterdir())


def test_a_vocabulary_is_not_cut_below_its_special_tokens(tmp_path, vocabulary):
    with pytest.raises(SystemExit, match="--n-vocab 100 is too small"):
        write_target(tmp_path / "t.gguf", replace(SMALL, n_vocab=100), "f16", vocabulary, 0)
