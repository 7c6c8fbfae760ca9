"""What a tiny target gives, checked against numpy: features of its layers, last output, post-norm state, trees.

Knows nothing of drafts: those are in target_rounds.py. Every check writes its cell of a row.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFReader, dequantize

from llama_eagle import POST_NORM, Batch, Context, DraftTree, EagleError, Model

TOKENS = [int(t) for t in np.random.default_rng(0).integers(3, 100, 24)]
EXACT: dict[str, Any] = {"n_ctx": 256, "n_threads": 1, "flash_attn": "off", "type_k": "f32", "type_v": "f32"}
Tensors = dict[str, Any]  # of a GGUFReader, by name
Head = Callable[[np.ndarray], np.ndarray]


def ranks(x: np.ndarray) -> np.ndarray:
    """Ranks of the last axis: heads may scale or cap logits, their order stays."""
    return np.argsort(np.argsort(x, axis=-1), axis=-1).astype(np.float64)


def agreement(a: np.ndarray, b: np.ndarray) -> float:
    """Mean rank correlation of the rows."""
    ra, rb = ranks(a), ranks(b)
    ra -= ra.mean(axis=-1, keepdims=True)
    rb -= rb.mean(axis=-1, keepdims=True)
    return float(((ra * rb).sum(-1) / np.sqrt((ra**2).sum(-1) * (rb**2).sum(-1))).mean())


def tensor(tensors: Tensors, name: str) -> np.ndarray | None:
    """A tensor of a file as float32, or None."""
    return dequantize(tensors[name].data, tensors[name].tensor_type) if name in tensors else None


def projections(tensors: Tensors) -> list[Head]:
    """Candidates for the head alone: functions float32[n, n_embd] -> float32[n, n_vocab]."""
    head = tensor(tensors, "output.weight" if "output.weight" in tensors else "token_embd.weight")
    biases = (0.0, tensor(tensors, "output.bias"))  # some graphs ignore the one in the file
    return [lambda x, bias=bias: x @ head.T + bias for bias in biases if bias is not None]


def heads(tensors: Tensors) -> list[Head]:
    """Candidates for final norm and head: functions float32[n, n_embd] -> float32[n, n_vocab]."""
    norm = (
        "token_embd_norm"
        if "output_norm.weight" not in tensors and "token_embd_norm.weight" in tensors
        else "output_norm"
    )
    weight, bias = tensor(tensors, f"{norm}.weight"), tensor(tensors, f"{norm}.bias")

    def finish(x: np.ndarray) -> np.ndarray:
        x = x if weight is None else x * weight
        return x if bias is None else x + bias

    def rms(x: np.ndarray) -> np.ndarray:
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5)

    def layer(x: np.ndarray) -> np.ndarray:
        return rms(x - x.mean(-1, keepdims=True))

    return [
        lambda x, norm=norm, head=head: head(finish(norm(x))) for norm in (rms, layer) for head in projections(tensors)
    ]


def decode(model: Model, features: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray | None]:
    """Logits of all rows and the features, from a context of its own."""
    with Context(model, features, **EXACT) as context:
        context.decode(Batch(TOKENS, outputs=[1] * len(TOKENS)))
        logits = context.logits()
        rows = context.features().reshape(len(TOKENS), len(features), -1) if features else None
    return logits, rows


def check_layers(model: Model, row: dict[str, str]) -> None:
    """Features of layers 0..n-1: given, alive and without effect on the logits."""
    plain, _ = decode(model, ())
    try:
        logits, rows = decode(model, tuple(range(model.info.n_layer)))
    except EagleError:
        first = next((i for i in range(1, model.info.n_layer) if not given(model, i)), None)
        row["features"] = "no" if first is not None else "from layer 1"
        return
    alive = bool(np.isfinite(rows).all()) and bool((np.abs(rows).max(-1) > 0).all())
    row["features"] = "yes" if alive and np.allclose(logits, plain, rtol=1e-4, atol=1e-4) else "WRONG"


def given(model: Model, layer: int) -> bool:
    """Whether one layer's input can be had."""
    try:
        decode(model, (layer,))
    except EagleError:
        return False
    return True


def check_last(model: Model, path: Path, row: dict[str, str]) -> None:
    """Feature n: through final norm and head it must order the vocabulary as the logits do, its neighbours must not."""
    n = model.info.n_layer
    plain, _ = decode(model, ())
    try:
        logits, rows = decode(model, (n - 1, n) if given(model, n - 1) else (n,))
    except EagleError as error:
        row["last"], row["remark"] = "no", str(error).split(": ")[-1]
        return
    if not np.allclose(logits, plain, rtol=1e-4, atol=1e-4):
        row["last"], row["remark"] = "WRONG", "logits change"
        return
    tensors = {t.name: t for t in GGUFReader(path).tensors}
    scores = [(agreement(head(rows[:, -1]), logits), head) for head in heads(tensors)]
    best, head = max(scores, key=lambda score: score[0])
    beside = agreement(np.roll(head(rows[:, -1]), 1, axis=0), logits)
    layer = agreement(head(rows[:, 0]), logits) if rows.shape[1] == 2 else 0.0
    row["last"] = "yes" if best > 0.999 and best - max(beside, layer) > 1e-4 else "unproven"
    if row["last"] == "unproven":
        row["remark"] = f"rank correlation {best:.3f}, neighbours {beside:.3f} and {layer:.3f}"


def check_post_norm(model: Model, path: Path, row: dict[str, str]) -> None:
    """The hidden state after the final norm: through the head alone it must order the vocabulary as the logits do."""
    plain, _ = decode(model, ())
    try:
        logits, rows = decode(model, (POST_NORM,))
    except EagleError:
        return
    tensors = {t.name: t for t in GGUFReader(path).tensors}
    scores = [head(rows[:, 0]) for head in projections(tensors)]
    best = max(agreement(score, logits) for score in scores)
    beside = max(agreement(np.roll(score, 1, axis=0), logits) for score in scores)
    if not np.allclose(logits, plain, rtol=1e-4, atol=1e-4):
        row["post"] = "WRONG"
    else:
        row["post"] = "yes" if best > 0.999 and best - beside > 1e-4 else f"unproven ({best:.3f}, {beside:.3f})"


def check_tree(model: Model, row: dict[str, str]) -> None:
    """A tree of seven nodes against its paths."""
    parents = [-1, -1, 0, 0, 1, 3, 4]
    tree = DraftTree.from_lists(5, [10, 20, 30, 40, 50, 60, 70], parents)
    with Context(model, **EXACT) as context:
        if not context.has_tree:
            row["trees"] = "no"
            return
        context.decode(Batch(TOKENS))
        context.decode(Batch(tree))
        rows = context.logits()
        context.clear()
        worst = 0.0
        for node in range(len(tree)):
            path, i = [], node
            while i >= 0:
                path.insert(0, int(tree.tokens[i]))
                i = parents[i]
            context.decode(Batch(TOKENS))
            context.decode(Batch([tree.root, *path]))
            worst = max(worst, float(np.abs(context.logits()[-1] - rows[node + 1]).max()))
            context.clear()
    row["trees"] = "yes" if worst <= 2e-3 * float(np.abs(rows).max()) else f"WRONG ({worst:.1e})"
