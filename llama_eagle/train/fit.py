"""The stage `fit`: batches in, a better head out, saved now and then so that a killed run loses minutes.

Knows what a step is and when which is due; the network, the loss and the optimizers are their modules' business.
"""

import math
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from ..errors import TrainingError
from .batch import TrainBatch
from .example import Example
from .group import Group
from .head import Head, matrices, others
from .loss import DECAY, soft_cross_entropy
from .optimizers import AdamW, Muon
from .recipe import Recipe, order, rate, steps
from .unroll import unroll

CLIP = 1.0
Get = Callable[[int], Example]


@dataclass
class Place:
    """Where in the training it is: steps taken, texts and rows seen, seconds spent."""

    step: int = 0
    texts: int = 0
    rows: int = 0
    seconds: float = 0.0


@dataclass
class Report:
    """One step: its loss a row, mean over the unroll, how long the unroll was, and rows a second."""

    place: Place
    loss: float
    unroll: int
    rate: float


@dataclass
class Fit:
    """A head in training. counts: rows of each text; get: the example of one. numbers: as TrainBatch takes them."""

    head: Head
    recipe: Recipe
    group: Group
    numbers: Tensor
    counts: Sequence[int]
    get: Get
    place: Place = field(default_factory=Place)

    def __post_init__(self) -> None:
        self.muon = Muon(matrices(self.head), self.group, self.recipe.muon)
        self.adam = AdamW(others(self.head), self.recipe.adam)
        self._autocast = fastest(self.group.device)

    @property
    def fraction(self) -> float:
        """How much of the training is done, the same in all processes."""
        return self.group.agree(self.recipe.fraction(self.place.texts, len(self.counts), self.place.seconds))

    def tensors(self) -> dict[str, Tensor]:
        """All that a resumed run needs besides the place, by name."""
        weights = {f"head.{name}": weight for name, weight in self.head.state_dict().items()}
        state = {f"state.{name}": value for part in (self.muon, self.adam) for name, value in part.state.items()}
        return {**weights, **state}

    def step(self, fraction: float) -> Report:
        """One step of all processes together. Raises TrainingError where the loss is no number; nothing moves then."""
        began = time.monotonic()
        texts = self._next()
        torch.manual_seed(self.recipe.seed + self.place.step)  # a resumed run draws what one without a break draws
        rows = sum(self.counts[text] for text in texts)
        unrolled = steps(fraction, self.recipe.first, self.recipe.unroll)
        loss = self._gradients(texts, unrolled)
        if not math.isfinite(loss):
            raise TrainingError(
                f"the loss is {loss} in step {self.place.step + 1}: the last saved state is unharmed, go on with "
                f"--resume and lower rates (--muon {self.recipe.muon / 4:g} --adam {self.recipe.adam / 4:g})"
            )
        nn.utils.clip_grad_norm_(self.head.parameters(), CLIP)
        for optimizer in (self.muon, self.adam):
            optimizer.step(rate(fraction), self.place.step + 1)
        took = time.monotonic() - began
        place = self.place
        self.place = Place(place.step + 1, place.texts + len(texts), place.rows + rows, place.seconds + took)
        return Report(self.place, loss, unrolled, rows / took)

    def _next(self) -> list[int]:
        """The texts of the next step: so many that they have the recipe's rows, or all that the epoch has left."""
        epoch, first = divmod(self.place.texts, len(self.counts))
        chosen: list[int] = []
        rows = 0
        for text in order(len(self.counts), self.recipe.seed, epoch)[first:].tolist():
            if rows >= self.recipe.batch:
                break
            chosen.append(text)
            rows += self.counts[text]
        return chosen

    def _gradients(self, texts: list[int], unrolled: int) -> float:
        """Sets the gradients of the weighted mean over all processes' rows and steps; returns it.

        Every second text is unrolled. The others are read once: the first token of a draft decides most, and further
        steps cost as much as further texts.
        """
        self.head.zero_grad(set_to_none=False)
        weights = [DECAY**step for step in range(unrolled)]
        parts = ((texts[::2], unrolled), (texts[1::2], 1))
        weight = sum(self.counts[text] * sum(weights[:depth]) for part, depth in parts for text in part)
        total = torch.zeros((), device=self.group.device)
        for part, depth in parts:
            if mine := self.group.share(part):
                losses = self._losses(TrainBatch([self.get(text) for text in mine], self.numbers), depth)
                loss = sum((w * loss for w, loss in zip(weights, losses, strict=False)), total.new_zeros(())) / weight
                loss.backward()
                total += loss.detach()
        gradients = [p.grad for p in self.head.parameters() if p.grad is not None]
        self.group.sum([*gradients, loss := total.view(1)])
        return float(loss)

    def _losses(self, batch: TrainBatch, depth: int) -> list[Tensor]:
        """Of each step, summed over rows."""
        with self._autocast():
            return [
                soft_cross_entropy(states, self.head.lm_head.weight, *batch.targets(step), self.recipe.negatives)
                for step, states in enumerate(unroll(self.head, batch, depth))
            ]


def fastest(device: torch.device) -> Callable[[], AbstractContextManager[object]]:
    """Automatic bfloat16 where a product takes less time with it, else nothing."""
    x = torch.randn(512, 1024, device=device)
    seconds = []
    for dtype in (torch.float32, torch.bfloat16):
        y = x.to(dtype)
        seconds.append(min(_time(y) for _ in range(4)))
    faster = seconds[1] < 0.8 * seconds[0]
    return lambda: torch.autocast(device.type, torch.bfloat16, enabled=faster)


def _time(x: Tensor) -> float:
    began = time.monotonic()
    float((x @ x.T).sum())
    return time.monotonic() - began
