"""checkpoint.py: safetensors files, whole and broken, are read or refused with one line."""

import json
import struct

import numpy as np
import pytest
from safetensors.numpy import save_file

from llama_eagle.checkpoint import INDEX, Checkpoint
from llama_eagle.errors import CheckpointError
from tiny import bf16, write_folder, write_safetensors


def folder_of(path, weights):
    return Checkpoint(write_folder(path / "draft", {}, weights))


def test_every_float_type_becomes_float32(tmp_path):
    values = np.array([[1.5, -2.0, 0.0, 3e38]], np.float32)
    small = values[:, :3]
    draft = folder_of(
        tmp_path, {"a": values, "b": bf16(values), "c": small.astype(np.float16), "d": small.astype(np.float64)}
    )
    assert draft.names == ["a", "b", "c", "d"]
    assert draft.shape("b") == (1, 4)
    assert all(draft.floats(name).dtype == np.float32 for name in draft.names)
    np.testing.assert_array_equal(draft.floats("a"), values)
    np.testing.assert_allclose(draft.floats("b"), values, rtol=1 / 128)
    np.testing.assert_array_equal(draft.floats("c"), small)
    np.testing.assert_array_equal(draft.floats("d"), small)


def test_integers_and_booleans(tmp_path):
    draft = folder_of(tmp_path, {"i": np.array([-3, 4], np.int32), "b": np.array([True, False])})
    assert draft.integers("i").tolist() == [-3, 4]
    assert draft.booleans("b").tolist() == [True, False]
    with pytest.raises(CheckpointError, match="i is I32"):
        draft.floats("i")
    with pytest.raises(CheckpointError, match="b is BOOL"):
        draft.integers("b")


def test_files_of_the_safetensors_package_are_read(tmp_path):
    values = np.random.default_rng(0).normal(size=(3, 5)).astype(np.float32)
    write_folder(tmp_path, {}, {})
    save_file({"x": values, "y": values.astype(np.float16)}, tmp_path / "model.safetensors", metadata={"format": "np"})
    draft = Checkpoint(tmp_path)
    assert sorted(draft.names) == ["x", "y"]
    np.testing.assert_array_equal(draft.floats("x"), values)


def shards(folder, table=None):
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text("{}")
    write_safetensors(folder / "a.safetensors", {"x": np.ones(2, np.float32)})
    write_safetensors(folder / "b.safetensors", {"y": np.zeros(3, np.float32)})
    table = table or {"x": "a.safetensors", "y": "b.safetensors"}
    (folder / INDEX).write_text(json.dumps({"weight_map": table}))
    return folder


def test_shards_are_joined_by_their_index(tmp_path):
    draft = Checkpoint(shards(tmp_path))
    assert draft.shape("x") == (2,)
    assert draft.shape("y") == (3,)


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"x": "a.safetensors", "y": "c.safetensors"}, "c.safetensors is missing"),
        ({"x": "a.safetensors", "z": "b.safetensors"}, "tensor z"),
        ({"x": "../a.safetensors"}, "file name in the same folder"),
        ({"x": 3}, "file name in the same folder"),
        ([1], "no weight_map"),
    ],
)
def test_a_broken_index_is_refused(tmp_path, table, words):
    with pytest.raises(CheckpointError, match=words):
        Checkpoint(shards(tmp_path, table))


def test_a_tensor_in_two_shards_is_refused(tmp_path):
    shards(tmp_path)
    write_safetensors(tmp_path / "b.safetensors", {"x": np.ones(2, np.float32), "y": np.ones(2, np.float32)})
    with pytest.raises(CheckpointError, match="in both"):
        Checkpoint(tmp_path)


def test_folders_that_hold_no_checkpoint_are_refused(tmp_path):
    with pytest.raises(CheckpointError, match="does not exist"):
        Checkpoint(tmp_path / "none")
    with pytest.raises(CheckpointError, match="empty folder"):
        Checkpoint(tmp_path)
    (tmp_path / "readme").write_text("x")
    with pytest.raises(CheckpointError, match=r"config\.json is missing"):
        Checkpoint(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(CheckpointError, match=r"no \.safetensors file"):
        Checkpoint(tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(b"\x80\x02cos\nsystem\n.")
    with pytest.raises(CheckpointError, match="pickle"):
        Checkpoint(tmp_path)
    with pytest.raises(CheckpointError, match="is a file"):
        Checkpoint(tmp_path / "config.json")


@pytest.mark.parametrize("text", ["{", "[]", "[" * 100000, '"\\ud800"'])
def test_a_config_that_is_no_object_is_refused(tmp_path, text):
    write_folder(tmp_path, {}, {"x": np.ones(1, np.float32)})
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(CheckpointError, match=r"config\.json"):
        Checkpoint(tmp_path)


def header(entry, data=b"\0" * 8):
    text = json.dumps({"x": entry}).encode()
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
        (header({"dtype": "F8_E4M3", "shape": [8], "data_offsets": [0, 8]}), "F8_E4M3"),
        (header({"dtype": "F32", "shape": [3], "data_offsets": [0, 8]}), "8 bytes of data"),
        (header({"dtype": "F32", "shape": [1 << 40, 1 << 40], "data_offsets": [0, 8]}), "8 bytes of data"),
        (header({"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}), "ends after the file"),
    ],
)
def test_a_broken_file_is_refused(tmp_path, data, words):
    write_folder(tmp_path, {}, {})
    (tmp_path / "model.safetensors").write_bytes(data)
    with pytest.raises(CheckpointError, match=words):
        Checkpoint(tmp_path)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_weights_that_are_no_numbers_are_refused(tmp_path, bad):
    values = np.array([1, bad], np.float32)
    draft = folder_of(tmp_path, {"a": values, "b": bf16(values), "c": values.astype(np.float16)})
    for name in draft.names:
        with pytest.raises(CheckpointError, match=f"tensor {name} holds 1 values"):
            draft.floats(name)


def test_a_missing_tensor_is_named(tmp_path):
    with pytest.raises(CheckpointError, match=r"tensor fc\.weight is missing"):
        folder_of(tmp_path, {}).shape("fc.weight")
