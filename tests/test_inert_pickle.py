"""inert_pickle.py: nothing in a pickle runs; what is no plain state dict is refused by name."""

import os
import pickle
import struct
import time

import pytest

from llama_eagle.conversion.inert_pickle import MAX_BYTES, MAX_OPCODES, read_state_dict
from llama_eagle.errors import CheckpointError
from tiny.pickled import CALL, ORDERED_DICT, START, STOP, number, numbers, rebuilt, stored, text

TENSOR = rebuilt(stored("FloatStorage", "0", 4), number(0), numbers((4,)), numbers((1,)))


class Evil:
    """Pickles as a call of `function`."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


def in_dict(value):
    return START + b"}" + text("x") + value + b"s" + STOP


def test_a_state_dict_is_read():
    data = START + ORDERED_DICT + text("a") + TENSOR + b"s" + b"}" + text("_metadata") + ORDERED_DICT + b"sb" + STOP
    (view,) = read_state_dict(data).values()
    assert (view.storage.dtype, view.storage.key, view.shape, view.strides) == ("F32", "0", (4,), (1,))


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
def test_calls_are_never_made(tmp_path, protocol):
    proof = tmp_path / "proof"
    attacks = [Evil(os.system, f"touch {proof}"), Evil(exec, f"open({str(proof)!r}, 'w')"), Evil(open, str(proof), "w")]
    for attack in attacks:
        for value in (attack, {"x": attack}, [attack], ({"x": 1}, attack)):
            data = pickle.dumps(value, protocol)
            with pytest.raises(CheckpointError, match=r"its pickle (names|uses) .*nothing of it was run"):
                read_state_dict(data)
            assert not proof.exists()
    pickle.loads(pickle.dumps(attacks[0], protocol))  # the attack itself works
    assert proof.exists()


STORAGE = b"ctorch\nFloatStorage\n"


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (in_dict(b"cos\nsystem\n" + text("x") + b"\x85" + CALL), "names 'os.system'"),
        (in_dict(b"cbuiltins\neval\n"), "names 'builtins.eval'"),
        (in_dict(b"ctorch\nload\n"), "names 'torch.load'"),
        (in_dict(b"ctorch._utils\n_rebuild_tensor_v2.__globals__\n"), "__globals__"),
        (START + text("os") + text("system") + b"\x93.", "names 'os.system'"),
        (START + b"(cos\nsystem\no.", "names 'os.system'"),
        (START + b"(" + text("x") + b"ios\nsystem\n.", "uses INST"),
        (START + b"\x82\x01.", "uses EXT1"),
        (START + b"P0\n.", "uses PERSID"),
        (in_dict(STORAGE + b")\x81"), "uses NEWOBJ"),
        (in_dict(STORAGE + b")" + CALL), "calls torch.FloatStorage"),
        (in_dict(text("os") + b")" + CALL), "calls a str"),
        (in_dict(b"ccollections\nOrderedDict\n" + text("x") + b"\x85" + CALL), "calls collections.OrderedDict"),
        (in_dict(TENSOR + b"}b"), "sets attributes of a View"),
        (in_dict(STORAGE + b"}b"), "sets attributes of a Name"),
        (in_dict(text("x") + b"Q"), "no storage"),
        (in_dict(stored("FloatStorage", "0", 4) + b"Q"), "no storage"),
        (in_dict(b"(" + text("module") + STORAGE + text("0") + text("cpu") + number(4) + b"tQ"), "no storage"),
        (in_dict(b"(" + text("storage") + text("x") + text("0") + text("cpu") + number(4) + b"tQ"), "description"),
        (in_dict(rebuilt(b"N", number(0), numbers((4,)), numbers((1,)))), "sizes are no numbers"),
        (in_dict(TENSOR.replace(numbers((4,)), numbers((-4,)))), "sizes are no numbers"),
        (in_dict(TENSOR.replace(numbers((4,)), numbers((4, 1)))), "2 dimensions with 1 strides"),
        (in_dict(TENSOR.replace(numbers((4,)), b"\x88\x85")), "sizes are no numbers"),
        (in_dict(b"ctorch\nfloat8_e4m3fn\n"), "tensors of type 'torch.float8_e4m3fn'"),
        (in_dict(b"ctorch\nComplexFloatStorage\n"), "tensors of type 'torch.ComplexFloatStorage'"),
        (START + b"}K\x01" + TENSOR + b"s.", "key of type int"),
        (START + b"}" + text("a\nb") + TENSOR + b"s.", "names a tensor"),
    ],
)
def test_what_is_no_state_dict_is_refused_by_name(data, words):
    with pytest.raises(CheckpointError, match=words) as caught:
        read_state_dict(data)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "data",
    [
        b"", b".", b"\xff", START, START + b"}", START + b"s.", START + b"R.", START + b"t.", START + b"e.",
        START + b"h\x07.", START + b"Nb.", START + b"}u.", START + b"](Ku.", START + b"}(K\x01u.", START + b"Q.",
        START + b"X" + struct.pack("<I", 1 << 31) + b"x.", START + b"\x8d" + struct.pack("<Q", 1 << 62) + b"x.",
        START + b"\x8b" + struct.pack("<i", 1 << 30) + b"x.", START + b"\x8b" + struct.pack("<i", -1) + b"x.",
        START + b"I" + b"9" * 5000 + b"\n.", START + b"X\x01\0\0\0\xff.", START + b"cos\n", START + b"\x95" + bytes(8),
        START + b"Nq\x00h\x01.",
    ],
)  # fmt: skip
def test_a_broken_pickle_is_one_line(data):
    with pytest.raises(CheckpointError) as caught:
        read_state_dict(data)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "data",
    [
        START + b"]q\0" + b"(h\0h\0e" * 15_000 + b".",  # each step would double what a copy needs
        START + b"(" * 90_000 + b"t" * 9_000 + b".",
        START + b"N" + b"\x85" * 90_000 + b".",  # a tuple nested 90 000 times
        START + b"]" + b"]a" * 40_000 + b".",
        START + b"N" * (MAX_OPCODES + 2) + b".",
        START + b"r\xff\xff\xff\xff" * 10 + b".",
        bytes(MAX_BYTES + 1),
    ],
    ids=["memo", "marks", "tuples", "lists", "opcodes", "index", "bytes"],
)
def test_bombs_are_refused_quickly(data):
    start = time.monotonic()
    with pytest.raises(CheckpointError):
        read_state_dict(data)
    assert time.monotonic() - start < 10


def test_the_number_of_steps_is_limited():
    with pytest.raises(CheckpointError, match=f"more than {MAX_OPCODES} steps"):
        read_state_dict(START + b"}" + b"N" * MAX_OPCODES + b".")
