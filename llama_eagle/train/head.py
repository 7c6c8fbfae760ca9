"""The EAGLE-3 network (arXiv 2503.01840) in torch, under the names of SpecForge's checkpoints.

One layer over (embedding of a token, hidden state), its output fed back. Knows one row at a time: what rows see of each
other is unroll.py's. Rotary halves, as in Hugging Face's checkpoints. The embeddings are the target's and not trained.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from .shape import HeadShape

LAYER = "midlayer."


class Head(nn.Module):
    """A head of a shape.

    ids: int64 [draft vocabulary], the target's id of each token that it drafts. embeddings [n_vocab, n_embd].
    """

    ids: Tensor
    embeddings: Tensor
    frequencies: Tensor

    def __init__(self, shape: HeadShape, ids: Tensor, embeddings: Tensor) -> None:
        super().__init__()
        n_embd = shape.n_embd
        self.shape = shape
        self.fc = nn.Linear(len(shape.layers) * n_embd, n_embd, bias=False)
        self.midlayer = _Layer(shape)
        self.norm = nn.RMSNorm(n_embd, shape.eps)
        self.lm_head = nn.Linear(n_embd, len(ids), bias=False)
        self.register_buffer("ids", ids, persistent=False)
        self.register_buffer("embeddings", embeddings, persistent=False)
        half = torch.arange(0, shape.head_dim, 2, dtype=torch.float64) / shape.head_dim
        self.register_buffer("frequencies", shape.rotary_base**-half, persistent=False)

    def inputs(self, tokens: Tensor, hidden: Tensor) -> Tensor:
        """tokens [n], hidden [n, n_embd] -> what attention reads, [n, 2 n_embd]."""
        embedded = self.embeddings[tokens].to(hidden.dtype)
        layer = self.midlayer
        return torch.cat([layer.input_layernorm(embedded), layer.hidden_norm(hidden)], dim=-1)

    def query(self, x: Tensor, positions: Tensor) -> Tensor:
        """[n, 2 n_embd] -> [n, n_head, head_dim]."""
        return self._rotate(self._heads(self.midlayer.self_attn.q_proj(x)), positions)

    def key_value(self, x: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """[n, 2 n_embd] -> keys and values, [n, n_head_kv, head_dim]."""
        attention = self.midlayer.self_attn
        return self._rotate(self._heads(attention.k_proj(x)), positions), self._heads(attention.v_proj(x))

    def output(self, hidden: Tensor, mixed: Tensor) -> Tensor:
        """hidden [n, n_embd] and what attention mixed [n, n_head * head_dim] -> the next hidden state."""
        layer = self.midlayer
        x = hidden + layer.self_attn.o_proj(mixed)
        out: Tensor = x + layer.mlp(layer.post_attention_layernorm(x))
        return out

    def _heads(self, x: Tensor) -> Tensor:
        return x.view(len(x), -1, self.shape.head_dim)

    def _rotate(self, x: Tensor, positions: Tensor) -> Tensor:
        angles = positions[:, None, None].double() * self.frequencies
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        first, second = x.chunk(2, dim=-1)
        return torch.cat([first * cos - second * sin, first * sin + second * cos], dim=-1)


class _Attention(nn.Module):
    def __init__(self, shape: HeadShape) -> None:
        super().__init__()
        n_q, n_kv = shape.n_head * shape.head_dim, shape.n_head_kv * shape.head_dim
        self.q_proj = nn.Linear(2 * shape.n_embd, n_q, bias=False)
        self.k_proj = nn.Linear(2 * shape.n_embd, n_kv, bias=False)
        self.v_proj = nn.Linear(2 * shape.n_embd, n_kv, bias=False)
        self.o_proj = nn.Linear(n_q, shape.n_embd, bias=False)


class _Mlp(nn.Module):
    def __init__(self, shape: HeadShape) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(shape.n_embd, shape.n_ff, bias=False)
        self.up_proj = nn.Linear(shape.n_embd, shape.n_ff, bias=False)
        self.down_proj = nn.Linear(shape.n_ff, shape.n_embd, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        mixed: Tensor = self.down_proj(nn.functional.silu(self.gate_proj(x)) * self.up_proj(x))
        return mixed


class _Layer(nn.Module):
    def __init__(self, shape: HeadShape) -> None:
        super().__init__()
        self.self_attn = _Attention(shape)
        self.mlp = _Mlp(shape)
        self.hidden_norm = nn.RMSNorm(shape.n_embd, shape.eps)
        self.input_layernorm = nn.RMSNorm(shape.n_embd, shape.eps)
        self.post_attention_layernorm = nn.RMSNorm(shape.n_embd, shape.eps)


def matrices(head: Head) -> dict[str, nn.Parameter]:
    """Weights that Muon trains: the matrices but for the last one, whose rows are tokens."""
    return {name: p for name, p in head.named_parameters() if p.ndim == 2 and not name.startswith("lm_head")}


def others(head: Head) -> dict[str, nn.Parameter]:
    """All other weights: norms and the last matrix."""
    own: Mapping[str, nn.Parameter] = matrices(head)
    return {name: p for name, p in head.named_parameters() if name not in own}
