"""safetensors_file.py: headers, whole and broken, are read or refused with one line."""

import json
import struct

import numpy as np
import pytest
from safetensors.numpy import save_file

from llama_eagle.conversion.safetensors_file import read_safetensors
from llama_eagle.errors import CheckpointError


def test_files_of_the_safetensors_package_are_read(tmp_path):
    values = np.random.default_rng(0).normal(size=(3, 5)).astype(np.float32)
    save_file({"x": values, "y": values.astype(np.float16)}, tmp_path / "x.safetensors", metadata={"format": "np"})
    found = read_safetensors(tmp_path / "x.safetensors")
    assert sorted(found) == ["x", "y"]
    np.testing.assert_array_equal(found["x"].floats(), values)


def header(entry, data=b"\0" * 8, name="x"):
    text = json.dumps({name: entry}).encode()
    return struct.pack("<Q", len(text)) + text + data


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "truncated"),
        (b"1234567", "truncated"),
        (struct.pack("<Q", 1 << 62) + b"{}", "truncated"),
        (struct.pack("<Q", 2) + b"{!", "broken header"),
        (struct.pack("<Q", 2) + b"[]", "broken header"),
        (header({"dtype": "F32", "shape": [2]}), "broken header entry"),
        (header({"dtype": "F32", "shape": [-2], "data_offsets": [0, 8]}), "broken header entry"),
        (header({"dtype": "F32", "shape": ["2"], "data_offsets": [0, 8]}), "broken header entry"),
        (header([]), "broken header entry"),
        (header({}).replace(b"x", b"\x7f"), "tensor name"),
        (header({}, name="x" * 300), "tensor name"),
        (header({"dtype": "F8_E4M3", "shape": [8], "data_offsets": [0, 8]}), "F8_E4M3"),
        (header({"dtype": "F32", "shape": [3], "data_offsets": [0, 8]}), "8 bytes of data"),
        (header({"dtype": "F32", "shape": [1 << 40, 1 << 40], "data_offsets": [0, 8]}), "beyond .* values"),
        (header({"dtype": "F32", "shape": [0, 1 << 62], "data_offsets": [0, 0]}), "beyond .* values"),
        (header({"dtype": "F32", "shape": [1] * 9, "data_offsets": [0, 4]}), "9 dimensions"),
        (header({"dtype": ["F32"], "shape": [2], "data_offsets": [0, 8]}), "type \\['F32'\\]"),
        (header({"dtype": "F32", "shape": [True, 2], "data_offsets": [0, 8]}), "broken header entry"),
        (header({"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}), "ends after the file"),
    ],
)
def test_a_broken_file_is_refused(tmp_path, data, words):
    (tmp_path / "x.safetensors").write_bytes(data)
    with pytest.raises(CheckpointError, match=words):
        read_safetensors(tmp_path / "x.safetensors")
