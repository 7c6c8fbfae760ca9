"""Every layout of docs/head-format.md against its numpy network: features, catching up, a chain, a tree, whole texts.

Where a layout is used: EAGLE-1/2 with fc and q/k/v biases by SafeAILab's drafts, their input norms by HASS, output_norm
by speculators' pre_lm_head_layernorm. EAGLE-3: residual and fc norms by speculators and ModelOpt, fc_norm and
norm_output by EAGLE-3.1, biases, q/k norms and other numbers of features by speculators, several layers by vLLM, a
shared head by SGLang.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loops
from heads import EXACT, TOLERANCE, error
from llama_eagle import POST_NORM, Batch, Context, Drafter, Model, TreeShape, grow
from loops import Loaded, prompt, run, text
from reference import DraftNet, Limits, forward, grow_reference, rope_divisors
from tiny import Draft, DraftShape, TinyTarget, eagle3_shape, eagle_shape, random_draft

LLAMA3 = {
    "rope_theta": 10000.0,
    "rope_scaling": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    },
}
YARN = (("scaling.type", "yarn"), ("scaling.factor", 4.0), ("scaling.original_context_length", 64))
LINEAR = (("scaling.type", "linear"), ("scaling.factor", 4.0))
WIDE = {"n_embd": 96, "n_head": 6}

VARIANTS: dict[str, DraftShape] = {
    "eagle": eagle_shape(),
    "eagle, fc bias": eagle_shape("fc_bias"),
    "eagle, qkv bias": eagle_shape("fc_bias qkv_bias"),
    "eagle, HASS norms": eagle_shape("input_norms"),
    "eagle, output norm": eagle_shape("output_norm fc_bias"),
    "eagle, two layers": eagle_shape(n_layer=2),
    "eagle, own vocabulary": eagle_shape("token_embd output d2t"),
    "eagle, everything": eagle_shape(
        "fc_bias qkv_bias o_bias ffn_bias qk_norm input_norms output_norm token_embd output rope_freqs",
        n_layer=2,
        head_dim=24,
    ),
    "eagle, yarn": eagle_shape(rope=YARN),
    "plain eagle3": eagle3_shape(),
    "one feature": eagle3_shape(features=(6,)),
    "two features": eagle3_shape(features=(5, 1)),
    "four features": eagle3_shape(features=(1, 2, 4, 6)),
    "the post-norm feature": eagle3_shape(features=(POST_NORM,)),
    "mixed features": eagle3_shape("fc_norm", features=(2, 5, POST_NORM)),
    "no fc": DraftShape(parts=frozenset({"output_norm", "input_norms"}), features=(POST_NORM,)),
    "fc bias": eagle3_shape("fc_bias"),
    "fc norm": eagle3_shape("fc_norm norm_output"),
    "norm before fc": eagle3_shape("norm_before_fc", features=(2, 5)),
    "norm output": eagle3_shape("norm_output"),
    "norm before residual": eagle3_shape("norm_before_residual"),
    "biases": eagle3_shape("qkv_bias o_bias ffn_bias"),
    "query and key norms": eagle3_shape("qk_norm"),
    "head size": eagle3_shape(head_dim=40, n_head=3, n_head_kv=1),
    "another width": eagle3_shape("token_embd", **WIDE),
    "two layers": eagle3_shape(n_layer=2),
    "whole vocabulary": DraftShape(parts=frozenset({"fc", "output", "output_norm", "input_norms"})),
    "shared head": DraftShape(parts=frozenset({"fc", "output_norm", "input_norms"})),
    "rope linear": eagle3_shape(rope=LINEAR),
    "rope yarn": eagle3_shape(rope=YARN, head_dim=32),
    "rope llama3": eagle3_shape("rope_freqs", n_layer=2),
    "rope in part": eagle3_shape(rope=(("dimension_count", 8),)),
    "everything": eagle3_shape(
        "fc_bias fc_norm norm_output norm_before_residual qkv_bias o_bias ffn_bias qk_norm token_embd rope_freqs",
        n_layer=3,
        features=(0, 3, 6, POST_NORM),
        **WIDE,
    ),
}


class Case:
    """A draft beside its target, loaded, and its numpy twin."""

    def __init__(self, draft: Draft, target: TinyTarget, folder: Path) -> None:
        self.draft, self.target = draft, target
        self.model = Model(draft.write(folder / "draft.gguf"), target=Model(target.path))
        self.tokens = np.random.default_rng(1).integers(3, 272, 14).astype(np.int32)
        out = forward(target.tensors, target.shape, self.tokens)
        ids = draft.shape.features
        self.features = np.concatenate([out.hidden if i < 0 else out.layer_inputs[i] for i in ids], axis=1)

    def net(self) -> DraftNet:
        shared = (self.target.tensors[f"{name}.weight"] for name in ("token_embd", "output"))
        return DraftNet(self.draft.shape.arch, self.draft.keys, self.draft.tensors, *shared)

    def context(self, **params: Any) -> Context:
        return Context(self.model, **{**EXACT, **params})

    def caught_up(self, context: Context) -> np.ndarray:
        """Decodes all pairs (feature, next token); returns the encoded features."""
        g = context.encode(self.features[:-1].astype(np.float32))
        context.decode(Batch(self.tokens[1:], embd=g))
        return g


@pytest.fixture(params=VARIANTS)
def case(request: pytest.FixtureRequest, tmp_path: Path, tiny_target: Callable[..., TinyTarget]) -> Case:
    draft = random_draft(VARIANTS[request.param])
    if "rope llama3" in request.param:
        draft.tensors["rope_freqs.weight"] = rope_divisors(LLAMA3, 16).astype(np.float32)
    return Case(draft, tiny_target("llama"), tmp_path)


def test_the_target_gives_the_features(case: Case) -> None:
    info = case.model.info
    assert (info.is_draft, info.features, info.n_embd_target) == (True, case.draft.shape.features, 64)
    assert case.model.target is not None
    with Context(case.model.target, info.features, **EXACT) as context:
        context.decode(Batch(case.tokens))
        assert error(context.features(), case.features) < TOLERANCE


@pytest.mark.parametrize("n_ubatch", [512, 5])
def test_prompt_and_three_steps(case: Case, n_ubatch: int) -> None:
    net = case.net()
    with case.context(n_ubatch=n_ubatch) as context:
        g = case.caught_up(context)
        assert error(g, net.encode(case.features[:-1])) < TOLERANCE
        hidden, logits = net.decode(case.tokens[1:], net.encode(case.features[:-1]), np.arange(13))
        for step in range(4):
            assert error(context.logits(), logits[-1:]) < TOLERANCE
            assert error(context.hidden(), hidden[-1:]) < TOLERANCE
            token = int(context.top_k(1)[0][-1, 0])
            assert token == net.target_ids[logits[-1].argmax()]
            context.decode(Batch([token], embd=context.hidden()[-1:], parents=[step - 1]))
            hidden, logits = net.decode([token], hidden[-1:], [13 + step])


def test_mixed_outputs(case: Case) -> None:
    net = case.net()
    wanted = [0, 1, 0, 0, 1, 1, 0, 0, 0, 0, 1, 0, 1]
    with case.context() as context:
        g = context.encode(case.features[:-1].astype(np.float32))
        context.decode(Batch(case.tokens[1:], embd=g, outputs=wanted))
        hidden, logits = net.decode(case.tokens[1:], net.encode(case.features[:-1]), np.arange(13))
        assert error(context.logits(), logits[np.flatnonzero(wanted)]) < TOLERANCE
        assert error(context.hidden(), hidden[np.flatnonzero(wanted)]) < TOLERANCE


def test_a_tree(case: Case) -> None:
    """Grown in Python and in one native call."""
    net = case.net()
    features, tokens = case.features[:-1].astype(np.float32), case.tokens[1:].tolist()
    expected = grow_reference(net, tokens, net.encode(features), 0, Limits(12, 3, 4))
    with case.context() as context:
        drafter = Drafter(context)
        drafter.observe([0, *tokens[:-1]], features)
        native = drafter.grow(tokens[-1], TreeShape(12, 3, 4))
        assert context.cells_used() == context.n_past() == 13
        context.clear()
        case.caught_up(context)
        for tree in (native, grow(context, 12, 3, 4)):
            assert tree.root == tokens[-1]
            np.testing.assert_array_equal(tree.tokens, net.target_ids[expected.ids])
            np.testing.assert_array_equal(tree.parents, expected.parents)
            np.testing.assert_array_equal(tree.depths, expected.depths)
            np.testing.assert_allclose(tree.scores, expected.scores, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("shape", [TreeShape(12, 3, 4), TreeShape.chain(3)], ids=["tree", "chain"])
def test_texts_are_those_of_plain_decoding(case: Case, shape: TreeShape) -> None:
    assert case.model.target is not None
    loaded = Loaded(case.model.target, case.model)
    start = prompt(20)
    plain, drafted = loaded.plain(), loaded.loop(shape)
    assert text(run(drafted, start, 24)) == text(run(plain, start, 24))
    loops.check_draft(drafted)


def test_parts_matter(tiny_target: Callable[..., TinyTarget], tmp_path: Path) -> None:
    """Each optional part changes the logits by far more than the tolerance, so that ignoring one would be seen."""
    target = tiny_target("llama")
    for arch, make, parts in (
        ("eagle", eagle_shape, "fc_bias qkv_bias o_bias ffn_bias qk_norm input_norms output_norm rope_freqs"),
        (
            "eagle3",
            eagle3_shape,
            "fc_bias fc_norm norm_before_fc norm_before_residual qkv_bias o_bias ffn_bias qk_norm",
        ),
    ):
        base = Case(random_draft(make()), target, tmp_path)
        _, plain = base.net().decode(base.tokens[1:], base.net().encode(base.features[:-1]), np.arange(13))
        for part in parts.split():
            net = Case(random_draft(make(part)), target, tmp_path).net()
            _, logits = net.decode(base.tokens[1:], net.encode(base.features[:-1]), np.arange(13))
            assert error(logits, plain) > 10 * TOLERANCE, f"{arch} {part}"
