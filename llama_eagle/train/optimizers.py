"""Muon for matrices and AdamW for the rest. Their state is named tensors, so that it is saved like weights.

Gradients are those of all processes together, so that each process moves its weights alike; what Muon makes orthogonal,
a quarter of a step's arithmetic on one processor, they share.
"""

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import Parameter

from .group import Group

_STEPS = 5
_A, _B, _C = 3.4445, -4.7750, 2.0315  # a polynomial that takes singular values to about 1 (Jordan et al. 2024)


class Muon:
    """Momentum made orthogonal (Jordan et al. 2024, kellerjordan.github.io/posts/muon), for matrices."""

    def __init__(
        self, weights: Mapping[str, Parameter], group: Group, rate: float = 0.02, momentum: float = 0.95
    ) -> None:
        self.weights, self.group, self.rate, self.momentum = weights, group, rate, momentum
        self.state = {f"{name}.momentum": torch.zeros_like(weight) for name, weight in weights.items()}

    @torch.no_grad()
    def step(self, scale: float, number: int) -> None:
        """Moves the weights; `scale` of the rate. number: of the step, unused."""
        updates = {}
        for name, weight in self.weights.items():
            gradient = _gradient(weight)
            momentum = self.state[f"{name}.momentum"].lerp_(gradient, 1 - self.momentum)
            updates[name] = gradient.lerp(momentum, self.momentum)
        mine = set(self.group.share(list(updates)))
        for name, update in updates.items():
            update.copy_(orthogonal(update) if name in mine else torch.zeros_like(update))
        self.group.sum(updates.values())
        for name, weight in self.weights.items():
            size = max(1.0, weight.shape[0] / weight.shape[1]) ** 0.5
            weight.sub_(updates[name], alpha=self.rate * scale * size)


class AdamW:
    """Adam without weight decay (Kingma and Ba 2015)."""

    def __init__(self, weights: Mapping[str, Parameter], rate: float = 1e-3) -> None:
        self.weights, self.rate, self.betas = weights, rate, (0.9, 0.95)
        self.state = {
            f"{name}.{part}": torch.zeros_like(weight)
            for name, weight in weights.items()
            for part in ("mean", "square")
        }

    @torch.no_grad()
    def step(self, scale: float, number: int) -> None:
        """Moves the weights; `scale` of the rate. number: of the step, from 1."""
        first, second = self.betas
        for name, weight in self.weights.items():
            gradient = _gradient(weight)
            mean = self.state[f"{name}.mean"].lerp_(gradient, 1 - first)
            square = self.state[f"{name}.square"].lerp_(gradient.square(), 1 - second)
            spread = (square / (1 - second**number)).sqrt_().add_(1e-10)
            weight.addcdiv_(mean / (1 - first**number), spread, value=-self.rate * scale)


def orthogonal(matrix: Tensor) -> Tensor:
    """A matrix of the same singular vectors whose singular values are near 1: five Newton-Schulz steps."""
    tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.T if tall else matrix
    x = x.bfloat16() if x.is_cuda else x
    x = x / (x.norm() + 1e-7)
    for _ in range(_STEPS):
        gram = x @ x.T
        x = _A * x + (_B * gram + _C * gram @ gram) @ x
    return (x.T if tall else x).to(matrix.dtype)


def _gradient(weight: Parameter) -> Tensor:
    return torch.zeros_like(weight) if weight.grad is None else weight.grad
