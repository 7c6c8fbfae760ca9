"""pickle_file.py: archives of torch.save are read as PyTorch reads them, and refused where they hold anything else."""

import zipfile

import numpy as np
import pytest

from llama_eagle.conversion.inert_pickle import MAX_BYTES
from llama_eagle.conversion.pickle_file import read_pickle_file
from llama_eagle.errors import CheckpointError
from tiny import bf16
from tiny.pickled import START, STOP, number, numbers, rebuilt, stored, text, write_archive, write_pickled

FOUR = {"0": np.arange(4, dtype=np.float32).tobytes()}


def one_tensor(offset=0, shape=(4,), strides=(1,), count=4, kind="FloatStorage"):
    view = rebuilt(stored(kind, "0", count), number(offset), numbers(shape), numbers(strides))
    return START + b"}" + text("x") + view + b"s" + STOP


def test_every_type_is_read(tmp_path):
    values = np.array([[1.5, -2.0, 0.25]], np.float32)
    weights = {
        "f32": values, "f16": values.astype(np.float16), "f64": values.astype(np.float64), "bf16": bf16(values),
        "i64": np.array([-1, 1 << 40]), "i32": np.array([7], np.int32), "bool": np.array([True, False]),
    }  # fmt: skip
    found = read_pickle_file(write_pickled(tmp_path / "w.bin", weights))
    assert list(found) == list(weights)
    for name in ("f32", "f16", "f64", "bf16"):
        np.testing.assert_array_equal(found[name].floats(), values)
    assert found["i64"].integers().tolist() == [-1, 1 << 40]
    assert found["i32"].integers().tolist() == [7]
    assert found["bool"].booleans().tolist() == [True, False]


def test_views_of_a_storage_are_read_with_their_strides(tmp_path):
    base = np.arange(24, dtype=np.float32).reshape(4, 6)
    weights = {"rows": base[1:3], "columns": base[:, 1::2], "turned": base.T, "one": base[2:3, 5:]}
    found = read_pickle_file(write_pickled(tmp_path / "w.bin", weights))
    for name, values in weights.items():
        np.testing.assert_array_equal(found[name].floats(), values)
    assert found["rows"].strides is None
    assert found["turned"].strides == (1, 6)


def test_files_of_pytorch_itself_are_read(tmp_path):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed; files written by hand are tested above")
    base = torch.randn(4, 6)
    state = torch.nn.Linear(3, 2).state_dict()  # an OrderedDict with attributes
    state.update(half=base.half(), wide=base.bfloat16(), turned=base.t(), rows=base[1:3], ids=torch.arange(5))
    state["parameter"] = torch.nn.Parameter(torch.randn(2, 2))
    for protocol in (2, 4, 5):
        torch.save(state, tmp_path / "w.bin", pickle_protocol=protocol)
        found = read_pickle_file(tmp_path / "w.bin")
        assert found.pop("ids").integers().tolist() == [0, 1, 2, 3, 4]
        for name, tensor in found.items():
            np.testing.assert_array_equal(tensor.floats(), state[name].detach().float().numpy())


@pytest.mark.parametrize(
    ("pickle", "words"),
    [
        (one_tensor(offset=1), "beyond its storage"),
        (one_tensor(shape=(5,)), "beyond its storage"),
        (one_tensor(shape=(2, 2), strides=(3, 1)), "beyond its storage"),
        (one_tensor(shape=(9, 4), strides=(0, 1)), "repeats values"),
        (one_tensor(count=5), "16 bytes, which are not 5 values of F32"),
        (one_tensor(count=1 << 60), "16 bytes, which are not"),
        (one_tensor(kind="BoolStorage"), "16 bytes"),
        (one_tensor(shape=(1 << 50,), strides=(0,)), "beyond .* values"),
        (one_tensor(shape=(1,) * 9, strides=(1,) * 9), "9 dimensions"),
        (one_tensor().replace(text("0"), text("1")), "lacks 'data/1'"),
        (one_tensor().replace(text("0"), text("../../etc/passwd")), "lacks 'data/../../etc/passwd'"),
        (START + b"}" + text("step") + b"K\x01s.", "entry step is a int"),
        (START + b"}" + text("model") + b"}s.", "entry model is a dict, not a tensor; save the state dict alone"),
        (START + b"N.", "NoneType instead of a state dict"),
    ],
)
def test_tensors_that_do_not_fit_are_refused(tmp_path, pickle, words):
    with pytest.raises(CheckpointError, match=words):
        read_pickle_file(write_archive(tmp_path / "w.bin", pickle, FOUR))


def test_an_empty_tensor_is_refused_when_it_is_read(tmp_path):
    found = read_pickle_file(write_archive(tmp_path / "w.bin", one_tensor(shape=(0, 3), strides=(3, 1)), FOUR))
    with pytest.raises(CheckpointError, match="x is empty"):
        found["x"].floats()


def test_the_old_format_and_other_files_are_refused(tmp_path):
    path = tmp_path / "w.bin"
    for data in (b"", b"P", b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.", b"GGUF" + bytes(100)):
        path.write_bytes(data)
        with pytest.raises(CheckpointError, match=r"w\.bin is refused: it is no zip archive"):
            read_pickle_file(path)
    whole = write_archive(path, one_tensor(), FOUR).read_bytes()
    for length in range(4, len(whole), 7):
        path.write_bytes(whole[:length])
        with pytest.raises(CheckpointError, match=r"w\.bin is "):
            read_pickle_file(path)


def test_compressed_archives_are_refused(tmp_path):
    path = write_archive(tmp_path / "w.bin", one_tensor(), FOUR, compression=zipfile.ZIP_DEFLATED)
    with pytest.raises(CheckpointError, match="compressed"):
        read_pickle_file(path)


def archive(path, names):
    with zipfile.ZipFile(path, "w") as file:
        for name, data in names:
            file.writestr(name, data)
    return path


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize(
    ("names", "words"),
    [
        ([], "0 entries named data.pkl"),
        ([("data.pkl", b"N.")], "0 entries named data.pkl"),
        ([("a/data.pkl", b"N."), ("b/data.pkl", b"N.")], "2 entries named data.pkl"),
        ([("a/data.pkl", b"N."), ("a/data.pkl", b"}.")], "two entries of the same name"),
        ([("a/data.pkl", b"}."), ("a/byteorder", b"big")], "byte order is b'big'"),
        ([("a/data.pkl", bytes(MAX_BYTES + 1))], "data.pkl has .* bytes, more than"),
    ],
)
def test_archives_of_another_build_are_refused(tmp_path, names, words):
    with pytest.raises(CheckpointError, match=words):
        read_pickle_file(archive(tmp_path / "w.bin", names))


def test_an_entry_that_lies_outside_the_file_is_refused(tmp_path):
    path = write_archive(tmp_path / "w.bin", one_tensor(), FOUR)
    data = bytearray(path.read_bytes())
    entry = data.index(b"PK\1\2")
    entry = data.index(b"PK\1\2", entry + 1)
    entry = data.index(b"PK\1\2", entry + 1)  # the third entry of the directory is the storage
    data[entry + 20 : entry + 28] = (1 << 20).to_bytes(4, "little") * 2
    path.write_bytes(data)
    with pytest.raises(CheckpointError, match="outside the file"):
        read_pickle_file(path)
