"""target_info.py: sizes and tokenizer of a target, or one line that says what is wrong with it."""

import struct
from dataclasses import replace

import gguf
import pytest

import conversion
from llama_eagle.conversion.target_info import read_target
from llama_eagle.errors import ModelError
from tiny.target import finish


@pytest.fixture
def path(tmp_path):
    return conversion.write_target(tmp_path / "target.gguf")


def test_sizes_and_tokenizer_are_read(path):
    info = read_target(path)
    sizes = (info.arch, info.n_layer, info.n_embd, info.n_vocab, info.n_ctx, info.tied)
    assert sizes == ("llama", conversion.LAYERS, conversion.HIDDEN, conversion.VOCAB, conversion.CONTEXT, False)
    meta = {value.key: value for value in info.tokenizer}
    assert meta["tokenizer.ggml.tokens"].value[3] == "token3"
    assert meta["tokenizer.ggml.tokens"].item == gguf.GGUFValueType.STRING
    assert meta["tokenizer.ggml.eos_token_id"].type == gguf.GGUFValueType.UINT32
    assert not any("chat_template" in key for key in meta)


@pytest.mark.parametrize("key", ["block_count", "context_length", "embedding_length"])
def test_sizes_that_no_file_can_hold_are_refused(tmp_path, key):
    writer = gguf.GGUFWriter(tmp_path / "t.gguf", "llama")
    for name in ("block_count", "context_length", "embedding_length"):
        writer.add_uint64(f"llama.{name}", 1 << 40 if name == key else 8)
    writer.add_token_list(["a"])
    finish(writer)
    with pytest.raises(ModelError, match=rf"llama\.{key} = 1099511627776; expected a positive number"):
        read_target(tmp_path / "t.gguf")


def test_a_target_without_a_head_is_tied(tmp_path):
    assert read_target(conversion.write_target(tmp_path / "tied.gguf", head=False)).tied


@pytest.mark.parametrize("cut", [0, 3, 40, 700])
def test_a_truncated_file_is_refused(path, cut):
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(ModelError, match="no readable GGUF"):
        read_target(path)


def test_a_length_beyond_the_file_ends_the_reading_at_once(path):
    whole = path.read_bytes()
    hostile = whole.replace(struct.pack("<IQ", 5, conversion.VOCAB), struct.pack("<IQ", 5, 1 << 60))
    assert hostile != whole
    path.write_bytes(hostile)
    with pytest.raises(ModelError, match="ends too early"):
        read_target(path)


def test_a_missing_key_is_named(path):
    path.write_bytes(path.read_bytes().replace(b"llama.block_count", b"llama.block_cannt"))
    with pytest.raises(ModelError, match=r"llama\.block_count"):
        read_target(path)


def test_what_is_no_target_is_refused(tmp_path):
    with pytest.raises(ModelError, match="does not exist"):
        read_target(tmp_path / "none.gguf")
    with pytest.raises(ModelError, match=r"config.json is missing; give the target's GGUF file or HF folder"):
        read_target(tmp_path)
    with pytest.raises(ModelError, match="itself a draft"):
        read_target(conversion.write_target(tmp_path / "d.gguf", arch="eagle3"))


def test_an_hf_folder_says_the_same_without_its_tokenizer(tmp_path, path):
    info = read_target(conversion.write_hf_target(tmp_path / "hf"))
    assert replace(info, path=path, tokenizer=()) == replace(read_target(path), tokenizer=())
    assert info.tokenizer == ()


@pytest.mark.parametrize("key", ["text_config", "llm_config", "language_config"])
def test_the_language_part_of_a_nested_config_is_read(tmp_path, key):
    nested = {"hidden_size": 64, "num_hidden_layers": 30, "vocab_size": 50}
    folder = conversion.write_hf_target(tmp_path / "hf", hidden_size=8, tie_word_embeddings=True, **{key: nested})
    info = read_target(folder)
    assert (info.n_embd, info.n_layer, info.n_vocab, info.n_ctx, info.tied) == (64, 30, 50, conversion.CONTEXT, True)


def test_a_config_that_says_too_little_is_refused(tmp_path):
    with pytest.raises(ModelError, match="no num_hidden_layers; give the target's GGUF file instead"):
        read_target(conversion.write_hf_target(tmp_path / "hf", num_hidden_layers=None))
