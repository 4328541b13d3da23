"""The implementations of the losses: one result, chosen or forced, and clear refusals."""

import os
import subprocess
import sys

import pytest
import torch

from fourier_head import FourierHead
from fourier_head.losses import choose, why_not_fused

FUSED = """
import torch
from fourier_head import FourierHead, Interval
torch.manual_seed(0)
for boundary in ("periodic", "reflect"):
    fused = FourierHead(8, 18, 5, impl="fused", init_scale=1.0, boundary=boundary, domain=Interval(0, 4))
    plain = FourierHead(8, 18, 5, impl="reference", init_scale=1.0, boundary=boundary, domain=Interval(0, 4))
    plain.load_state_dict(fused.state_dict())
    x, target, value = torch.randn(2, 9, 8), torch.randint(18, (2, 9)), 4 * torch.rand(2, 9)
    target[0, :2] = -100
    value[0, 0] = torch.nan
    weight = torch.rand(18) + 0.5
    for reduction in ("none", "mean", "sum"):
        for loss in (
            lambda h: h.loss(x, target, reduction=reduction),
            lambda h: h.loss(x, target, reduction=reduction, weight=weight),
            lambda h: h.nll(x, value, reduction=reduction),
        ):
            a, b = loss(fused), loss(plain)
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
            got = torch.autograd.grad(a.sum(), list(fused.parameters()))
            for g, w in zip(got, torch.autograd.grad(b.sum(), list(plain.parameters()))):
                torch.testing.assert_close(g, w, rtol=1e-3, atol=1e-4)
    with torch.no_grad():
        torch.testing.assert_close(fused(x), plain(x), rtol=1e-4, atol=1e-4)
        assert fused(x[:0]).shape == (0, 9, 18)
        fast, slow = fused.density(x), plain.density(x)
        levels = torch.tensor([[0.9, 0.1], [0.5, 1.0]])
        torch.testing.assert_close(fast.quantile(levels), slow.quantile(levels), rtol=0, atol=4e-5)
        assert fast._spectrum is None and slow._spectrum is not None  # so the kernels did run
        if boundary == "reflect":
            break
        draws = [d.sample((3,), generator=torch.Generator().manual_seed(0)) for d in (fast, slow)]
        torch.testing.assert_close(draws[0], draws[1], rtol=0, atol=4e-5)
        blurred = [d.low_pass(0.1).icdf(torch.tensor(0.3)) for d in (fast, slow)]
        torch.testing.assert_close(blurred[0], blurred[1], rtol=0, atol=4e-5)
    a = fused.density(x).rsample()
    assert a.requires_grad
print("equal")
"""


def test_forced_kernels_equal_the_reference_in_tritons_interpreter():
    pytest.importorskip("triton")
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    done = subprocess.run([sys.executable, "-c", FUSED], capture_output=True, text=True, env=environment, check=False)
    assert done.stdout.strip() == "equal", done.stderr[-2000:]


@pytest.mark.parametrize("options", [{}, {"packets": 2, "gamma": 1e-2}], ids=str)
def test_compiled_equals_the_reference(options):
    compiled = FourierHead(8, 18, 5, impl="compiled", init_scale=1.0, **options)
    plain = FourierHead(8, 18, 5, impl="reference", init_scale=1.0, **options)
    plain.load_state_dict(compiled.state_dict())
    x, target = torch.randn(9, 8), torch.randint(18, (9,))
    a, b = compiled.loss(x, target), plain.loss(x, target)
    torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
    got = torch.autograd.grad(a, list(compiled.parameters()))
    for g, w in zip(got, torch.autograd.grad(b, list(plain.parameters())), strict=True):
        torch.testing.assert_close(g, w, rtol=1e-3, atol=1e-5)


def test_a_cpu_takes_the_reference_and_says_why(monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    head = FourierHead(8, 18, 5)
    x = torch.randn(3, 8)
    reason = why_not_fused(x, head.proj.weight, head.layout, "auto")
    assert reason is not None
    assert "CUDA" in reason
    assert choose("auto", reason) == "reference"
    head.impl = "fused"
    with pytest.raises(ValueError, match="impl='fused' does not apply: they need a CUDA device"):
        head.loss(x, torch.tensor([0, 1, 2]))
    with pytest.raises(ValueError, match="impl must be"):
        FourierHead(8, 18, 5, impl="fast")


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    "options",
    [{}, {"boundary": "reflect"}, {"packets": 2}, {"num_atoms": 3}, {"num_frequencies": 100, "num_bins": 512}],
)
def test_inference_on_a_gpu_equals_the_reference(options, dtype):
    options = {"num_bins": 64, "num_frequencies": 20, "init_scale": 1.0} | options
    head = FourierHead(32, impl="auto", **options).to("cuda", dtype)
    plain = FourierHead(32, impl="reference", **options).to("cuda", dtype)
    plain.load_state_dict(head.state_dict())
    x = torch.randn(5, 33, 32, device="cuda", dtype=dtype)
    wide = dtype == torch.bfloat16 and options["num_frequencies"] == 100
    with torch.no_grad():
        torch.testing.assert_close(head(x), plain(x), rtol=1e-3, atol=0.1 if wide else 1e-3)
        fast, slow = head.density(x), plain.density(x)
        cdf = slow.cdf(fast.quantile([0.1, 0.5, 0.9]))
        expected = torch.tensor([0.1, 0.5, 0.9], device="cuda")[:, None, None].expand_as(cdf)
        torch.testing.assert_close(cdf, expected, rtol=0, atol=1e-5)
        draws = fast.sample((7,), generator=torch.Generator("cuda").manual_seed(0))
        level = torch.rand((7, 5, 33), device="cuda", generator=torch.Generator("cuda").manual_seed(0))
        torch.testing.assert_close(slow.cdf(draws), level, rtol=0, atol=1e-5)
    assert head(x).requires_grad
    assert fast.expand((2, 5, 33)).impl == "auto"
    assert plain.density(x).low_pass(0.1).impl == "reference"


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"packets": 1}, "packets and atoms"),
        ({"num_atoms": 1}, "packets and atoms"),
        ({"bin_mass": "exact"}, "exact bin masses"),
    ],
)
def test_what_the_kernels_do_not_do_falls_back(options, reason):
    head = FourierHead(16, 18, 5, init_scale=1.0, **options).cuda()
    x, target = torch.randn(7, 16, device="cuda"), torch.randint(18, (7,), device="cuda")
    expected = torch.nn.functional.cross_entropy(head(x), target)
    torch.testing.assert_close(head.loss(x, target), expected, rtol=1e-4, atol=1e-5)
    head.impl = "fused"
    with pytest.raises(ValueError, match=reason):
        head.loss(x, target)
