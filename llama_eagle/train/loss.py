"""Soft cross-entropy over the draft vocabulary, the largest part of a head's arithmetic.

The targets are sparse, and neither logits nor their gradients are kept: both passes happen at once, a piece of rows at
a time, so that a large vocabulary takes no more memory than a small one.
"""

from typing import Any

import torch
from torch import Tensor

DECAY = 0.8  # weight of each step of an unroll, to the power of its number (SafeAILab's EAGLE-3 training)
_PIECE = 1 << 22  # logits at a time: products need hundreds of rows, what follows them a cache


def soft_cross_entropy(states: Tensor, head: Tensor, numbers: Tensor, probabilities: Tensor) -> Tensor:
    """The sum over rows of -sum(p log softmax(states @ head.T)), a scalar.

    states [n, n_embd], head [draft vocabulary, n_embd], numbers and probabilities [n, k]: the targets. Rows without
    probability count nothing.
    """
    loss: Tensor = _SoftCrossEntropy.apply(states, head, numbers, probabilities)
    return loss


class _SoftCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, states: Tensor, head: Tensor, numbers: Tensor, probabilities: Tensor) -> Tensor:
        loss = torch.zeros((), device=states.device)
        kind = (
            torch.get_autocast_dtype(states.device.type)
            if torch.is_autocast_enabled(states.device.type)
            else head.dtype
        )
        states, head = states.to(kind), head.to(kind)
        d_states, d_head = torch.empty_like(states), torch.zeros_like(head)
        piece = max(_PIECE // len(head), 1)
        space = torch.empty(min(piece, len(states)), len(head), dtype=kind, device=states.device)
        for x, index, p, out in zip(
            *(part.split(piece) for part in (states, numbers, probabilities, d_states)), strict=True
        ):
            logits = torch.mm(x, head.T, out=space[: len(x)])
            chosen = logits.gather(1, index).float()
            most = logits.amax(-1, keepdim=True)
            gradient = logits.sub_(most).exp_()
            total = gradient.sum(-1, keepdim=True, dtype=torch.float32)
            loss += (p * (total.log() + most - chosen)).sum()
            gradient.mul_((p.sum(-1, keepdim=True) / total).to(kind))
            gradient.scatter_add_(1, index, -p.to(kind))
            torch.mm(gradient, head, out=out)
            d_head.addmm_(gradient.T, x)
        ctx.save_for_backward(d_states, d_head)
        return loss

    @staticmethod
    def backward(ctx: Any, *grad: Tensor) -> tuple[Tensor, Tensor, None, None]:
        d_states, d_head = ctx.saved_tensors
        return d_states * grad[0], d_head * grad[0], None, None
