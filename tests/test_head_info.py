"""head_info.py: what a head's GGUF says of itself, and what is wrong with it whatever the target."""

from pathlib import Path

import numpy as np
import pytest

import conversion
from gguf_edit import BOOL, STRING, U32, Entry, GgufFile
from llama_eagle.errors import ModelError
from llama_eagle.head_info import HeadInfo, feature_meanings, read_head
from llama_eagle.vocabulary import map_problems
from tiny import HeadShape, random_head, write_head_gguf

SHAPE = HeadShape(seed=3, n_draft_vocab=192)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write_head_gguf(tmp_path / "head.gguf", SHAPE, random_head(SHAPE))


def edited(path: Path, edit) -> HeadInfo:
    file = GgufFile(path.read_bytes())
    edit(file)
    path.write_bytes(bytes(file))
    return read_head(path)


def test_everything_of_a_head(path):
    head = read_head(path)
    sizes = head.sizes
    assert (head.arch, head.version, head.layout, head.name) == ("eagle3", "3", None, "tiny eagle3 3")
    assert (sizes.hidden, sizes.ffn, sizes.layers) == (SHAPE.n_embd, SHAPE.n_ff, 1)
    assert (sizes.heads, sizes.kv_heads, sizes.head_size) == (SHAPE.n_head, SHAPE.n_head_kv, SHAPE.head_dim)
    assert sizes.parameters == sum(t.size for name, t in random_head(SHAPE).items() if name not in ("d2t", "t2d"))
    assert sizes.bytes == path.stat().st_size
    assert sizes.types == {"f32": 13, "i64": 1}
    assert (head.features, head.target_hidden, head.rule) == (SHAPE.layers, SHAPE.n_embd_target, None)
    assert (head.n_vocab, head.n_draft) == (SHAPE.n_vocab, 192)
    assert head.rope == {"base": SHAPE.rope_base, "scaling": "default", "factor": None}
    assert (head.context, head.shares, head.switches) == (SHAPE.n_ctx_train, ("embeddings",), ())
    assert head.vocabulary is not None
    assert head.vocabulary.kind == "gpt2"
    assert head.problems == head.notes == ()


def test_the_version_follows_what_the_network_does(path):
    assert edited(path, lambda f: f.keys.update({"eagle3.norm_output": (BOOL, True)})).version == "3.1"
    assert read_head(path).switches == ("norm_output",)


def test_fc_norm_is_3_1_too(path):
    head = edited(path, lambda f: f.tensors.append(Entry(b"fc_norm.weight", [64, 3], 0, 0)))
    assert (head.version, head.switches) == ("3.1", ("fc_norm",))


def test_what_the_converter_left(path):
    def leave(file):
        file.keys["llama_eagle.conversion.layout"] = (STRING, b"speculators")
        file.keys["llama_eagle.layer_rule"] = (STRING, b"the default")
        file.keys["llama_eagle.norm_rule"] = (STRING, b"norm_output: by the producer's rule")

    head = edited(path, leave)
    assert (head.layout, head.rule) == ("speculators", "the default")
    assert head.choices == ("norm_output: by the producer's rule",)


def test_a_head_without_tokenizer_says_so(path):
    def drop(file):
        file.keys = {key: value for key, value in file.keys.items() if not key.startswith("tokenizer.")}
        file.keys["tokenizer.ggml.model"] = (STRING, b"none")

    head = edited(path, drop)
    assert head.vocabulary is None
    assert head.n_vocab == SHAPE.n_vocab
    assert "by size only" in head.notes[0]


def test_problems_of_a_file(path):
    head = edited(path, lambda f: f.keys.pop("eagle3.target_layers"))
    assert "no eagle3.target_layers" in head.problems[0]
    head = edited(path, lambda f: setattr(f, "tensors", [t for t in f.tensors if t.name != b"output_norm.weight"]))
    assert "tensor output_norm.weight is missing" in head.problems


def test_a_map_that_leaves_the_vocabulary(tmp_path):
    state = random_head(SHAPE)
    state["d2t"][5] = 1000
    head = read_head(write_head_gguf(tmp_path / "h.gguf", SHAPE, state))
    assert head.problems == ("d2t[5] points at token 1005, outside the target's 272 tokens",)
    assert head.map_end == 1006


def test_a_map_of_another_type_or_cut(path):
    file = GgufFile(path.read_bytes())
    entry = next(t for t in file.tensors if t.name == b"d2t")
    entry.kind = 0
    path.write_bytes(bytes(file))
    with pytest.raises(ModelError, match=r"d2t is \[192\] of type f32"):
        read_head(path)
    entry.kind, entry.offset = 27, 1 << 40
    path.write_bytes(bytes(file))
    with pytest.raises(ModelError, match="d2t ends after the file"):
        read_head(path)


@pytest.mark.parametrize(
    ("ids", "n_vocab", "words"),
    [
        ([0, 2, 2, 2], 8, "maps 3 draft tokens to the same target token 2"),
        ([-1, 2], 8, "d2t[0] points at token -1"),
        ([0, 8], 8, "d2t[1] points at token 8, outside the target's 8"),
    ],
)
def test_maps_that_no_target_fits(ids, n_vocab, words):
    assert words in map_problems(np.array(ids), n_vocab)[0]
    assert map_problems(np.array([0, 5, 7]), n_vocab) == []


def test_values_of_a_wrong_type(path):
    with pytest.raises(ModelError, match=r"cannot load .*head\.gguf: eagle3\.embedding_length is no whole number"):
        edited(path, lambda f: f.keys.update({"eagle3.embedding_length": (STRING, b"64")}))


def test_a_layer_number_that_no_model_has(path):
    with pytest.raises(ModelError, match="target_layers is 70000"):
        edited(path, lambda f: f.keys.update({"eagle3.target_layers": (U32, 70000)}))


def test_what_is_no_head(tmp_path):
    with pytest.raises(ModelError, match="architecture is llama, it is no draft head"):
        read_head(conversion.write_target(tmp_path / "t.gguf"))
    with pytest.raises(ModelError, match="no such model file"):
        read_head(tmp_path / "none.gguf")


def test_features_in_words():
    assert feature_meanings((0, 2, 12), 12) == [
        "token embeddings",
        "input of layer 2",
        "output of the last layer, before the final norm",
    ]
    assert feature_meanings((-1,), None) == ["last hidden state, after the final norm"]
    assert feature_meanings((12,), None) == ["input of layer 12"]
