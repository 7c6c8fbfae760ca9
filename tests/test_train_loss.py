"""loss.py and optimizers.py against torch's own, written out."""

import pytest

torch = pytest.importorskip("torch", reason="training needs torch")

from llama_eagle.train import loss as module  # noqa: E402 - needs torch
from llama_eagle.train.group import Group  # noqa: E402
from llama_eagle.train.optimizers import AdamW, Muon, orthogonal  # noqa: E402


@pytest.mark.parametrize("piece", [1, 3, 512])
def test_loss_and_gradients_are_those_of_the_dense_formula(monkeypatch, piece):
    monkeypatch.setattr(module, "_PIECE", piece)
    torch.manual_seed(0)
    states, head = torch.randn(7, 5, requires_grad=True), torch.randn(11, 5, requires_grad=True)
    numbers = torch.stack([torch.randperm(11)[:4] for _ in range(7)])
    p = torch.rand(7, 4)
    p[3] = 0
    dense = torch.zeros(7, 11).scatter(1, numbers, p)
    expected = -(dense * torch.log_softmax(states @ head.T, -1)).sum()
    wanted = torch.autograd.grad(2 * expected, (states, head))
    found = module.soft_cross_entropy(states, head, numbers, p, 11)
    torch.testing.assert_close(found, expected)
    for got, want in zip(torch.autograd.grad(2 * found, (states, head)), wanted, strict=True):
        torch.testing.assert_close(got, want)


def test_numbers_that_repeat_count_with_their_sum():
    """Tokens outside the draft vocabulary all have number 0 and no probability."""
    states, head = torch.randn(1, 5), torch.randn(11, 5, requires_grad=True)
    numbers, p = torch.tensor([[3, 0, 0]]), torch.tensor([[1.0, 0.0, 0.0]])
    found = torch.autograd.grad(module.soft_cross_entropy(states, head, numbers, p, 11), head)[0]
    expected = torch.autograd.grad(-torch.log_softmax(states @ head.T, -1)[0, 3], head)[0]
    torch.testing.assert_close(found, expected)


def test_tokens_that_are_drawn_stand_for_those_that_are_not():
    """Over many draws the sums are those of the whole vocabulary; no target's token is ever left out."""
    torch.manual_seed(2)
    states, head = torch.randn(6, 5, requires_grad=True), 0.3 * torch.randn(400, 5)
    head.requires_grad_()
    numbers, p = torch.randint(400, (6, 3)), torch.full((6, 3), 1 / 3)
    exact = module.soft_cross_entropy(states, head, numbers, p, 400)
    draws = [module.soft_cross_entropy(states, head, numbers, p, 100) for _ in range(200)]
    assert len({float(draw.detach()) for draw in draws}) > 100
    mean = torch.stack(draws).mean()
    torch.testing.assert_close(mean, exact, rtol=1e-3, atol=0)
    for parts in zip(*(torch.autograd.grad(value, (states, head)) for value in (mean, exact)), strict=True):
        found, expected = (part.flatten() for part in parts)
        assert torch.nn.functional.cosine_similarity(found, expected, 0) > 0.995


@pytest.mark.parametrize("shape", [(8, 24), (24, 8), (16, 16)])
def test_orthogonal_keeps_directions_and_evens_their_sizes(shape):
    torch.manual_seed(1)
    matrix = torch.randn(shape)
    u, s, v = torch.linalg.svd(matrix, full_matrices=False)
    found = u.T @ orthogonal(matrix) @ v.T
    assert s.max() / s.min() > 1.5
    assert (found.diag() > 0.6).all()
    assert (found.diag() < 1.3).all()
    torch.testing.assert_close(found, found.diag().diag(), atol=1e-4, rtol=0)


def test_adam_is_torchs():
    weights = [torch.nn.Parameter(torch.ones(3)) for _ in range(2)]
    mine = AdamW({"w": weights[0]}, 0.1)
    theirs = torch.optim.AdamW([weights[1]], 0.1, betas=(0.9, 0.95), eps=1e-10, weight_decay=0)
    for number in range(1, 6):
        for weight in weights:
            weight.grad = torch.tensor([1.0, -2.0, 0.5]) * number
        mine.step(1.0, number)
        theirs.step()
    torch.testing.assert_close(weights[0], weights[1])


def test_muon_moves_by_its_rate_whatever_the_gradient():
    for size in (1e-6, 1e3):
        weight = torch.nn.Parameter(torch.zeros(6, 4))
        weight.grad = size * torch.randn(6, 4)
        Muon({"w": weight}, Group(), 0.02).step(0.5, 1)
        sizes = torch.linalg.svdvals(weight.detach()) / (0.01 * 1.5**0.5)
        assert (sizes > 0.6).all()
        assert (sizes < 1.3).all()
