"""Group: the processes that train together, one where torchrun did not start them. Knows torch.distributed only."""

import os
from collections.abc import Iterable
from datetime import timedelta
from typing import TypeVar

import torch
from torch import Tensor
from torch import distributed as dist

T = TypeVar("T")
_PATIENCE = timedelta(days=30)  # the others wait while the first one generates


class Group:
    """This process's number and how many there are; `device` is where it computes."""

    def __init__(self) -> None:
        self.size = int(os.environ.get("WORLD_SIZE", "1"))
        self.rank = int(os.environ.get("RANK", "0")) if self.size > 1 else 0
        cuda = torch.cuda.is_available()
        self.device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if cuda else torch.device("cpu")
        if self.size > 1:
            dist.init_process_group("nccl" if cuda else "gloo", timeout=_PATIENCE)

    @property
    def first(self) -> bool:
        """Whether this process does what one alone must do."""
        return self.rank == 0

    def share(self, items: list[T]) -> list[T]:
        """This process's part of a list."""
        return items[self.rank :: self.size]

    def sum(self, tensors: Iterable[Tensor]) -> None:
        """Replaces tensors by their sums over all processes."""
        if self.size == 1:
            return
        parts = list(tensors)
        flat = torch.cat([part.flatten() for part in parts])
        dist.all_reduce(flat)
        for part, total in zip(parts, flat.split([part.numel() for part in parts]), strict=True):
            part.copy_(total.view_as(part))

    def agree(self, value: float) -> float:
        """The first process's value."""
        if self.size == 1:
            return value
        held = torch.tensor([value], dtype=torch.float64, device=self.device)
        dist.broadcast(held, 0)
        return float(held)

    def wait(self) -> None:
        """Until all are here."""
        self.agree(0.0)

    def close(self) -> None:
        """Leaves the group."""
        if self.size > 1:
            dist.destroy_process_group()
