"""target_side.py: sizes and vocabulary of a target from its header, or one line."""

import pytest

import conversion
from llama_eagle.errors import ModelError
from llama_eagle.target_side import read_target_side


def test_sizes_and_vocabulary(tmp_path):
    side = read_target_side(conversion.write_target(tmp_path / "t.gguf"))
    assert (side.name, side.arch, side.is_draft) == ("t.gguf", "llama", False)
    sizes = (side.n_layer, side.n_embd, side.n_ctx, side.n_vocab)
    assert sizes == (conversion.LAYERS, conversion.HIDDEN, conversion.CONTEXT, conversion.VOCAB)
    assert (side.vocabulary.kind, side.vocabulary.pre, side.vocabulary.tokens[3]) == ("gpt2", "smollm", b"token3")
    assert side.vocabulary.is_normal(3)


def test_a_draft_is_told(tmp_path):
    assert read_target_side(conversion.write_target(tmp_path / "d.gguf", arch="eagle3")).is_draft


@pytest.mark.parametrize("cut", [0, 3, 40, 700])
def test_a_cut_file_is_one_line(tmp_path, cut):
    path = conversion.write_target(tmp_path / "t.gguf")
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(ModelError, match=r"cannot load .*t\.gguf: it "):
        read_target_side(path)


def test_what_is_no_model(tmp_path):
    with pytest.raises(ModelError, match="no such model file"):
        read_target_side(tmp_path / "none.gguf")
    path = conversion.write_target(tmp_path / "t.gguf")
    path.write_bytes(path.read_bytes().replace(b"llama.block_count", b"llama.block_cannt"))
    with pytest.raises(ModelError, match=r"no llama\.block_count: it is no language model"):
        read_target_side(path)
