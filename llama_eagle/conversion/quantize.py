"""quantize: float32 rows become blocks of small integers through llama.cpp's quantiser. Knows no tensor and no file."""

import os
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import gguf
import numpy as np
import numpy.typing as npt

from ..errors import NativeError
from ..ffi import C, ffi

MAX_THREADS = 16


def quantize(rows: npt.NDArray[np.float32], kind: gguf.GGMLQuantizationType) -> npt.NDArray[np.uint8]:
    """float32[n, columns], finite, as uint8[n, bytes of a row]; the rows are shared out over the CPU's cores.

    Raises NativeError where the library cannot make the type or the rows are no whole blocks.
    """
    rows = np.ascontiguousarray(rows, dtype=np.float32)
    count, columns = rows.shape
    size = C.eagle_row_size(int(kind), columns)
    if size < 0:
        raise NativeError(f"llama.cpp's quantiser does not make {kind.name} of rows of {columns}")
    out = np.empty((count, size), np.uint8)

    def work(part: tuple[int, int]) -> int:
        """Quantises rows [start, end); the interpreter's lock is not held meanwhile."""
        start, end = part
        source, target = rows[start:end], out[start:end]
        code: int = C.eagle_quantize(
            int(kind),
            ffi.cast("float *", source.ctypes.data),
            ffi.cast("void *", target.ctypes.data),
            len(source),
            columns,
        )
        return code

    edges = np.linspace(0, count, min(count, _threads()) + 1, dtype=int).tolist()
    with ThreadPoolExecutor(len(edges)) as pool:
        codes = list(pool.map(work, pairwise(edges)))
    if any(codes):
        raise NativeError(f"llama.cpp's quantiser refused {count} rows of {columns} for {kind.name}")
    return out


def _threads() -> int:
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(MAX_THREADS, usable)
