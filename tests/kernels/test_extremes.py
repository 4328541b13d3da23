"""Adaptive likelihood and CRPS of numbers as small, large and far away as float32 has: no NaN, and equal to float64."""

import importlib.util

import pytest
import torch
from torch.nn.functional import softplus

from fourier_head import Adaptive, FourierHead
from fourier_head.domains.adaptive import LEAST_WIDTH

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
DISTANCES = (0.05, -0.9, 1.5, -50.0, 100.0, 1e4, -1e8)  # in widths; the tails of the last three round to nothing
RAW_WIDTHS = (-100.0, -5.0, 0.5, 1e4)
FREQUENCIES = 6
OPTIONS = [{}, {"packets": 2}, {"boundary": "reflect"}, {"packets": 1, "boundary": "reflect"}, {"anchored": True}]
# 16-bit gradients are rounded to 8 bits, and products in the kernel of the ranked score to 11.
TOLERANCE = {torch.float32: 5e-5, torch.bfloat16: 1e-2}


def head_of(options, impl):
    options = {"floor": 0.0} | options
    domain = Adaptive(anchored=options.pop("anchored", False))
    return FourierHead(4, num_frequencies=FREQUENCIES, domain=domain, impl=impl, **options).to(DEVICE)


def rows(layout, dtype):
    """Return outputs and values: coefficients of every kind with every width at every distance."""
    generator = torch.Generator().manual_seed(0)
    size = layout.num_coefficients
    drawn = torch.randn(size, generator=generator)
    kinds = [drawn, 0 * drawn, 0 * drawn + 0.5, 1e-30 * drawn, 1e30 * drawn, torch.eye(size)[0]]
    found, values = [], []
    for coefficients in kinds:
        for raw in RAW_WIDTHS:
            packets = torch.randn(4 * layout.packets, generator=generator)
            place = torch.tensor([0.0, raw, -0.5][: layout.place_outputs])
            row = torch.cat([coefficients, packets, place]).to(dtype)
            width = softplus(row[size + 4 * layout.packets + 1].float()) + LEAST_WIDTH
            found += [row] * len(DISTANCES)
            values += [width * distance for distance in DISTANCES]
    return torch.stack(found).to(DEVICE), torch.stack(values).to(DEVICE)


def scored(head, outputs, value, kind):
    """Return losses and gradients, in units that make all of them of size one: of the coefficients and of the width."""
    y = outputs.detach().requires_grad_()
    anchor = torch.zeros_like(value) if head.domain.anchored else None
    loss = head.values_loss_of(y, value, kind=kind, anchor=anchor)
    (grad,) = torch.autograd.grad(loss.sum(), y)
    y, grad, size, place = y.detach().double(), grad.double(), head.layout.num_coefficients, head.layout.place_outputs
    width = softplus(y[:, -place + 1]) + LEAST_WIDTH
    grad[:, :size] *= y[:, :size].abs().amax(1, keepdim=True).clamp_min(1e-37)
    if kind == "crps":
        loss = loss / width
        grad[:, :-place] /= width.unsqueeze(1)
    else:
        grad[:, -place] *= width
    return loss.detach().double(), grad


def check(options, impl, dtype, kind):
    fast = head_of(options, impl)
    outputs, value = rows(fast.layout, dtype)
    loss, grad = scored(fast, outputs, value, kind)
    exact_loss, exact_grad = scored(head_of(options, "reference"), outputs.double(), value.double(), kind)
    assert loss.isfinite().all()
    assert grad.isfinite().all()
    torch.testing.assert_close(loss, exact_loss, rtol=1e-4 if dtype == torch.float32 else 1e-3, atol=1e-3)
    torch.testing.assert_close(grad, exact_grad, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


@pytest.mark.parametrize("kind", ["nll", "crps"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_reference(options, dtype, kind):
    check(options, "reference", dtype, kind)


@pytest.mark.parametrize("kind", ["nll", "crps"])
@pytest.mark.parametrize("options", [{}, {"anchored": True}, {"floor": 1e-3}], ids=str)
def test_closed_form(options, kind, monkeypatch):
    if DEVICE != "cpu":
        monkeypatch.setattr(f"{__name__}.DEVICE", "cpu")
    check(options, "closed_form", torch.float32, kind)


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="needs triton")
@pytest.mark.parametrize("kind", ["nll", "crps"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_kernels(options, dtype, kind):
    if kind == "crps" and "packets" in options:
        pytest.skip("the ranked score of packets is left to the reference")
    check(options, "fused", dtype, kind)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["nll", "crps"])
def test_compiled(kind):
    check({}, "compiled", torch.float32, kind)


@pytest.mark.parametrize("kind", ["nll", "crps"])
def test_under_autocast(kind):
    """Where features are multiplied in 16 bits, densities are not."""
    torch.manual_seed(0)
    head = head_of({}, "auto")
    with torch.no_grad():
        head.proj.weight.mul_(1e3)
    x = torch.randn(64, 4, device=DEVICE) * torch.logspace(-6, 4, 64, device=DEVICE).unsqueeze(1)
    value = torch.logspace(-8, 8, 64, device=DEVICE)
    with torch.autocast(DEVICE, torch.bfloat16):
        loss = getattr(head, kind)(x, value)
    loss.backward()
    assert loss.isfinite()
    assert all(parameter.grad.isfinite().all() for parameter in head.parameters())
