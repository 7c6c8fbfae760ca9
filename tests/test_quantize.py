"""Quantisation in the library equals gguf's numpy one where that exists, and refuses what ggml would abort on."""

from typing import Any

import gguf
import numpy as np
import pytest

from llama_eagle.ffi import C, ffi

Q = gguf.GGMLQuantizationType
EXACT = [Q.F32, Q.F16, Q.BF16, Q.Q4_0, Q.Q4_1, Q.Q5_0, Q.Q5_1, Q.Q8_0]
K_QUANTS = {Q.Q2_K: 0.4, Q.Q3_K: 0.2, Q.Q4_K: 0.1, Q.Q5_K: 0.05, Q.Q6_K: 0.03, Q.IQ4_NL: 0.12, Q.IQ4_XS: 0.12}


def quantize(kind: int, values: np.ndarray, width: int | None = None) -> tuple[int, np.ndarray]:
    rows, n = values.shape
    size = C.eagle_row_size(kind, n)
    out = np.zeros((rows, max(size, 0)), dtype=np.uint8)
    src, dst = ffi.cast("float *", values.ctypes.data), ffi.cast("void *", out.ctypes.data)
    code: int = C.eagle_quantize(kind, src, dst, rows, width if width is not None else n)
    return code, out


def normal(rows: int = 5, width: int = 512) -> Any:
    return np.random.default_rng(1).standard_normal((rows, width)).astype(np.float32)


@pytest.mark.parametrize("kind", EXACT, ids=lambda kind: kind.name)
def test_simple_types_equal_gguf(kind: Q) -> None:
    code, out = quantize(kind, normal())
    assert code == C.EAGLE_OK
    expected = gguf.quants.quantize(normal(), kind)
    np.testing.assert_array_equal(gguf.quants.dequantize(out, kind), gguf.quants.dequantize(expected, kind))


@pytest.mark.parametrize("kind", list(K_QUANTS), ids=lambda kind: kind.name)
def test_block_types_are_close(kind: Q) -> None:
    code, out = quantize(kind, normal())
    assert code == C.EAGLE_OK
    assert out.shape[1] == gguf.quant_shape_to_byte_shape((512,), kind)[0]
    error = np.sqrt(np.mean((gguf.quants.dequantize(out, kind) - normal()) ** 2))
    assert 0 < error < K_QUANTS[kind]


@pytest.mark.parametrize("kind", [-1, 4, 16, 17, 19, 24, 39, 1 << 20])
def test_refuses_types(kind: int) -> None:
    assert C.eagle_row_size(kind, 512) == -1
    assert quantize(kind, normal())[0] == C.EAGLE_INVALID


def test_refuses_shapes_and_values() -> None:
    assert C.eagle_row_size(Q.Q4_K, 128) == -1
    assert C.eagle_row_size(Q.Q8_0, 0) == C.eagle_row_size(Q.Q8_0, -32) == -1
    for width in (0, -256, 128, 257):
        assert quantize(Q.Q4_K, normal(), width)[0] == C.EAGLE_INVALID
    for bad in (np.nan, np.inf, -np.inf):
        values = normal()
        values[3, 7] = bad
        assert quantize(Q.Q4_K, values)[0] == C.EAGLE_INVALID
    assert C.eagle_quantize(Q.F32, ffi.NULL, ffi.NULL, 1, 32) == C.EAGLE_INVALID
