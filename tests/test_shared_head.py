"""A draft without a head of its own takes the target's: its matrix and the bias behind it, tied or not."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from gguf_edit import Entry, GgufFile
from heads import EXACT, TOLERANCE, error
from llama_eagle import Batch, Context, Model
from reference import DraftNet
from tiny import Draft, DraftShape, TinyTarget, eagle_shape, random_draft

Tiny = Callable[..., TinyTarget]
HEADLESS = {
    "eagle": eagle_shape(),
    "eagle3": DraftShape(parts=frozenset({"fc", "output_norm", "input_norms"})),
}


def with_bias(target: TinyTarget, path: Path) -> np.ndarray:
    """Writes the target with a bias behind its head; returns the bias."""
    bias = np.random.default_rng(7).standard_normal(target.shape.n_vocab).astype(np.float32) * 3
    file = GgufFile(target.path.read_bytes())
    file.data += bytes(-len(file.data) % 32)
    file.tensors.append(Entry(b"output.bias", [len(bias)], 0, len(file.data)))
    file.data += bias.tobytes()
    path.write_bytes(bytes(file))
    return bias


def logits_of(draft: Draft, target: Path, folder: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Tokens, features and the draft's logits for them."""
    rng = np.random.default_rng(2)
    tokens = rng.integers(3, 272, 9).astype(np.int32)
    features = rng.standard_normal((9, 64 * len(draft.shape.features))).astype(np.float32)
    with (
        Model(target) as model,
        Model(draft.write(folder / "draft.gguf"), target=model) as head,
        Context(head, **EXACT) as context,
    ):
        context.decode(Batch(tokens, embd=context.encode(features), outputs=[1] * 9))
        return tokens, features, context.logits()


def expected_of(draft: Draft, target: TinyTarget, tokens: np.ndarray, features: np.ndarray) -> np.ndarray:
    embeddings = target.tensors["token_embd.weight"]
    head = target.tensors.get("output.weight", embeddings)
    net = DraftNet(draft.shape.arch, draft.keys, draft.tensors, embeddings, head)
    return net.decode(tokens, net.encode(features), np.arange(9))[1]


@pytest.mark.parametrize("name", HEADLESS)
def test_the_bias_of_a_head_is_shared(name: str, tiny_target: Tiny, tmp_path: Path) -> None:
    draft, target = random_draft(HEADLESS[name]), tiny_target("qwen2")
    bias = with_bias(target, tmp_path / "target.gguf")
    tokens, features, logits = logits_of(draft, tmp_path / "target.gguf", tmp_path)
    expected = expected_of(draft, target, tokens, features)
    assert error(logits, expected + bias) < TOLERANCE < error(logits, expected)


@pytest.mark.parametrize("name", HEADLESS)
@pytest.mark.parametrize("arch", ["qwen2", "gemma3"])
def test_without_a_bias_it_is_the_matrix_alone(name: str, arch: str, tiny_target: Tiny, tmp_path: Path) -> None:
    """gemma3 has its embeddings for a head, and scales what it looks up in them: the draft does not."""
    draft, target = random_draft(HEADLESS[name]), tiny_target(arch)
    tokens, features, logits = logits_of(draft, target.path, tmp_path)
    assert error(logits, expected_of(draft, target, tokens, features)) < TOLERANCE
