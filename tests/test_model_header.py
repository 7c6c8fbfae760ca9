"""model_header.py: within kept_headers() a file is read once, afterwards again."""

from pathlib import Path

import pytest

from conversion import write_target
from llama_eagle.errors import ModelError
from llama_eagle.gguf_files import model_header as module
from llama_eagle.gguf_files.model_header import kept_headers, metadata_of, model_header, whole


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write_target(tmp_path / "t.gguf")


def test_a_file_is_read_once_within(path, monkeypatch):
    reads = []
    real = module.read_header
    monkeypatch.setattr(module, "read_header", lambda file, keep: reads.append(file) or real(file, keep))
    with kept_headers():
        assert model_header(path) is model_header(path)
        assert len(reads) == 1
        path.write_bytes(path.read_bytes() + b"\0" * 32)  # another file by now
        model_header(path)
        assert len(reads) == 2
    assert model_header(path) is not model_header(path)
    assert len(reads) == 4


def test_a_file_that_goes_away(path):
    with kept_headers():
        path.unlink()
        with pytest.raises(ModelError, match="cannot be read"):
            model_header(path)


def test_sizes(path):
    meta = metadata_of(model_header(path))
    assert (meta.arch, whole(meta, "block_count"), whole(meta, "expert_count")) == ("llama", 12, None)
