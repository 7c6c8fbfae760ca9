"""Number formats that a draft's matrices can be written in, and float32 rows turned into them.

f16 and bf16 are made by the gguf package, blocks of small integers by llama.cpp's own quantiser. Knows no file.
"""

import gguf
import numpy as np
import numpy.typing as npt

from ..errors import CheckpointError, InputError

Type = gguf.GGMLQuantizationType
_File = gguf.LlamaFileType
_FORMATS = {
    "f32": (Type.F32, _File.ALL_F32),
    "f16": (Type.F16, _File.MOSTLY_F16),
    "bf16": (Type.BF16, _File.MOSTLY_BF16),
    "q8_0": (Type.Q8_0, _File.MOSTLY_Q8_0),
    "q6_k": (Type.Q6_K, _File.MOSTLY_Q6_K),
    "q5_k": (Type.Q5_K, _File.MOSTLY_Q5_K_S),
    "q5_1": (Type.Q5_1, _File.MOSTLY_Q5_1),
    "q5_0": (Type.Q5_0, _File.MOSTLY_Q5_0),
    "q4_k": (Type.Q4_K, _File.MOSTLY_Q4_K_S),
    "q4_1": (Type.Q4_1, _File.MOSTLY_Q4_1),
    "q4_0": (Type.Q4_0, _File.MOSTLY_Q4_0),
    "q3_k": (Type.Q3_K, _File.MOSTLY_Q3_K_S),
    "q2_k": (Type.Q2_K, _File.MOSTLY_Q2_K),
}
OUTTYPES = {name: kind for name, (kind, _) in _FORMATS.items()}
FILE_TYPES = {name: file for name, (_, file) in _FORMATS.items()}
_WIDE = (Type.F32, Type.BF16)  # of the same range as float32
_PLAIN = (Type.F32, Type.F16, Type.BF16)


def check_outtype(outtype: str) -> None:
    """Raises InputError unless `outtype` is one of OUTTYPES."""
    if outtype not in OUTTYPES:
        raise InputError(f"outtype {outtype!r} is unknown; choose one of {', '.join(OUTTYPES)}")


def stored_type(shape: tuple[int, ...], outtype: str) -> gguf.GGMLQuantizationType:
    """Type that a weight of `shape` is stored in: vectors (norms) stay f32.

    Rows of no whole blocks become q8_0, whose blocks are short, and f16 where they do not even fill those.
    """
    if len(shape) < 2:
        return Type.F32
    return next(kind for kind in (OUTTYPES[outtype], Type.Q8_0, Type.F16) if not shape[-1] % _block(kind))


def _block(kind: gguf.GGMLQuantizationType) -> int:
    return int(gguf.GGML_QUANT_SIZES[kind][0])


def row_bytes(columns: int, kind: gguf.GGMLQuantizationType) -> int:
    """Bytes of a row of `columns` values, which are whole blocks."""
    block, size = gguf.GGML_QUANT_SIZES[kind]
    return columns // block * size


def encode(name: str, rows: npt.NDArray[np.float32], kind: gguf.GGMLQuantizationType) -> npt.NDArray[np.generic]:
    """float32[rows, columns] as `kind`. Raises CheckpointError with the tensor's `name` for values beyond its range."""
    limit = float(np.finfo(np.float16).max)  # blocks have scales in f16
    if kind not in _WIDE and rows.size and max(rows.max(), -rows.min()) > limit:
        raise CheckpointError(f"tensor {name} has values beyond {kind.name}'s range; use --outtype bf16 or f32")
    if kind in _PLAIN:
        return gguf.quants.quantize(rows, kind)
    from .quantize import quantize  # noqa: PLC0415 - f16, the usual choice, needs no native library

    return quantize(rows, kind)
