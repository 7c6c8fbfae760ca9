"""file_identity: which model a GGUF file is, by reading little of it. Knows no architecture."""

import hashlib
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO

from .header import GgufHeader, read_header
from .model_header import named_errors
from .split import read_parts

SAMPLE = 4096  # bytes read of each tensor


def file_identity(path: Path) -> str:
    """64 hex digits: a SHA-256 over a file's size, metadata, list of tensors and 4 KiB from the middle of each tensor.

    All parts of a split file count. A few MB are read, whatever the size of the model. Other weights of the same shape
    and metadata (a fine-tune, another quantisation of one tensor) give another identity; a file that differs nowhere
    but in bytes between the samples would not, which no training or conversion makes.
    The name of a file does not count.
    Raises ModelError where the header is broken.
    """
    digest = hashlib.sha256()
    with named_errors(path):
        for part, header in read_parts(path, read_header(path)):
            with part.open("rb") as file:
                _add(digest, file, header)
    return digest.hexdigest()


def _add(digest: "hashlib._Hash", file: BinaryIO, header: GgufHeader) -> None:
    digest.update(f"{header.size} {header.data_start}\n".encode())
    digest.update(file.read(header.data_start))
    begins = sorted({min(header.data_start + tensor.offset, header.size) for tensor in header.tensors})
    for begin, end in pairwise([*begins, header.size]):
        file.seek(max(begin, (begin + end - SAMPLE) // 2))
        digest.update(file.read(min(SAMPLE, end - begin)))
