"""Soft cross-entropy over the draft vocabulary, the largest part of a head's arithmetic.

The targets are sparse, and neither logits nor their gradients are kept: both passes happen at once, a piece of rows at
a time, so that a large vocabulary takes no more memory than a small one.
"""

from typing import Any

import torch
from torch import Tensor

DECAY = 0.8  # weight of each step of an unroll, to the power of its number (SafeAILab's EAGLE-3 training)
_PIECE = 1 << 21  # logits at a time


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
        d_states, d_head = torch.empty_like(states), torch.zeros_like(head)
        for part in torch.arange(len(states)).split(max(_PIECE // len(head), 1)):
            rows = slice(int(part[0]), int(part[-1]) + 1)
            x, index, p = states[rows], numbers[rows], probabilities[rows]
            logits = x @ head.T
            total = torch.logsumexp(logits.float(), -1, keepdim=True)
            loss += (p * (total - logits.gather(1, index))).sum()
            gradient = (logits - total).exp_().mul_(p.sum(-1, keepdim=True))
            gradient = gradient.scatter_add_(1, index, -p.to(gradient.dtype)).to(x.dtype)
            d_states[rows] = gradient @ head
            d_head += gradient.T @ x
        ctx.save_for_backward(d_states, d_head)
        return loss

    @staticmethod
    def backward(ctx: Any, *grad: Tensor) -> tuple[Tensor, Tensor, None, None]:
        d_states, d_head = ctx.saved_tensors
        return d_states * grad[0], d_head * grad[0], None, None
