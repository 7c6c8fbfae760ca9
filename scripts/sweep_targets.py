"""Tries every architecture that llama.cpp's test-llama-archs can build as a target, and writes docs/targets.md.

    test-llama-archs -o MODELS          # from `llama_cpp_tests.py`: one tiny random model an architecture
    python scripts/sweep_targets.py MODELS docs/targets.md

Each model runs in a process of its own, so that an abort of llama.cpp is a row of the table, not the end.
What is checked: features come for every layer and row and leave the logits alone; the output of the last layer, through
the final norm and the head as numpy computes them, orders the vocabulary as the logits do, and its neighbours (another
row, another layer) do not; likewise the hidden state after the final norm, through the head; a random tree's logits
equal those of its paths.
"""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
from gguf import GGUFReader, dequantize

from llama_eagle import POST_NORM, Batch, Context, DraftTree, EagleError, Model

TOKENS = [int(t) for t in np.random.default_rng(0).integers(3, 100, 24)]
COLUMNS = ("features", "last", "post", "trees", "remark")
HEADER = """# Which architectures can be a target

Made by `scripts/sweep_targets.py` with the tiny random models of llama.cpp's own architecture test; one row a model.
`features`: the inputs of layers 0..n-1 are given for every token. `last output`: so is the output of the last layer
(feature id n), checked through final norm and head. `post norm`: so is the hidden state after the final norm (feature
id -1), checked through the head. `trees`: draft trees are verified by tree attention.
A `no` is refused by name when the context is made, never at the first decode.

| model | features | last output | post norm | trees | remark |
|---|---|---|---|---|---|
"""


def ranks(x: np.ndarray) -> np.ndarray:
    """Ranks of the last axis: heads may scale or cap logits, their order stays."""
    return np.argsort(np.argsort(x, axis=-1), axis=-1).astype(np.float64)


def agreement(a: np.ndarray, b: np.ndarray) -> float:
    """Mean rank correlation of the rows."""
    ra, rb = ranks(a), ranks(b)
    ra -= ra.mean(axis=-1, keepdims=True)
    rb -= rb.mean(axis=-1, keepdims=True)
    return float(((ra * rb).sum(-1) / np.sqrt((ra**2).sum(-1) * (rb**2).sum(-1))).mean())


def tensor(tensors: dict, name: str) -> "np.ndarray | None":
    """A tensor of a file as float32, or None."""
    return dequantize(tensors[name].data, tensors[name].tensor_type) if name in tensors else None


def projections(tensors: dict) -> list:
    """Candidates for the head alone: functions float32[n, n_embd] -> float32[n, n_vocab]."""
    head = tensor(tensors, "output.weight" if "output.weight" in tensors else "token_embd.weight")
    biases = (0.0, tensor(tensors, "output.bias"))  # some graphs ignore the one in the file
    return [lambda x, bias=bias: x @ head.T + bias for bias in biases if bias is not None]


def heads(tensors: dict) -> list:
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


def decode(model, features: tuple[int, ...]):
    """Logits of all rows and the features, from a context of its own."""
    with Context(model, features, n_ctx=256, n_threads=1, flash_attn="off", type_k="f32", type_v="f32") as context:
        context.decode(Batch(TOKENS, outputs=[1] * len(TOKENS)))
        logits = context.logits()
        rows = context.features().reshape(len(TOKENS), len(features), -1) if features else None
    return logits, rows


def check_layers(model, row: dict) -> None:
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


def given(model, layer: int) -> bool:
    """Whether one layer's input can be had."""
    try:
        decode(model, (layer,))
    except EagleError:
        return False
    return True


def check_last(model, path: Path, row: dict) -> None:
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


def check_post_norm(model, path: Path, row: dict) -> None:
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


def check_tree(model, row: dict) -> None:
    """A tree of seven nodes against its paths."""
    parents = [-1, -1, 0, 0, 1, 3, 4]
    tree = DraftTree.from_lists(5, [10, 20, 30, 40, 50, 60, 70], parents)
    with Context(model, n_ctx=256, n_threads=1, flash_attn="off", type_k="f32", type_v="f32") as context:
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


def examine(path: Path) -> dict:
    """All checks of one model, in this process."""
    row = {"features": "no", "last": "no", "post": "no", "trees": "no", "remark": ""}
    try:
        model = Model(path)
        check_layers(model, row)
        check_last(model, path, row)
        check_post_norm(model, path, row)
        check_tree(model, row)
    except EagleError as error:
        row["remark"] = str(error).split(": ")[-1]
    return row


def examine_apart(path: Path) -> dict:
    """The same in a process of its own."""
    done = subprocess.run([sys.executable, __file__, "--one", str(path)], capture_output=True, text=True, check=False)
    if done.returncode:
        return {
            "features": "WRONG",
            "last": "WRONG",
            "post": "WRONG",
            "trees": "WRONG",
            "remark": f"process ended with {done.returncode}",
        }
    return dict(json.loads(done.stdout.splitlines()[-1]))


def main() -> int:
    if sys.argv[1] == "--one":
        print(json.dumps(examine(Path(sys.argv[2]))))
        return 0
    models, out = Path(sys.argv[1]), Path(sys.argv[2])
    lines, wrong = [], 0
    for path in sorted(models.glob("*.gguf")):
        row = examine_apart(path)
        wrong += any(str(value).startswith("WRONG") for value in row.values())
        lines.append(
            f"| {path.stem} | {row['features']} | {row['last']} | {row['post']} | {row['trees']} | {row['remark']} |"
        )
        print(lines[-1], flush=True)
    out.write_text(HEADER + "\n".join(lines) + "\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
