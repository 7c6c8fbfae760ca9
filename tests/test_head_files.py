"""Draft files that contradict themselves or their target are refused by name, in processes of their own: no abort."""

from collections.abc import Callable
from pathlib import Path

import pytest

from processes import run_python
from tiny import Draft, TinyTarget, eagle3_shape, eagle_shape, random_draft

CODE = """
import numpy as np
target = Model(sys.argv[2])
def use():
    with Model(path, target=target) as model, Context(model, n_ctx=64) as context:
        width = len(model.info.features) * model.info.n_embd_target
        context.decode(Batch([5, 6], embd=context.encode(np.ones((2, width), np.float32))))
        context.grow(0, (4, 2, 2))
print(refused(use))
"""

Change = Callable[[Draft], None]


def drop(name: str) -> Change:
    return lambda draft: draft.tensors.pop(name) and None


def cut(name: str, rows: int) -> Change:
    def change(draft: Draft) -> None:
        draft.tensors[name] = draft.tensors[name][:rows]

    return change


def key(name: str, value: object) -> Change:
    return lambda draft: draft.keys.update({name: value})


def no_key(name: str) -> Change:
    return lambda draft: draft.keys.pop(name) and None


def add(name: str, like: str) -> Change:
    return lambda draft: draft.tensors.update({name: draft.tensors[like]})


BOTH: dict[str, tuple[Change, str]] = {
    "no features": (key("target_layers", []), "target_layers"),
    "65 features": (key("target_layers", [1] * 65), "target_layers"),
    "feature below": (key("target_layers", [-2]), "target_layers"),
    "feature above": (key("target_layers", [99]), "target_layers|layer 99"),
    "features are texts": (key("target_layers", ["a"]), "target_layers"),
    "features are floats": (key("target_layers", [1.5]), "target_layers"),
    "features are no list": (key("target_layers", 3), "target_layers"),
    "no feature key": (no_key("target_layers"), "target_layers"),
    "no width": (no_key("target_hidden_size"), "target_hidden_size"),
    "width 0": (key("target_hidden_size", 0), "target_hidden_size"),
    "another width": (key("target_hidden_size", 32), "fc|target_hidden_size"),
    "huge width": (key("target_hidden_size", 1 << 31), "target_hidden_size"),
    "no eps": (no_key("attention.layer_norm_rms_epsilon"), "epsilon"),
    "two layers": (key("block_count", 2), "blk.1"),
    "nextn": (key("nextn_predict_layers", 1), "nextn"),
    "not causal": (key("attention.causal", False), "causal"),
    "output width": (key("embedding_length_out", 128), "embedding_length_out"),
    "longrope": (key("rope.scaling.type", "longrope"), "longrope"),
    "values differ": (key("attention.value_length", 8), "16|8"),
    "no heads": (key("attention.head_count", 0), "heads|head"),
    "rope beyond the head": (key("rope.dimension_count", 18), "18"),
    "rope odd": (key("rope.dimension_count", 7), "7"),
    "rope 0": (key("rope.dimension_count", 0), "0"),
    "no ffn": (key("feed_forward_length", 0), "feed_forward_length|ffn"),
    "no norm of the ffn": (drop("blk.0.ffn_norm.weight"), "ffn_norm"),
    "no query": (drop("blk.0.attn_q.weight"), "attn_q"),
    "short query": (cut("blk.0.attn_q.weight", 48), "attn_q"),
    "short key bias": (cut("blk.0.attn_k.bias", 16), "attn_k"),
    "short key norm": (cut("blk.0.attn_k_norm.weight", 8), "attn_k_norm"),
    "short output bias": (cut("blk.0.attn_output.bias", 8), "attn_output"),
    "short ffn bias": (cut("blk.0.ffn_up.bias", 8), "ffn_up"),
    "short frequencies": (cut("rope_freqs.weight", 4), "rope_freqs"),
    "short fc": (cut("fc.weight", 32), "fc"),
    "short fc bias": (cut("fc.bias", 32), "fc"),
    "short embeddings": (cut("token_embd.weight", 200), "token_embd"),
    "short head": (cut("output.weight", 100), "output"),
    "no head with a map": (drop("output.weight"), "output"),
    "map of another length": (cut("d2t", 50), "output|d2t"),
    "map beyond the vocabulary": (lambda draft: draft.tensors["d2t"].__iadd__(200) is None, "d2t"),
    "unknown tensor": (add("blk.0.whatever.weight", "fc.weight"), "tensor"),
    "tensor of a layer it has not": (add("blk.1.ffn_norm.weight", "blk.0.ffn_norm.weight"), "tensor"),
}
EAGLE: dict[str, tuple[Change, str]] = {
    "no fc": (drop("fc.weight"), "fc"),
    "other features": (key("target_layers", [-1, 2]), "target_layers"),
    "a layer": (key("target_layers", [3]), "target_layers"),
    "norm of features": (add("fc_norm.weight", "fc.weight"), "tensor"),
}
EAGLE3: dict[str, tuple[Change, str]] = {
    "no fc": (drop("fc.weight"), "fc"),
    "no norm before fc": (key("norm_before_fc", True), "enc.output_norm"),
    "norms of two features": (cut("fc_norm.weight", 2), "fc_norm"),
    "no output norm": (drop("output_norm.weight"), "output_norm"),
    "no norm of the embedding": (drop("blk.0.attn_norm.weight"), "attn_norm"),
    "no norm of the feature": (drop("blk.0.attn_norm_2.weight"), "attn_norm_2"),
}
PARTS = "fc_bias qkv_bias o_bias ffn_bias qk_norm token_embd output d2t rope_freqs"
CASES = [("eagle", name, change) for name, change in {**BOTH, **EAGLE}.items()]
CASES += [("eagle3", name, change) for name, change in {**BOTH, **EAGLE3}.items()]


def refusal(draft: Draft, target: TinyTarget, folder: Path) -> str:
    return run_python(CODE, draft.write(folder / "draft.gguf"), target.path)


@pytest.mark.parametrize(("arch", "name", "case"), CASES, ids=[f"{arch}: {name}" for arch, name, _ in CASES])
def test_refused_by_name(
    arch: str, name: str, case: tuple[Change, str], tiny_target: Callable[..., TinyTarget], tmp_path: Path
) -> None:
    change, words = case
    draft = random_draft(eagle_shape(PARTS) if arch == "eagle" else eagle3_shape(PARTS + " fc_norm"))
    change(draft)
    said = refusal(draft, tiny_target("llama"), tmp_path)
    assert any(word in said for word in words.split("|")), said
    assert len(said.strip().splitlines()) == 1, said


@pytest.mark.parametrize("make", [eagle_shape, eagle3_shape])
def test_a_sound_file_is_not_refused(
    make: Callable[..., object], tiny_target: Callable[..., TinyTarget], tmp_path: Path
) -> None:
    """The code of these tests finds something to refuse in wrong files only."""
    path = random_draft(make(PARTS)).write(tmp_path / "draft.gguf")  # type: ignore[arg-type]
    run_python(CODE.replace("print(refused(use))", "use()"), path, tiny_target("llama").path)


def test_a_draft_that_lacks_what_its_target_cannot_give(tiny_target: Callable[..., TinyTarget], tmp_path: Path) -> None:
    wide = random_draft(eagle3_shape(n_embd=96, n_head=6))
    assert "token embeddings" in refusal(wide, tiny_target("llama"), tmp_path)
    small = random_draft(eagle_shape(n_embd=32, n_embd_target=32, n_head=2, n_head_kv=1))
    assert "hidden size of 32" in refusal(small, tiny_target("llama"), tmp_path).replace("size 32", "size of 32")
    alone = random_draft(eagle_shape()).write(tmp_path / "alone.gguf")
    assert "with its target" in run_python("print(refused(Model, path))", alone)
