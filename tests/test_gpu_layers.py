"""gpu_layers.py: layouts on made-up budgets."""

import pytest

from llama_eagle.gpu_layers import ALL, RESERVE, Layers, choose_layers, choose_plain, explain, most_layers

MIB = 1 << 20
N_LAYER = 32


class Budget:
    """A target of 100 MiB a layer and 300 MiB of output, and a head of 500 MiB, each with 200 MiB of buffers.

    asked: the layouts that were looked at.
    """

    def __init__(self, *free: int, layer: int = 100, head: int = 500) -> None:
        self.free = [RESERVE + mib * MIB for mib in free]
        self.layer, self.head = layer, head
        self.asked: list[tuple[int, int | None]] = []

    def use(self, layers: int, of_head: "int | None" = None) -> list[int]:
        self.asked.append((layers, of_head))
        own = 200 + (N_LAYER * self.layer + 300 if layers == ALL else layers * self.layer)
        head = 0 if of_head is None else 200 + (self.head if of_head else 0)
        share = (own + head) * MIB // len(self.free)
        return [share] * len(self.free)

    def layers(self) -> Layers:
        return choose_layers(self.use, self.free, N_LAYER)


def test_all_of_it_fits_and_is_asked_once():
    budget = Budget(3200 + 300 + 200 + 700)
    assert budget.layers() == Layers(ALL, ALL, ALL)
    assert budget.asked == [(ALL, ALL)]
    assert explain(Layers(), N_LAYER) == ""


def test_a_head_that_costs_layers_says_so():
    layers = Budget(4399).layers()
    assert layers == Layers(32, ALL, ALL)
    assert layers.lost
    text = explain(layers, N_LAYER)
    assert "takes GPU memory" in text
    assert "32 of 33" in text
    assert "without it 33" in text


@pytest.mark.parametrize(("free", "beside", "plain"), [(900, 0, 7), (1000, 1, 8), (1999, 10, 17), (3000, 21, 28)])
def test_both_are_as_many_as_fit(free, beside, plain):
    assert Budget(free).layers() == Layers(beside, ALL, plain)


def test_a_head_that_does_not_fit_computes_on_the_cpu():
    layers = Budget(800, head=5000).layers()
    assert layers == Layers(4, 0, 6)  # its buffers are there all the same
    assert "draft head finds no GPU memory" in explain(layers, N_LAYER)
    assert "4 of 33" in explain(layers, N_LAYER)


def test_no_memory_at_all():
    assert Budget(0).layers() == Layers(0, 0, 0)
    assert Budget(-1000).layers() == Layers(0, 0, 0)


def test_the_reserve_stays_free_on_every_device():
    assert Budget(2200, 2200).layers() == Layers()
    assert Budget(2200, 2199).layers() == Layers(32, ALL, ALL)
    assert Budget(5000, 1000).layers().target == 11


def test_a_device_that_is_not_used_may_be_full():
    assert most_layers(lambda n: [500 * MIB, 0], [RESERVE + 600 * MIB, 0], N_LAYER) == ALL


def test_few_layouts_are_looked_at():
    for free in range(200, 4400, 37):
        budget = Budget(free)
        budget.layers()
        assert len(budget.asked) <= 12, budget.asked


def test_uneven_layers():
    """The first layers cost much more than the last: still the most that fit."""
    sizes = [1000 if i < 4 else 10 for i in range(N_LAYER)] + [300]

    def use(n: int) -> list[int]:
        return [sum(sizes[: N_LAYER + 1 if n == ALL else n]) * MIB]

    for free in range(0, 4600, 130):
        right = max(n for n in range(N_LAYER + 1) if use(n)[0] <= free * MIB)
        got = most_layers(use, [RESERVE + free * MIB], N_LAYER)
        assert got == (ALL if use(ALL)[0] <= free * MIB else right)


def test_a_target_without_a_head():
    budget = Budget(1000)
    layers = choose_plain(budget.use, budget.free, N_LAYER)
    assert layers == Layers(8, ALL, 8)
    assert not layers.lost
    assert explain(layers, N_LAYER) == "8 of 33 layers fit into the free GPU memory"
    assert explain(choose_plain(Budget(9999).use, Budget(9999).free, N_LAYER), N_LAYER) == ""
