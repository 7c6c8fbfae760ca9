"""Refuses GGUF files whose metadata would make llama.cpp abort or loop: sizes that no model has, broken vocabularies.

Knows which rules there are and in which order they name a fault best, and nothing that llama.cpp refuses in a civil
way: missing keys and tensors, wrong types. Reads headers, loads no tensor.
"""

from pathlib import Path

from ..errors import ModelError
from .head import HEADS, check_head
from .layers import check_floats, check_layers
from .metadata import Metadata
from .model_header import model_header
from .split import read_parts
from .tensors import check_tensors
from .vocab import check_vocabulary


def check_gguf(path: Path) -> None:
    """Looks at a file's header, and at those of its other parts where it is split.

    Raises ModelError, one line with the value found, where llama.cpp must not see it.
    """
    try:
        header = model_header(path)
        parts = read_parts(path, header)
        meta = Metadata(header, [entry for _, part in parts for entry in part.tensors])
        if not meta.arch:
            raise ModelError("it has no general.architecture: it is no model, or it was damaged")
        check_floats(meta)
        for file, part in parts:
            try:
                check_tensors(part)
            except ModelError as error:
                raise error if len(parts) == 1 else ModelError(f"its part {file.name}: {error}") from None
        if meta.get("block_count") is not None:  # a vocabulary alone, or another kind of file
            check_layers(meta)
        if meta.arch in HEADS:
            check_head(meta)
        check_vocabulary(meta)
    except ModelError as error:
        raise ModelError(f"cannot load {path}: {error}") from None
