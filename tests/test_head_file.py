"""head_file.py: tensors arrive whole whatever their size, and a failure leaves what was there before."""

import gguf
import numpy as np
import pytest

from llama_eagle.conversion.head_file import Slot, write_head
from llama_eagle.conversion.number_format import Type
from llama_eagle.errors import CheckpointError, InputError


def slots(values, kind=Type.F16):
    return [
        Slot("matrix", values.shape, kind, lambda: values),
        Slot("norm", (3,), Type.F32, lambda: np.arange(3, dtype=np.float32)),
        Slot("d2t", (4,), Type.I64, lambda: np.arange(4, dtype=np.int64)),
    ]


@pytest.mark.parametrize("piece", [1, 10, 16, 1 << 22])
def test_tensors_are_written_piece_by_piece(tmp_path, monkeypatch, piece):
    monkeypatch.setattr("llama_eagle.conversion.head_file._PIECE", piece)
    values = np.arange(40, dtype=np.float32).reshape(5, 8)
    write_head(tmp_path / "head.gguf", gguf.GGUFWriter(None, "eagle3"), slots(values))
    found = {tensor.name: tensor for tensor in gguf.GGUFReader(tmp_path / "head.gguf").tensors}
    assert list(found) == ["matrix", "norm", "d2t"]
    np.testing.assert_array_equal(found["matrix"].data, values)
    np.testing.assert_array_equal(found["norm"].data, [0, 1, 2])
    np.testing.assert_array_equal(found["d2t"].data, [0, 1, 2, 3])
    assert found["matrix"].tensor_type == Type.F16


def test_a_quantised_tensor_equals_the_one_quantised_at_once(tmp_path, monkeypatch, requires_native):
    values = np.random.default_rng(0).standard_normal((7, 256)).astype(np.float32)
    files = []
    for piece in (1, 600, 1 << 22):
        monkeypatch.setattr("llama_eagle.conversion.head_file._PIECE", piece)
        out = tmp_path / f"{piece}.gguf"
        write_head(out, gguf.GGUFWriter(None, "eagle3"), slots(values, Type.Q4_K))
        files.append(out.read_bytes())
    assert files[0] == files[1] == files[2]


def broken():
    raise CheckpointError("tensor norm holds 1 values that are NaN")


def full():
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize(
    ("load", "error", "words"), [(broken, CheckpointError, "NaN"), (full, InputError, "No space left")]
)
def test_a_failure_leaves_what_was_there(tmp_path, load, error, words):
    out = tmp_path / "head.gguf"
    out.write_text("old")
    failing = [Slot("a", (4, 2), Type.F32, lambda: np.ones((4, 2), np.float32)), Slot("norm", (3,), Type.F32, load)]
    with pytest.raises(error, match=words):
        write_head(out, gguf.GGUFWriter(None, "eagle3"), failing)
    assert out.read_text() == "old"
    assert list(tmp_path.iterdir()) == [out]
