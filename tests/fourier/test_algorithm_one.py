"""The head equals Algorithm 1, logits and loss, values and gradients."""

import pytest
import torch
from torch.nn import functional as F

from fourier_head import FourierHead
from fourier_head.fourier.spectrum import autocorrelation, paper_penalty
from fourier_head.losses import log_probs
from tests.algorithm_one import log_probabilities

GRID = [(32, 50, 12), (128, 18, 14), (128, 18, 32), (384, 4096, 550), (8, 7, 20), (4, 1, 3), (5, 8, 63)]


def _case(n, m, N, tokens=12):
    head = FourierHead(n, m, N, floor=1e-3, init_scale=1.0)
    x = torch.randn(tokens, n, requires_grad=True)
    target = torch.randint(m, (tokens,))
    return head, x, target


def _reference(head, x, target):
    """Return loss and gradients of the literal algorithm in float64."""
    weight = head.proj.weight.detach().double().requires_grad_()
    bias = head.proj.bias.detach().double().requires_grad_()
    x = x.detach().double().requires_grad_()
    logs = log_probabilities(F.linear(x, weight, bias), head.num_bins, head.layout.floor)
    loss = F.nll_loss(logs, target)
    return logs, loss, torch.autograd.grad(loss, [x, weight, bias])


def _relative(got, want):
    return float((got.double() - want).norm() / want.norm().clamp_min(1e-12))


@pytest.mark.parametrize(("n", "m", "N"), GRID)
def test_float32_equals_the_literal_algorithm(n, m, N):
    head, x, target = _case(n, m, N)
    logs, loss, gradients = _reference(head, x, target)
    assert (head(x).exp() - logs.exp()).abs().max() < 1e-5
    for ours in (head.loss(x, target), F.cross_entropy(head(x), target)):
        assert abs(ours.item() - loss.item()) < 1e-5 * max(1, abs(loss.item()))
        ours_gradients = torch.autograd.grad(ours, [x, head.proj.weight, head.proj.bias])
        # With one bin the loss is constant: both gradients are rounding noise.
        scale = max(float(g.norm()) for g in gradients)
        if scale > 1e-9:
            for got, want in zip(ours_gradients, gradients, strict=True):
                assert _relative(got, want) < 1e-5
        else:
            assert all(g.abs().max() < 1e-5 for g in ours_gradients)


@pytest.mark.parametrize(("n", "m", "N"), [g for g in GRID if g[1] > 1])
def test_bfloat16_autocast_equals_the_literal_algorithm(n, m, N):
    head, x, target = _case(n, m, N, tokens=64)
    _, loss, gradients = _reference(head, x, target)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        losses = (head.loss(x, target), F.cross_entropy(head(x), target))
    for ours in losses:
        assert ours.dtype == torch.float32
        assert abs(ours.item() - loss.item()) < 1e-2 * max(1, abs(loss.item()))
    fast, dense = (torch.autograd.grad(ours, [x, head.proj.weight, head.proj.bias]) for ours in losses)
    for got, same, want in zip(fast, dense, gradients, strict=True):
        assert _relative(got, same.double()) < 1e-2
        # The bfloat16 rounding of the coefficients themselves, amplified where the density is small.
        assert _relative(got, want) < 5e-2


def test_no_frequencies_mean_the_uniform_distribution():
    head, x, target = _case(16, 64, 0)
    torch.testing.assert_close(head(x).exp(), torch.full((12, 64), 1 / 64))
    loss = head.loss(x, target)
    assert abs(loss.item() - torch.tensor(64.0).log().item()) < 1e-6
    assert torch.autograd.grad(loss, head.proj.weight)[0].abs().max() < 1e-6


def test_unnormalised_inputs_give_the_same_density():
    head, x, _ = _case(32, 50, 12)
    outputs = head.proj(x).detach()
    for scale in (1e-30, 1e-8, 1e8, 1e30):
        scaled, plain = (log_probs(y, head.layout, head.domain) for y in (outputs * scale, outputs))
        torch.testing.assert_close(scaled, plain, rtol=1e-5, atol=1e-5)


def test_released_floor_reproduces_the_released_addition():
    from fourier_head import released_floor

    head, x, _ = _case(32, 50, 12)
    y = log_probabilities(head.proj(x), 50).exp() + 1e-5
    head.layout = type(head.layout)(50, 12, floor=released_floor(50))
    torch.testing.assert_close(head(x).exp().double(), y / y.sum(-1, keepdim=True), rtol=0, atol=1e-6)


@pytest.mark.parametrize(("m", "N"), [(18, 4), (18, 14), (18, 17), (100, 7)])
def test_no_bin_gets_more_than_its_share_of_the_frequencies_and_one_can_get_as_much(m, N):
    from fourier_head.fourier import series

    a = torch.randn(1000, 2, N + 1, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    bound = (N + 1) / m
    assert float(series.log_pmf(a, m).exp().max()) <= bound + 1e-9
    for bin in (0, m // 2, m - 1):
        phase = torch.pi * torch.arange(N + 1, dtype=torch.float64) * (-1 + (2 * bin + 1) / m)
        sharpest = torch.stack([phase.cos(), phase.sin()])
        assert float(series.log_pmf(sharpest, m).exp()[bin]) == pytest.approx(bound)


@pytest.mark.parametrize("walls", [False, True])
def test_the_penalty_of_the_paper_is_exact_in_float64(walls):
    random = torch.Generator().manual_seed(0)
    a = torch.randn(3, 1 if walls else 2, 9, dtype=torch.float64, generator=random)
    c = autocorrelation(a)
    rate = torch.tensor([torch.pi * k / (2 if walls else 1) for k in range(9)], dtype=torch.float64)
    expected = (2 / 50) * ((rate * c) ** 2).sum((-2, -1))
    torch.testing.assert_close(paper_penalty(a.unsqueeze(-3), 50, walls), expected, rtol=1e-13, atol=0)
