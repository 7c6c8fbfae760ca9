"""Rules for the tensor list of a GGUF file: types, shapes, and where each tensor lies in the file.

Knows the block sizes of ggml and which types its operators take, and no architecture.
"""

import re

from ..errors import ModelError
from .header import GgufHeader, TensorEntry

# values and bytes of a block by type: those that a matrix product or a table of rows can have
BLOCKS = {
    0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34), 10: (256, 84),
    11: (256, 110), 12: (256, 144), 13: (256, 176), 14: (256, 210), 16: (256, 66), 17: (256, 74), 18: (256, 98),
    19: (256, 50), 20: (32, 18), 21: (256, 110), 22: (256, 82), 23: (256, 136), 29: (256, 56), 30: (1, 2),
    34: (256, 54), 35: (256, 66), 39: (32, 17), 40: (64, 36), 41: (128, 18), 42: (64, 18),
}  # fmt: skip
IDS = {24: (1, 1), 25: (1, 2), 26: (1, 4), 27: (1, 8)}  # integers: only in tables of ids
_ID_TABLES = re.compile(r"d2t|t2d|.*tid2eid\.weight")
_F32 = 0
_MOST_BYTES = 1 << 62


def check_tensors(header: GgufHeader) -> None:
    """Looks at each tensor of a file. Raises ModelError; llama.cpp wants them one behind the other, padded."""
    expected, names = 0, set()
    for entry in header.tensors:
        if entry.name in names:
            raise ModelError(f"tensor {entry.name} comes twice")
        names.add(entry.name)
        size = _bytes(entry)
        end = header.data_start + entry.offset + size
        if end > header.size:
            raise ModelError(f"tensor {entry.name} ends at byte {end}, the file has {header.size}: it was cut")
        if entry.offset != expected:
            where = "overlaps the one before it" if entry.offset < expected else "leaves a gap before it"
            raise ModelError(f"tensor {entry.name} {where}: its offset is {entry.offset}, expected {expected}")
        expected += -(-size // header.alignment) * header.alignment


def _bytes(entry: TensorEntry) -> int:
    """What a tensor takes in the file, without padding."""
    types = IDS if _ID_TABLES.fullmatch(entry.name) else BLOCKS
    if entry.kind not in types:
        raise ModelError(f"tensor {entry.name} is of type {entry.kind}, which a model cannot compute with")
    values, size = types[entry.kind]
    count = 1
    for length in entry.shape:
        if not 0 < length < 1 << 40:
            raise ModelError(f"tensor {entry.name} has the shape {list(entry.shape)}")
        count *= length
    if count > _MOST_BYTES:
        raise ModelError(f"tensor {entry.name} has the shape {list(entry.shape)}, which overflows")
    if entry.shape[0] % values:
        raise ModelError(f"tensor {entry.name} has rows of {entry.shape[0]}, its type needs multiples of {values}")
    vector = len(entry.shape) == 1 and types is BLOCKS
    if entry.kind != _F32 and (vector or entry.name.endswith(("_norm.weight", ".bias"))):
        raise ModelError(f"tensor {entry.name} is of type {entry.kind}, norms and biases must be f32")
    return count // values * size
