"""State dicts of tiny EAGLE-3 heads in SpecForge's naming and layout (Hugging Face rope halves, d2t as offsets).

`random_head` makes a head that guesses nothing, `good_head` one that often guesses a bigram target.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from .shapes import HeadShape
from .target import TinyTarget
from .weights import LOGITS, SHARPNESS, normal

State = dict[str, npt.NDArray[Any]]
LAYER = "midlayer."


def random_head(shape: HeadShape) -> State:
    """All tensors of a head, float32 (d2t int64 offsets, t2d bool)."""
    n_embd, wide = shape.n_embd, 2 * shape.n_embd
    n_q, n_kv = shape.n_head * shape.head_dim, shape.n_head_kv * shape.head_dim
    matrices = {
        "fc.weight": (n_embd, 3 * shape.n_embd_target, 1.0),
        LAYER + "self_attn.q_proj.weight": (n_q, wide, SHARPNESS),
        LAYER + "self_attn.k_proj.weight": (n_kv, wide, SHARPNESS),
        LAYER + "self_attn.v_proj.weight": (n_kv, wide, 1.0),
        LAYER + "self_attn.o_proj.weight": (n_embd, n_q, 1.0),
        LAYER + "mlp.gate_proj.weight": (shape.n_ff, n_embd, 1.0),
        LAYER + "mlp.up_proj.weight": (shape.n_ff, n_embd, 1.0),
        LAYER + "mlp.down_proj.weight": (n_embd, shape.n_ff, 1.0),
        "lm_head.weight": (shape.n_draft_vocab, n_embd, LOGITS),
    }
    norms = {LAYER + n + ".weight": n_embd for n in ("hidden_norm", "input_layernorm", "post_attention_layernorm")}
    norms["norm.weight"] = n_embd
    if shape.norm_before_fc:
        norms["input_norm.weight"] = 3 * shape.n_embd_target
    state: State = {}
    for name, (n_out, n_in, gain) in matrices.items():
        state[name] = normal(shape.seed, name, (n_out, n_in), gain / np.sqrt(n_in))
    for name, size in norms.items():
        state[name] = normal(shape.seed, name, (size,), 0.1, 1.0)
    if shape.own_embeddings:
        state["embed_tokens.weight"] = normal(shape.seed, "embed", (shape.n_vocab, n_embd), 1.0)
    return {**state, **_vocabulary(shape)}


def good_head(shape: HeadShape, target: TinyTarget) -> State:
    """A head for a target made with `bigram` > 0: it attends to its own position and copies that token's embedding.

    The copied embedding is what the target's output matrix correlates with, so greedy drafts are accepted now and then.
    Wants n_head == n_head_kv and n_head * head_dim == n_embd == the target's width; raises ValueError otherwise.
    """
    width = target.shape.n_embd
    if not (shape.n_embd == width == shape.n_head * shape.head_dim and shape.n_head == shape.n_head_kv):
        raise ValueError(f"a good head needs n_head_kv == n_head and n_head * head_dim == {width}: {shape}")
    if not target.shape.bigram:
        raise ValueError("a good head needs a target with bigram > 0; nothing predicts a random one")
    state = random_head(shape)
    eye, zero = np.eye(width, dtype=np.float32), np.zeros((width, width), np.float32)
    state["fc.weight"] = state["fc.weight"] * np.float32(0.3)
    focus, small = np.float32(1.6), np.float32(0.3)
    for part in ("q", "k"):  # equal maps give the largest score to the token itself
        state[f"{LAYER}self_attn.{part}_proj.weight"] = np.concatenate([focus * eye, zero], axis=1)
    state[LAYER + "self_attn.v_proj.weight"] = np.concatenate([eye, zero], axis=1)
    state[LAYER + "self_attn.o_proj.weight"] = 1.5 * eye
    state[LAYER + "mlp.down_proj.weight"] *= small
    for name in ("input_layernorm", "hidden_norm", "post_attention_layernorm"):
        state[f"{LAYER}{name}.weight"] = np.ones(width, np.float32)
    state["norm.weight"] = target.tensors["output_norm.weight"].copy()
    if shape.own_embeddings:
        state["embed_tokens.weight"] = target.tensors["token_embd.weight"].copy()
    state["lm_head.weight"] = target.tensors["output.weight"][target_ids(shape)]
    return state


def target_ids(shape: HeadShape) -> npt.NDArray[np.int64]:
    """Ascending target ids of the draft vocabulary, int64[n_draft_vocab]: a random subset, so that offsets differ."""
    kept = np.random.default_rng([shape.seed, 2]).permutation(shape.n_vocab)[: shape.n_draft_vocab]
    return np.sort(kept).astype(np.int64)


def _vocabulary(shape: HeadShape) -> State:
    if shape.n_draft_vocab == shape.n_vocab:
        return {}
    ids = target_ids(shape)
    t2d = np.zeros(shape.n_vocab, dtype=np.bool_)
    t2d[ids] = True
    return {"d2t": ids - np.arange(len(ids)), "t2d": t2d}
