"""checkpoint.py: folders with weights in every usual arrangement are read or refused with one line."""

import json
import os

import numpy as np
import pytest

from llama_eagle.conversion.checkpoint import INDEX, PICKLE_INDEX, Checkpoint
from llama_eagle.errors import CheckpointError
from tiny import bf16, write_folder, write_safetensors
from tiny.pickled import write_pickled


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
        ({"x": "a.safetensors", "y": "c.safetensors"}, "c.safetensors is missing from"),
        ({"x": "a.safetensors", "z": "b.safetensors"}, "tensor z"),
        ({"x": "../a.safetensors"}, "file name in the same folder"),
        ({"x": 3}, "file name in the same folder"),
        ({"x": "a\x1b[2J.safetensors"}, "file name in the same folder"),
        ({"x": "a" * 5000 + ".safetensors"}, "is missing from"),
        ({"x": "a" * 5000}, "file name in the same folder"),
        ({"x": "a.safetensors", "z\n" * 900: "b.safetensors"}, "in none of its shards"),
        ([1], "no weight_map"),
    ],
)
def test_a_broken_index_is_refused(tmp_path, table, words):
    with pytest.raises(CheckpointError, match=words) as caught:
        Checkpoint(shards(tmp_path, table))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


def test_a_tensor_in_two_shards_is_refused(tmp_path):
    shards(tmp_path)
    write_safetensors(tmp_path / "b.safetensors", {"x": np.ones(2, np.float32), "y": np.ones(2, np.float32)})
    with pytest.raises(CheckpointError, match="in both"):
        Checkpoint(tmp_path)


def test_folders_that_hold_no_checkpoint_are_refused(tmp_path):
    for name in ("none", "a" * 5000, "nul\0"):
        with pytest.raises(CheckpointError, match="does not exist"):
            Checkpoint(tmp_path / name)
    with pytest.raises(CheckpointError, match="empty folder"):
        Checkpoint(tmp_path)
    (tmp_path / "readme").write_text("x")
    with pytest.raises(CheckpointError, match=r"config\.json is missing"):
        Checkpoint(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(CheckpointError, match=r"no \.safetensors file and no pytorch_model\.bin"):
        Checkpoint(tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(b"\x80\x02cos\nsystem\n.")
    with pytest.raises(CheckpointError, match=r"pytorch_model\.bin is refused"):
        Checkpoint(tmp_path)
    with pytest.raises(CheckpointError, match="is a file"):
        Checkpoint(tmp_path / "config.json")


@pytest.mark.parametrize("text", ["{", "[]", "[" * 100000, '"\\ud800"'])
def test_a_config_that_is_no_object_is_refused(tmp_path, text):
    write_folder(tmp_path, {}, {"x": np.ones(1, np.float32)})
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(CheckpointError, match=r"config\.json"):
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


def pickled_folder(folder):
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text("{}")
    write_pickled(folder / "pytorch_model.bin", {"x": np.ones(2, np.float32), "d2t": np.arange(3)})
    return folder


def test_a_pickle_is_read_where_there_is_no_safetensors_file(tmp_path):
    draft = Checkpoint(pickled_folder(tmp_path))
    assert draft.names == ["x", "d2t"]
    assert draft.floats("x").tolist() == [1, 1]
    assert draft.integers("d2t").tolist() == [0, 1, 2]
    write_pickled(tmp_path / "training_args.bin", {})
    (tmp_path / "pytorch_model.bin").rename(tmp_path / "head.bin")
    assert Checkpoint(tmp_path).names == ["x", "d2t"]
    write_safetensors(tmp_path / "model.safetensors", {"y": np.zeros(1, np.float32)})
    assert Checkpoint(tmp_path).names == ["y"]


def test_what_trainers_leave_is_no_weight_file(tmp_path):
    write_pickled(pickled_folder(tmp_path) / "training_args.bin", {})
    (tmp_path / "pytorch_model.bin").unlink()
    with pytest.raises(CheckpointError, match="download the weights too"):
        Checkpoint(tmp_path)


def test_shards_of_pickles_are_joined(tmp_path):
    pickled_folder(tmp_path)
    (tmp_path / "pytorch_model.bin").rename(tmp_path / "a.bin")
    write_pickled(tmp_path / "b.bin", {"y": np.zeros((2, 2), np.float16)})
    table = {"x": "a.bin", "d2t": "a.bin", "y": "b.bin"}
    (tmp_path / PICKLE_INDEX).write_text(json.dumps({"weight_map": table}))
    assert Checkpoint(tmp_path).shape("y") == (2, 2)
    (tmp_path / "b.bin").unlink()
    with pytest.raises(CheckpointError, match=r"b\.bin is missing from"):
        Checkpoint(tmp_path)


def test_an_index_without_its_shards_gives_way_to_the_whole_file(tmp_path):
    write_folder(tmp_path, {}, {"z": np.ones(2, np.float32)})
    (tmp_path / INDEX).write_text(json.dumps({"weight_map": {"x": "model-1-of-1.safetensors"}}))
    assert Checkpoint(tmp_path).names == ["z"]


def test_pointers_and_pipes_are_refused(tmp_path):
    write_folder(tmp_path, {}, {})
    (tmp_path / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n")
    with pytest.raises(CheckpointError, match="Git LFS pointer"):
        Checkpoint(tmp_path)
    (tmp_path / "config.json").unlink()
    os.mkfifo(tmp_path / "config.json")
    with pytest.raises(CheckpointError, match=r"config\.json is no file"):
        Checkpoint(tmp_path)


def test_an_empty_tensor_is_refused_when_it_is_read(tmp_path):
    draft = folder_of(tmp_path, {"x": np.ones((0, 4), np.float32), "i": np.ones(0, np.int64)})
    for read, name in ((draft.floats, "x"), (draft.integers, "i")):
        with pytest.raises(CheckpointError, match=f"tensor {name} is empty"):
            read(name)


def test_large_tensors_are_read_piece_by_piece(tmp_path, monkeypatch):
    monkeypatch.setattr("llama_eagle.conversion.stored_tensor._PIECE", 7)
    values = np.arange(40, dtype=np.float32).reshape(5, 8)
    draft = folder_of(tmp_path, {"x": values, "b": bf16(values), "i": np.arange(9)})
    np.testing.assert_array_equal(draft.floats("x"), values)
    np.testing.assert_array_equal(draft.floats("b"), values)
    assert draft.integers("i").tolist() == list(range(9))


def test_a_file_that_shrinks_meanwhile_is_refused(tmp_path):
    draft = folder_of(tmp_path, {"x": np.ones(100, np.float32)})
    path = draft.folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(CheckpointError, match="changed while tensor x"):
        draft.floats("x")
