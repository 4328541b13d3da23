"""The loss from a table, for small heads on a CPU, against plain torch."""

import pytest
import torch

from fourier_head import FourierHead
from fourier_head.fourier import series
from fourier_head.kernels import direct


@pytest.mark.parametrize("scale", [1.0, 1e-15, 1e15])
def test_loss_and_gradient_equal_the_series(scale):
    outputs = (scale * torch.randn(3, 7, 2 * 9)).requires_grad_()
    target = torch.randint(20, (3, 7))
    found = direct.nll(outputs, target, 20, 0.01)
    expected = -series.log_bin_mass(outputs.double().unflatten(-1, (2, -1)), target, 20, 0.01)
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5)
    upstream = torch.rand(3, 7)
    (grad,) = torch.autograd.grad(found, outputs, upstream)
    (exact,) = torch.autograd.grad(expected, outputs, upstream.double())
    assert (grad - exact).norm() < 1e-5 * exact.norm()


def test_zero_coefficients_are_uniform():
    outputs = torch.zeros(2, 10, requires_grad=True)
    loss = direct.nll(outputs, torch.tensor([0, 7]), 8, 0.0)
    torch.testing.assert_close(loss, torch.full((2,), 8.0).log())
    (grad,) = torch.autograd.grad(loss.sum(), outputs)
    assert (grad == 0).all()


def test_the_gradient_of_the_gradient_is_there():
    outputs = torch.randn(4, 10, requires_grad=True)
    target = torch.randint(8, (4,))

    def curvature(nll):
        (grad,) = torch.autograd.grad(nll(outputs).sum(), outputs, create_graph=True)
        return torch.autograd.grad(grad.square().sum(), outputs)[0]

    found = curvature(lambda y: direct.nll(y, target, 8, 0.1))
    expected = curvature(lambda y: -series.log_bin_mass(y.unflatten(-1, (2, -1)), target, 8, 0.1))
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_a_small_head_takes_it_and_equals_the_reference(reduction, monkeypatch):
    taken = []
    plain = direct.nll
    monkeypatch.setattr(direct, "nll", lambda *args: taken.append(True) or plain(*args))
    auto = FourierHead(6, 12, 4, init_scale=1.0)
    reference = FourierHead(6, 12, 4, init_scale=1.0, impl="reference")
    reference.load_state_dict(auto.state_dict())
    x, target, weight = torch.randn(5, 3, 6), torch.randint(12, (5, 3)), torch.rand(12)
    target[0, 1] = -100
    losses = [head.loss(x, target, weight=weight, reduction=reduction) for head in (auto, reference)]
    assert taken == [True]
    torch.testing.assert_close(*losses)
    grads = [
        torch.autograd.grad(loss.sum(), list(head.parameters()))
        for loss, head in zip(losses, (auto, reference), strict=True)
    ]
    for found, expected in zip(*grads, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)


def test_outputs_of_many_projections_have_the_same_gradient():
    outputs = torch.randn(3, 5, 10, requires_grad=True)
    target = torch.randint(12, (3, 5))
    gradients = []
    for impl in ("closed_form", "reference"):
        head = FourierHead(10, 12, 4, impl=impl)
        head.proj = torch.nn.Identity()  # as a stack of heads has it
        gradients.append(torch.autograd.grad(head.loss(outputs, target), outputs)[0])
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"num_bins": 1 << 16}, "too large a table"),
        ({"num_bins": 3}, "fewer bins"),
        ({"dtype": torch.float64}, "dtype"),
    ],
)
def test_what_it_leaves_to_plain_torch(change, reason):
    options = {"num_bins": 12, "dtype": torch.float32} | change
    x, weight = (torch.zeros(n, 6, dtype=options["dtype"]) for n in (2, 10))
    assert direct.applies(torch.zeros(2, 6), torch.zeros(10, 6), 10, 12)
    assert direct.applies(torch.zeros(2, 10), None, 10, 12)
    assert not direct.applies(x, weight, 10, options["num_bins"]), reason
