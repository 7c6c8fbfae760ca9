"""target_rows.py: rows of a target's matrices, from every number format that the gguf package reads, and from HF."""

import gguf
import numpy as np
import pytest

import conversion
from llama_eagle.conversion.target_info import read_target
from llama_eagle.conversion.target_rows import read_embeddings, read_output
from llama_eagle.errors import ModelError
from tiny.target import finish

MATRICES = conversion.target_matrices()
EMBEDDINGS, HEAD = MATRICES["model.embed_tokens.weight"], MATRICES["lm_head.weight"]
ROWS = np.array([3, 0, 39], np.int64)


def test_rows_of_a_gguf(tmp_path):
    target = read_target(conversion.write_target(tmp_path / "t.gguf"))
    np.testing.assert_array_equal(read_output(target, ROWS), HEAD[ROWS])
    np.testing.assert_array_equal(read_output(target, None), HEAD)
    np.testing.assert_array_equal(read_embeddings(target, ROWS), EMBEDDINGS[ROWS])


def test_a_tied_targets_head_is_its_embeddings(tmp_path):
    target = read_target(conversion.write_target(tmp_path / "t.gguf", head=False))
    np.testing.assert_array_equal(read_output(target, ROWS), EMBEDDINGS[ROWS])


def with_head(path, kind, data, raw_shape=None):
    """A target whose head is stored as `kind`."""
    plain = gguf.GGUFReader(conversion.write_target(path.with_name("plain.gguf"), head=False))
    writer = gguf.GGUFWriter(path, "llama")
    for key, field in plain.fields.items():
        if not key.startswith(("GGUF", "general.arch")):
            item = field.types[-1] if len(field.types) > 1 else None
            writer.add_key_value(key, field.contents(), field.types[0], item)
    writer.add_tensor("token_embd.weight", EMBEDDINGS)
    writer.add_tensor("output.weight", data, raw_shape, raw_dtype=kind)
    finish(writer)
    return read_target(path)


@pytest.mark.parametrize(("kind", "error"), [("F16", 1e-3), ("BF16", 1e-2), ("Q8_0", 2e-2), ("Q4_0", 0.3)])
def test_quantized_rows_are_dequantized(tmp_path, kind, error):
    number = gguf.GGMLQuantizationType[kind]
    target = with_head(tmp_path / "t.gguf", number, gguf.quants.quantize(HEAD, number))
    got = read_output(target, ROWS)
    assert got.dtype == np.float32
    assert np.abs(got - HEAD[ROWS]).max() < error


def test_a_format_that_cannot_be_read_is_named(tmp_path):
    number = gguf.GGMLQuantizationType.I8
    target = with_head(tmp_path / "t.gguf", number, np.zeros((40, 32), np.int8))
    with pytest.raises(ModelError, match="type I8, which this converter cannot read"):
        read_output(target, None)


def test_broken_rows_are_refused(tmp_path):
    target = with_head(tmp_path / "t.gguf", None, np.full((40, 32), np.nan, np.float32))
    with pytest.raises(ModelError, match="NaN or infinite"):
        read_output(target, ROWS)
    target = with_head(tmp_path / "t.gguf", None, np.zeros((40, 16), np.float32))
    with pytest.raises(ModelError, match=r"output.weight is \[40, 16\]; expected \[40, 32\]"):
        read_output(target, ROWS)


@pytest.mark.parametrize("prefix", ["", "language_model."])
def test_rows_of_an_hf_folder(tmp_path, prefix):
    folder = conversion.write_hf_target(tmp_path / "hf")
    if prefix:
        conversion.write_folder(
            folder, conversion.read_config(folder), {prefix + name: value for name, value in MATRICES.items()}
        )
    target = read_target(folder)
    np.testing.assert_array_equal(read_output(target, ROWS), HEAD[ROWS])
    np.testing.assert_array_equal(read_embeddings(target, None), EMBEDDINGS)


def test_a_folder_without_weights_says_what_to_give(tmp_path):
    folder = conversion.write_hf_target(tmp_path / "hf")
    (folder / "model.safetensors").unlink()
    with pytest.raises(ModelError, match="give a GGUF of the target"):
        read_output(read_target(folder), ROWS)
