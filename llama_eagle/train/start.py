"""A head's first weights: the target's own last layer and output rows, or a checkpoint's.

A tensor that the target has not in the head's shape (experts, latent attention, another width) begins random.
"""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from ..conversion.checkpoint import Checkpoint
from ..errors import CheckpointError, ModelError
from ..target_side import read_target_side
from .head import LAYER, Head
from .shape import HeadShape
from .target_tensors import Array, read_tensors

_PAIRS = frozenset("arcee deci granite granitemoe llama llama4 mistral3 mistral4 smollm3".split())  # rotate neighbours
_OWN = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "attn_norm": "hidden_norm",
    "ffn_norm": "post_attention_layernorm",
}


def head_of_target(target: Path, shape: HeadShape, ids: npt.NDArray[np.int64], seed: int) -> Head:
    """A head that begins as the target's last layer over its last feature, with its output rows.

    Raises ModelError where the target's embeddings or head cannot be read.
    """
    side = read_target_side(target)
    head = _empty(target, shape, ids, seed)
    own = _last_layer(target, side.n_layer)
    own["lm_head.weight"] = _output_rows(target, shape)[ids]
    if side.arch in _PAIRS:
        for part in ("q", "k"):
            name = f"{LAYER}self_attn.{part}_proj.weight"
            if name in own and len(own[name]) % shape.head_dim == 0:
                own[name] = halves(own[name], shape.head_dim)
    weights = head.state_dict()
    for name, values in own.items():
        _put(weights[name], torch.tensor(values))
    weights["fc.weight"].zero_()
    weights["fc.weight"][:, -shape.n_embd :] = torch.eye(shape.n_embd)
    return head


def head_of_checkpoint(target: Path, shape: HeadShape, folder: Path, scales: Array) -> Head:
    """The head of a SpecForge-layout checkpoint. scales [layers]: what the features are divided by here.

    Raises CheckpointError where it has another shape.
    """
    source = Checkpoint(folder)
    ids = draft_ids(source, shape.n_vocab)
    head = _empty(target, shape, ids, 0)
    for name, weight in head.state_dict().items():
        if name not in source or source.shape(name) != tuple(weight.shape):
            found = list(source.shape(name)) if name in source else "missing"
            raise CheckpointError(
                f"{folder}: tensor {name} is {found}, a head for this target has {list(weight.shape)}"
            )
        weight.copy_(torch.from_numpy(source.floats(name)))
    head.state_dict()["fc.weight"].mul_(torch.from_numpy(np.repeat(scales, shape.n_embd)))
    return head


def with_vocabulary(head: Head, target: Path, ids: npt.NDArray[np.int64]) -> Head:
    """The head with another draft vocabulary: tokens that it did not draft begin with the target's output rows."""
    rows = torch.tensor(_output_rows(target, head.shape)[ids])
    own = {token: number for number, token in enumerate(head.ids.tolist())}
    kept = [number for number, token in enumerate(ids.tolist()) if token in own]
    rows[kept] = head.lm_head.weight.detach()[[own[token] for token in ids[kept].tolist()]]
    other = Head(head.shape, torch.tensor(ids), head.embeddings)
    other.load_state_dict({**head.state_dict(), "lm_head.weight": rows})
    return other


def draft_ids(source: Checkpoint, n_vocab: int) -> npt.NDArray[np.int64]:
    """The target id of each token that a checkpoint drafts."""
    if "d2t" not in source:
        return np.arange(n_vocab)
    offsets = source.integers("d2t")
    ids: npt.NDArray[np.int64] = offsets + np.arange(len(offsets))
    if not len(ids) or ids.min() < 0 or ids.max() >= n_vocab or (np.diff(ids) <= 0).any():
        raise CheckpointError(f"d2t of {source.folder} is no ascending list of tokens below {n_vocab}")
    return ids


def halves(rows: Array, head_dim: int) -> Array:
    """Rows of each head from llama.cpp's order of neighbouring pairs to Hugging Face's order of halves."""
    heads = rows.reshape(-1, head_dim // 2, 2, rows.shape[1])
    return np.ascontiguousarray(heads.swapaxes(1, 2)).reshape(rows.shape)


def _empty(target: Path, shape: HeadShape, ids: npt.NDArray[np.int64], seed: int) -> Head:
    torch.manual_seed(seed)
    return Head(shape, torch.tensor(ids), torch.tensor(_matrix(target, "token_embd.weight", shape)))


def _output_rows(target: Path, shape: HeadShape) -> Array:
    return _matrix(target, "token_embd.weight" if read_target_side(target).tied else "output.weight", shape)


def _matrix(target: Path, name: str, shape: HeadShape) -> Array:
    """float32 [n_vocab, n_embd]. Raises ModelError where the target has none of that size."""
    found = read_tensors(target, {name}).get(name)
    if found is None or found.ndim != 2 or len(found) < shape.n_vocab or found.shape[1] != shape.n_embd:
        size = "missing" if found is None else f"{list(found.shape)}"
        raise ModelError(f"{target}: tensor {name} is {size}, expected {[shape.n_vocab, shape.n_embd]}")
    return found[: shape.n_vocab]


def _put(weight: torch.Tensor, values: torch.Tensor) -> None:
    """Sets a weight, of the projections of both inputs the right half, which reads the hidden state."""
    place = weight
    if weight.ndim == 2 and values.ndim == 2 and weight.shape[1] == 2 * values.shape[1]:
        place = weight[:, values.shape[1] :]
    if place.shape == values.shape:
        place.copy_(values)


def _last_layer(target: Path, n_layer: int) -> dict[str, Array]:
    """What a target has of the tensors of a plain last layer and its final norm, by the head's names."""
    names = {f"blk.{n_layer - 1}.{own}.weight": f"{LAYER}{name}.weight" for own, name in _OWN.items()}
    names["output_norm.weight"] = "norm.weight"
    return {names[name]: values for name, values in read_tensors(target, names).items()}
