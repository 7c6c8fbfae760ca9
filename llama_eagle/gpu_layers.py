"""How many layers of a target and its draft head the GPUs' free memory holds. Pure arithmetic on bytes.

What models take is asked of a function; offload.py knows how that is found. One rule needs a reason: a head that fits
beside any part of the target goes to the GPU before the target's layers, since a step reads it once for each level of
the tree and each layer of the target once.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

ALL = -1
RESERVE = 1 << 30  # bytes that stay free on each device, for work areas, graphs and others: llama.cpp's --fit-target

Bytes = Sequence[int]  # by device


@dataclass(frozen=True)
class Layers:
    """Layers on the GPUs. target: beside its head; head: all or none; plain: of the target without any head."""

    target: int = ALL
    head: int = ALL
    plain: int = ALL

    @property
    def lost(self) -> bool:
        """Whether the head costs layers of the target."""
        return self.target != self.plain


def choose_layers(use: Callable[[int, "int | None"], Bytes], free: Bytes, n_layer: int) -> Layers:
    """The layout that fits. n_layer: of the target.

    use: bytes on each device with so many layers of the target and, unless None, of the head.
    """
    beside = most_layers(lambda n: use(n, ALL), free, n_layer)
    if beside == ALL:
        return Layers()
    plain = most_layers(lambda n: use(n, None), free, n_layer)
    if beside is not None:
        return Layers(beside, ALL, plain or 0)
    return Layers(most_layers(lambda n: use(n, 0), free, n_layer) or 0, 0, plain or 0)


def choose_plain(use: Callable[[int], Bytes], free: Bytes, n_layer: int) -> Layers:
    """The same for a target without a head."""
    most = most_layers(use, free, n_layer) or 0
    return Layers(most, ALL, most)


def explain(layers: Layers, n_layer: int) -> str:
    """One line about a layout that chosen layers make worse than a whole pair on the GPUs, else an empty text."""
    if layers == Layers():
        return ""
    own, plain = (n_layer + 1 if n == ALL else n for n in (layers.target, layers.plain))
    where = f"{own} of {n_layer + 1} layers fit into the free GPU memory"
    if layers.head == 0:
        return f"the draft head finds no GPU memory and computes on the CPU; of the target {where}"
    if layers.lost:
        return f"the draft head takes GPU memory from the target: {where}, without it {plain} (--spec off)"
    return where


def most_layers(use: Callable[[int], Bytes], free: Bytes, n_layer: int) -> "int | None":
    """The most layers that fit, ALL for all of them and the output; None: not even none.

    A false position search: layers are almost alike, the output is not, so few layouts are looked at.
    """
    if fits(use(ALL), free):
        return ALL
    fit, bytes_fit = 0, use(0)
    if not fits(bytes_fit, free):
        return None
    over, bytes_over = n_layer, use(n_layer)
    if fits(bytes_over, free):
        return n_layer
    while over - fit > 1:
        room = _room(bytes_fit, bytes_over, free)
        middle = fit + min(max(int(room * (over - fit)), 1), over - fit - 1)
        bytes_middle = use(middle)
        if fits(bytes_middle, free):
            fit, bytes_fit = middle, bytes_middle
        else:
            over, bytes_over = middle, bytes_middle
    return fit


def fits(use: Bytes, free: Bytes) -> bool:
    """Whether the reserve stays free on every device that is used at all."""
    return all(used == 0 or used + RESERVE <= there for used, there in zip(use, free, strict=True))


def _room(fit: Bytes, over: Bytes, free: Bytes) -> float:
    """Which part of the way from what fits to what does not the scarcest device goes."""
    return min(
        (there - RESERVE - low) / (high - low)
        for low, high, there in zip(fit, over, free, strict=True)
        if high > low and high + RESERVE > there
    )
