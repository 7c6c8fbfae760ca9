"""Refuses GGUF files whose metadata would make llama.cpp abort or loop: sizes that no model has, broken vocabularies.

Knows which rules there are and in which order they name a fault best, and nothing that llama.cpp refuses in a civil
way: missing keys and tensors, wrong types. Reads headers, loads no tensor.
"""

from pathlib import Path

from ..errors import ModelError
from .head import HEADS, check_head
from .layers import check_floats, check_layers
from .model_header import metadata_of, model_header, named_errors
from .split import read_parts
from .tensors import check_tensors
from .vocab import check_vocabulary


def check_gguf(path: Path) -> None:
    """Looks at a file's header, and at those of its other parts where it is split.

    Raises ModelError, one line with the value found, where llama.cpp must not see it.
    """
    with named_errors(path):
        header = model_header(path)
        parts = read_parts(path, header)
        meta = metadata_of(header, [entry for _, part in parts for entry in part.tensors])
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
