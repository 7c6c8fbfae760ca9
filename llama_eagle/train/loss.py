"""Soft cross-entropy over the draft vocabulary, the largest part of a head's arithmetic.

The targets are sparse, and neither logits nor their gradients are kept: both passes happen at once, a piece of rows at
a time, so that a large vocabulary takes little memory. Of the tokens that no target of a piece names only some are
drawn, which stand for all of these: an importance-sampled softmax (Jean et al. 2015, arXiv 1412.2007).
"""

import math
from typing import Any

import torch
from torch import Tensor

DECAY = 0.8  # weight of each step of an unroll, to the power of its number (SafeAILab's EAGLE-3 training)
_PIECE = 512  # rows at a time: products need hundreds, and texts of a piece share what their targets name


def soft_cross_entropy(states: Tensor, head: Tensor, numbers: Tensor, probabilities: Tensor, drawn: int) -> Tensor:
    """The sum over rows of -sum(p log softmax(states @ head.T)), a scalar.

    states [n, n_embd], head [draft vocabulary, n_embd], numbers and probabilities [n, k]: the targets. Rows without
    probability count nothing. drawn: tokens beside those of the targets, as many as there are for the exact sum.
    """
    loss: Tensor = _SoftCrossEntropy.apply(states, head, numbers, probabilities, drawn)
    return loss


class _SoftCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, states: Tensor, head: Tensor, numbers: Tensor, probabilities: Tensor, drawn: int) -> Tensor:
        kind = _kind(head)
        states, head = states.to(kind), head.to(kind)
        d_states, d_head = torch.empty_like(states), torch.zeros_like(head)
        loss = torch.zeros((), device=states.device)
        parts = (part.split(_PIECE) for part in (states, numbers, probabilities, d_states))
        for x, index, p, out in zip(*parts, strict=True):
            tokens, named, weight = _columns(index[p > 0], len(head), drawn)
            place = torch.zeros(len(head), dtype=torch.long, device=head.device)
            place[tokens] = torch.arange(len(tokens), device=head.device)
            rows = head[tokens]
            logits = x @ rows.T
            logits[:, named:] += weight
            part, gradient = _both_passes(logits, place[index], p)
            loss += part
            torch.mm(gradient, rows, out=out)
            d_head.index_add_(0, tokens, gradient.T @ x)
        ctx.save_for_backward(d_states, d_head)
        return loss

    @staticmethod
    def backward(ctx: Any, *grad: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        d_states, d_head = ctx.saved_tensors
        return d_states * grad[0], d_head * grad[0], None, None, None


def _columns(wanted: Tensor, vocabulary: int, drawn: int) -> tuple[Tensor, int, float]:
    """The tokens that are computed, those of targets first; how many these are; what each drawn logit gains."""
    is_named = torch.zeros(vocabulary, dtype=torch.bool, device=wanted.device)
    is_named[wanted] = True
    named, rest = is_named.nonzero()[:, 0], (~is_named).nonzero()[:, 0]
    chosen = rest[torch.randperm(len(rest), device=rest.device)[:drawn]]
    weight = math.log(len(rest) / len(chosen)) if len(chosen) else 0.0
    return torch.cat([named, chosen]), len(named), weight


def _both_passes(logits: Tensor, index: Tensor, p: Tensor) -> tuple[Tensor, Tensor]:
    """The loss of some rows and its gradient for their logits, whose memory it takes."""
    chosen = logits.gather(1, index).float()
    most = logits.amax(-1, keepdim=True)
    gradient = logits.sub_(most).exp_()
    total = gradient.sum(-1, keepdim=True, dtype=torch.float32)
    loss = (p * (total.log() + most - chosen)).sum()
    gradient.mul_((p.sum(-1, keepdim=True) / total).to(logits.dtype))
    gradient.scatter_add_(1, index, -p.to(logits.dtype))
    return loss, gradient


def _kind(head: Tensor) -> torch.dtype:
    kind = head.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else head.dtype
