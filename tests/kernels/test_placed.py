"""Likelihood and CRPS of the adaptive head in closed form, against plain torch in float64."""

import copy

import pytest
import torch

from fourier_head import Adaptive, Affine, Asinh, FourierHead, Log
from fourier_head.kernels import placed
from fourier_head.losses import IMPLEMENTATIONS


@pytest.mark.parametrize("weight", [0.002, 0.01, 0.3])
@pytest.mark.parametrize("frequencies", [1, 4, 12, 33])
def test_scores_and_gradients_equal_the_series(frequencies, weight):
    torch.manual_seed(0)
    a = torch.randn(400, 2 * (frequencies + 1), requires_grad=True)
    # Inside, at the ends, outside, and so far out that the tails round to nothing.
    v = (torch.randn(400) * torch.randn(400).exp() ** 2).requires_grad_()
    upstream = torch.rand(2, 400)
    found = placed.scores(a, v, v, weight, 1e-3)
    exact_a, exact_v = (t.detach().double().requires_grad_() for t in (a, v))
    expected = placed.reference(exact_a, exact_v, exact_v, weight, 1e-3)
    for score, exact in zip(found, expected, strict=True):
        torch.testing.assert_close(score.double(), exact, rtol=1e-4, atol=1e-4)
    grads = torch.autograd.grad(found, (a, v), upstream.unbind())
    exact_grads = torch.autograd.grad(expected, (exact_a, exact_v), upstream.double().unbind())
    for grad, exact in zip(grads, exact_grads, strict=True):
        assert (grad - exact).norm() < 1e-3 * exact.norm()


def test_zero_coefficients_are_uniform_and_scales_do_not_matter():
    v = torch.tensor([-0.5, 0.2])
    zero = torch.zeros(2, 10, requires_grad=True)
    nll, crps = placed.scores(zero, v, v, 0.01, 0.0)
    flat = torch.tensor([1.0, 0, 0, 0, 0, 0, 0, 0, 0, 0]).expand(2, -1)
    for found, expected in zip((nll, crps), placed.reference(flat, v, v, 0.01, 0.0), strict=True):
        torch.testing.assert_close(found, expected)
    assert (torch.autograd.grad((nll + crps).sum(), zero)[0] == 0).all()
    a = torch.randn(2, 10)
    for scale in (1e-12, 1e12):
        for found, expected in zip(
            placed.scores(scale * a, v, v, 0.01, 0.0), placed.scores(a, v, v, 0.01, 0.0), strict=True
        ):
            torch.testing.assert_close(found, expected)


def test_the_gradient_of_the_gradient_is_there():
    a, v = torch.randn(4, 10, requires_grad=True), torch.tensor([-2.0, -0.5, 0.5, 2.0], requires_grad=True)

    def curvature(scores):
        grads = torch.autograd.grad(sum(s.sum() for s in scores(a, v, v, 0.01, 0.0)), (a, v), create_graph=True)
        return torch.autograd.grad(sum(g.square().sum() for g in grads), (a, v))

    for found, expected in zip(curvature(placed.scores), curvature(placed.reference), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("anchored", [False, True])
@pytest.mark.parametrize("map", [Affine(3.0, 2.0), Asinh(1.0, 0.5), Log(0.5, 2.0)])
def test_the_head_takes_it_and_equals_the_reference(map, anchored):
    torch.manual_seed(1)
    domain = Adaptive(tails=0.01, map=map, anchored=anchored)
    auto = FourierHead(6, num_frequencies=7, domain=domain, init_scale=1.0)
    exact = FourierHead(6, num_frequencies=7, domain=domain, impl="reference").double()
    exact.load_state_dict(auto.state_dict())
    x = 3 * torch.randn(5, 40, 6)
    value = torch.rand(5, 40) * torch.randn(5, 40).exp() * 10
    options = {"anchor": value.flip(0)} if anchored else {}
    exact_options = {"anchor": value.flip(0).double()} if anchored else {}
    kinds = [{"kind": "nll"}, {"kind": "crps", "mapped": True}, {"kind": "both", "crps_weight": 3.0, "mapped": True}]
    if map.kind == "affine":
        kinds.append({"kind": "crps"})
    for kind in kinds:
        request = auto._request((auto.proj(x), None, None), value, **kind, **options)
        assert IMPLEMENTATIONS["closed_form"].why_not(request) is None
        loss = auto.values_loss_of(auto.proj(x), value, **kind, **options)
        expected = exact.values_loss_of(exact.proj(x.double()), value.double(), **kind, **exact_options)
        torch.testing.assert_close(loss.double(), expected, rtol=2e-4, atol=2e-4)
        grads = torch.autograd.grad(loss.mean(), list(auto.parameters()))
        exact_grads = torch.autograd.grad(expected.mean(), list(exact.parameters()))
        for grad, want in zip(grads, exact_grads, strict=True):
            assert (grad - want).norm() < 2e-3 * want.norm()


@pytest.mark.parametrize(
    ("options", "kind", "words"),
    [
        ({"packets": 1}, {"kind": "nll"}, "packets, walls and regularisers"),
        ({"boundary": "reflect"}, {"kind": "nll"}, "packets, walls and regularisers"),
        ({"gamma": 1e-3}, {"kind": "nll"}, "packets, walls and regularisers"),
        ({"domain": Adaptive(map=Asinh())}, {"kind": "crps"}, "behind a curved map"),
        ({"num_frequencies": 100}, {"kind": "nll"}, "a few frequencies"),
        ({"domain": Adaptive(tails=1e-4)}, {"kind": "nll"}, "tails of a thousandth"),
        ({"dtype": torch.float64}, {"kind": "nll"}, "float32 on a CPU"),
    ],
)
def test_what_it_leaves_to_plain_torch_it_says(options, kind, words):
    head = FourierHead(4, **{"num_frequencies": 5, "domain": Adaptive(), "impl": "closed_form"} | options)
    x = torch.zeros(2, 4, dtype=head.proj.weight.dtype)
    with pytest.raises(ValueError, match=words):
        head.values_loss_of(head.proj(x), torch.ones(2), **kind)


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["nll", "crps", "both"])
def test_a_graphics_card_says_the_same(kind):
    torch.manual_seed(1)
    head = FourierHead(6, num_frequencies=7, domain=Adaptive(), impl="closed_form", init_scale=1.0)
    x, value, found = 3 * torch.randn(5, 40, 6), 3 * torch.randn(5, 40), []
    for device in ("cpu", "cuda"):
        own = copy.deepcopy(head).to(device)
        loss = own.values_loss_of(own.proj(x.to(device)), value.to(device), kind=kind)
        found.append([loss, *torch.autograd.grad(loss.mean(), list(own.parameters()))])
    for here, there in zip(*found, strict=True):
        assert there.is_cuda
        assert (there.cpu() - here).norm() < 1e-4 * here.norm()
