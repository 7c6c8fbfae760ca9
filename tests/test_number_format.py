"""number_format.py and quantize.py: rows become what the gguf package reads back, within the format's rounding."""

import gguf
import numpy as np
import pytest

from llama_eagle.conversion.number_format import (
    FILE_TYPES,
    OUTTYPES,
    Type,
    check_outtype,
    encode,
    row_bytes,
    stored_type,
)
from llama_eagle.errors import CheckpointError, InputError

ERRORS = {  # of normal values: root of the mean square
    "f32": 0, "f16": 3e-4, "bf16": 3e-3, "q8_0": 0.01, "q6_k": 0.03, "q5_k": 0.05, "q5_1": 0.05, "q5_0": 0.06,
    "q4_k": 0.1, "q4_1": 0.1, "q4_0": 0.12, "q3_k": 0.2, "q2_k": 0.4,
}  # fmt: skip
ROWS = np.random.default_rng(0).standard_normal((5, 512)).astype(np.float32)


def test_every_format_has_a_file_type():
    assert list(ERRORS) == list(OUTTYPES) == list(FILE_TYPES)
    for name, kind in FILE_TYPES.items():
        assert name.split("_k")[0] in kind.name.lower()


@pytest.mark.parametrize("name", list(OUTTYPES))
def test_values_come_back(request, name):
    kind = OUTTYPES[name]
    if gguf.GGML_QUANT_SIZES[kind][0] > 1:
        request.getfixturevalue("requires_native")
    encoded = encode("x", ROWS, kind)
    assert encoded.nbytes == len(ROWS) * row_bytes(512, kind)
    back = gguf.quants.dequantize(encoded, kind)
    assert np.sqrt(np.mean((back - ROWS) ** 2)) <= ERRORS[name]


def test_rows_are_shared_out_over_threads_in_order(requires_native, monkeypatch):
    from llama_eagle.conversion import quantize  # noqa: PLC0415

    expected = quantize.quantize(ROWS, Type.Q4_K)
    for threads in (1, 2, 3, 9):
        monkeypatch.setattr(quantize, "_threads", lambda threads=threads: threads)
        np.testing.assert_array_equal(quantize.quantize(ROWS, Type.Q4_K), expected)


def test_rows_of_no_whole_blocks_and_vectors_are_not_quantised():
    assert stored_type((4, 512), "q4_k") == Type.Q4_K
    assert stored_type((4, 288), "q4_k") == Type.Q8_0
    assert stored_type((4, 30), "q4_k") == Type.F16
    assert stored_type((4, 288), "q8_0") == Type.Q8_0
    assert stored_type((4, 30), "q8_0") == Type.F16
    assert stored_type((512,), "q4_k") == Type.F32


@pytest.mark.parametrize("name", ["f16", "q8_0", "q4_k"])
def test_values_beyond_the_range_are_refused(name):
    for bad in (70000, -70000):
        with pytest.raises(CheckpointError, match="tensor x has values beyond"):
            encode("x", np.full((1, 256), bad, np.float32), OUTTYPES[name])
    encode("x", np.full((1, 256), 70000, np.float32), OUTTYPES["bf16"])


def test_an_unknown_format_is_refused():
    with pytest.raises(InputError, match="'q9' is unknown; choose one of f32, f16"):
        check_outtype("q9")
