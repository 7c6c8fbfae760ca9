"""Draft files that contradict themselves or their target are refused by name, in a process of their own: no abort."""

from collections.abc import Callable
from pathlib import Path

import pytest

from llama_eagle import Model, ModelError
from processes import run_python
from tiny import Draft, DraftShape, TinyTarget, eagle3_shape, eagle_shape, random_draft

CODE = """
target = Model(path)
def use(file):
    with Model(file, target=target) as model, Context(model, n_ctx=64) as context:
        width = len(model.info.features) * model.info.n_embd_target
        drafter = Drafter(context)
        drafter.observe([5, 6], np.ones((2, width), np.float32))
        drafter.grow(7, TreeShape(4, 2, 2))
for file in sys.argv[2:]:
    try:
        print(file, flush=True)
        use(file)
        print("fine")
    except EagleError as error:
        print(repr(str(error)))
"""

Change = Callable[[Draft], None]
Answers = dict[str, dict[str, str]]  # architecture -> case -> what it gave


def drop(name: str) -> Change:
    def change(draft: Draft) -> None:
        del draft.tensors[name]

    return change


def cut(name: str, rows: int) -> Change:
    def change(draft: Draft) -> None:
        draft.tensors[name] = draft.tensors[name][:rows]

    return change


def shift(name: str, by: int) -> Change:
    def change(draft: Draft) -> None:
        draft.tensors[name] = draft.tensors[name] + by

    return change


def add(name: str, like: str) -> Change:
    def change(draft: Draft) -> None:
        draft.tensors[name] = draft.tensors[like]

    return change


def key(name: str, value: object) -> Change:
    def change(draft: Draft) -> None:
        draft.keys[name] = value

    return change


def no_key(name: str) -> Change:
    def change(draft: Draft) -> None:
        del draft.keys[name]

    return change


BOTH: dict[str, tuple[Change, str]] = {
    "no features": (key("target_layers", []), "target_layers"),
    "65 features": (key("target_layers", [1] * 65), "target_layers"),
    "feature below": (key("target_layers", [-2]), "target_layers"),
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
    "map beyond the vocabulary": (shift("d2t", 200), "d2t"),
    "unknown tensor": (add("blk.0.whatever.weight", "fc.weight"), "tensor"),
    "tensor of a layer it has not": (add("blk.1.ffn_norm.weight", "blk.0.ffn_norm.weight"), "tensor"),
}
EAGLE: dict[str, tuple[Change, str]] = {
    "no fc": (drop("fc.weight"), "fc"),
    "other features": (key("target_layers", [-1, 2]), "target_layers"),
    "a layer": (key("target_layers", [3]), "target_layers"),
    "feature above": (key("target_layers", [99]), "target_layers"),
    "norm of features": (add("fc_norm.weight", "fc.weight"), "tensor|fc_norm"),
}
EAGLE3: dict[str, tuple[Change, str]] = {
    "no fc": (drop("fc.weight"), "fc"),
    "feature above": (key("target_layers", [2, 3, 99]), "layer 99"),
    "feature far above": (key("target_layers", [2, 3, 1 << 20]), "target_layers"),
    "no norm before fc": (key("norm_before_fc", True), "enc.output_norm"),
    "norms of two features": (cut("fc_norm.weight", 2), "fc_norm"),
    "no output norm": (drop("output_norm.weight"), "output_norm"),
    "no norm of the embedding": (drop("blk.0.attn_norm.weight"), "attn_norm"),
    "no norm of the feature": (drop("blk.0.attn_norm_2.weight"), "attn_norm_2"),
}
PARTS = "fc_bias qkv_bias o_bias ffn_bias qk_norm token_embd output d2t rope_freqs"
SHAPES = {"eagle": eagle_shape(PARTS), "eagle3": eagle3_shape(PARTS + " fc_norm")}
WRONG = {"eagle": {**BOTH, **EAGLE}, "eagle3": {**BOTH, **EAGLE3}}
CASES = [(arch, name) for arch, wrong in WRONG.items() for name in wrong]


def tried(folder: Path, target: TinyTarget, drafts: dict[str, Draft], code: str = CODE) -> dict[str, str]:
    """What using each draft gives: "fine" or its error. All in one process, which must live."""
    files = {name: draft.write(folder / f"{i}.gguf") for i, (name, draft) in enumerate(drafts.items())}
    lines = run_python(code, target.path, *files.values()).splitlines()
    assert lines[::2] == [str(file) for file in files.values()]
    return dict(zip(files, lines[1::2], strict=True))


# without the check of the header in front of it, the library alone must do
ALONE = "import llama_eagle.model\nllama_eagle.model.check_gguf = lambda *args: None\n" + CODE


@pytest.fixture(scope="module", params=[CODE, ALONE], ids=["checked", "library alone"])
def answers(
    request: pytest.FixtureRequest, tiny_target: Callable[..., TinyTarget], tmp_path_factory: pytest.TempPathFactory
) -> Answers:
    found = {}
    for arch, wrong in WRONG.items():
        drafts = {name: random_draft(SHAPES[arch]) for name in ("sound", *wrong)}
        for name, (change, _) in wrong.items():
            change(drafts[name])
        found[arch] = tried(tmp_path_factory.mktemp(arch), tiny_target("llama"), drafts, request.param)
    return found


@pytest.mark.parametrize(("arch", "name"), CASES)
def test_refused_by_name(arch: str, name: str, answers: Answers) -> None:
    said, (_, words) = answers[arch][name], WRONG[arch][name]
    assert said != "fine"
    assert any(word in said for word in words.split("|")), said
    assert "\\n" not in said, said


@pytest.mark.parametrize("arch", WRONG)
def test_a_sound_file_is_not_refused(arch: str, answers: Answers) -> None:
    assert answers[arch]["sound"] == "fine"


def test_a_draft_that_lacks_what_its_target_cannot_give(tiny_target: Callable[..., TinyTarget], tmp_path: Path) -> None:
    wide = random_draft(eagle3_shape(n_embd=96, n_head=6))
    small = random_draft(eagle_shape(n_embd=32, n_embd_target=32, n_head=2, n_head_kv=1))
    said = tried(tmp_path, tiny_target("llama"), {"wide": wide, "small": small})
    assert "token embeddings" in said["wide"]
    assert "hidden size 32, this one has 64" in said["small"]
    with pytest.raises(ModelError, match="with its target"):
        Model(random_draft(eagle_shape()).write(tmp_path / "alone.gguf"))


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("options", ["features=(-1,)", "features=(0, 1)", "features=(1,)"])
def test_a_draft_has_no_features_to_extract(
    shape: DraftShape, options: str, tiny_target: Callable[..., TinyTarget], tmp_path: Path
) -> None:
    path = random_draft(shape).write(tmp_path / "draft.gguf")
    code = f"target = Model(path)\nprint(refused(Context, Model(sys.argv[2], target=target), {options}, n_ctx=64))"
    assert "features are a target's" in run_python(code, tiny_target("llama").path, path)


def test_a_vocabulary_alone_is_no_draft(tiny_target: Callable[..., TinyTarget], tmp_path: Path) -> None:
    path = random_draft(eagle_shape()).write(tmp_path / "draft.gguf")
    code = """
target = Model(path)
refused(Context, Model(sys.argv[2], target=target, vocab_only=True), n_ctx=64)
print(refused(Model, sys.argv[2], target=Model(path, vocab_only=True)))
"""
    assert "hidden size" in run_python(code, tiny_target("llama").path, path)
