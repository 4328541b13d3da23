"""The implementations of the losses: one result, chosen or forced, and clear refusals."""

import importlib.util
import os
import subprocess
import sys

import pytest
import torch

from fourier_head import FourierHead, losses
from fourier_head.losses import IMPLEMENTATIONS, Request
from tests import kernel_reference as reference

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
needs_triton = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="needs triton")

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
        assert fast._kept is None and slow._kept is not None  # so the kernels did run
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
    if os.environ.get("TRITON_INTERPRET") == "1":
        exec(FUSED, {})
        return
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    done = subprocess.run([sys.executable, "-c", FUSED], capture_output=True, text=True, env=environment, check=False)
    assert done.stdout.strip() == "equal", done.stderr[-2000:]


def pair(width, num_bins, num_frequencies, dtype=torch.float32, **options):
    """Return a head of the kernels and the same head as the reference in float64."""
    options = {"num_atoms": 2, "init_scale": 1.0, "floor": 1e-3} | options
    fused = FourierHead(width, num_bins, num_frequencies, impl="fused", **options).to(DEVICE, dtype)
    plain = FourierHead(width, num_bins, num_frequencies, impl="reference", **options).to(DEVICE).double()
    plain.load_state_dict(fused.state_dict())
    return fused, plain


def loss_and_gradients(head, x, target, **options):
    """Return the loss and its gradients of inputs and parameters, tokens weighing differently."""
    x = x.detach().to(head.proj.weight.dtype).requires_grad_()
    loss = head.loss(x, target, **options)
    upstream = torch.linspace(0.5, 1.5, loss.numel(), device=DEVICE).view(loss.shape).to(loss)
    return [loss.detach(), *torch.autograd.grad(loss, [x, *head.parameters()], upstream)]


def assert_near(found, expected, tolerance=1e-5):
    """Compare tensors by the norm of their difference."""
    for a, b in zip(found, expected, strict=True):
        assert a.shape == b.shape
        assert (a.double() - b).norm() <= tolerance * b.norm() + 1e-9, (a, b)


@needs_triton
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    ("ids", "options"),
    [
        ("some", {}),
        ("some", {"boundary": "reflect", "num_atoms": 1}),
        ("all", {"bias": False}),
        ("none", {"num_atoms": 3}),
    ],
)
def test_kernels_with_atoms_equal_the_reference(ids, options, weighted, reduction):
    fused, plain = pair(8, 18, 5, **options)
    atoms = fused.layout.num_atoms
    low, high = {"some": (0, 18 + atoms), "all": (0, atoms), "none": (atoms, 18 + atoms)}[ids]
    x, target = torch.randn(2, 9, 8, device=DEVICE), torch.randint(low, high, (2, 9), device=DEVICE)
    if ids == "some":
        target[0, :3] = torch.tensor([0, atoms, 0])
    loss = {"reduction": reduction, "ignore_index": int(target[1, 0])}
    if weighted:
        loss["weight"] = torch.rand(18 + atoms, device=DEVICE)
    assert_near(loss_and_gradients(fused, x, target, **loss), loss_and_gradients(plain, x, target, **loss))


@needs_triton
@pytest.mark.parametrize("reduction", ["none", "mean"])
def test_roughness_of_a_head_with_atoms_counts_every_token(reduction):
    fused, plain = pair(8, 18, 5, gamma=0.1)
    x, target = torch.randn(12, 8, device=DEVICE), torch.randint(20, (12,), device=DEVICE)
    target[:4] = torch.tensor([0, 1, -100, -100])
    torch.manual_seed(3)
    offsets = torch.rand(12, device=DEVICE)
    torch.manual_seed(3)
    loss, grad_x, *grads = loss_and_gradients(fused, x, target, reduction=reduction)

    def exact(x, weight, bias):
        rough = reference.roughness(x, weight[:12], bias[:12], offsets, floor=1e-3, points=1)
        rough = torch.where(target == -100, 0, rough)
        return 0.1 * (rough if reduction == "none" else rough.sum() / 10)

    plain.gamma = 0.0
    inputs = [x.double().requires_grad_(), *plain.parameters()]
    whole = plain.loss(inputs[0], target, reduction=reduction) + exact(*inputs)
    upstream = torch.linspace(0.5, 1.5, whole.numel(), device=DEVICE).view(whole.shape).to(whole)
    assert_near([loss, grad_x, *grads], [whole.detach(), *torch.autograd.grad(whole, inputs, upstream)])


@needs_triton
def test_kernels_with_atoms_where_nothing_counts_or_is_there():
    fused, _ = pair(8, 18, 5)
    x = torch.randn(3, 8, device=DEVICE)
    for found in (
        loss_and_gradients(fused, x, torch.full((3,), -100, device=DEVICE)),
        loss_and_gradients(fused, x[:0], torch.zeros(0, dtype=torch.long, device=DEVICE)),
    ):
        assert all(float(t.abs().sum()) == 0 for t in found)


@needs_triton
def test_compiled_kernels_with_atoms_have_no_break():
    fused, _ = pair(8, 18, 5)
    x, target = torch.randn(9, 8, device=DEVICE), torch.randint(20, (9,), device=DEVICE)
    plain = loss_and_gradients(fused, x, target)
    fused.loss = torch.compile(fused.loss, backend="aot_eager", fullgraph=True)
    assert_near(loss_and_gradients(fused, x, target), [t.double() for t in plain], 1e-6)


@needs_triton
def test_likelihood_of_values_leaves_atoms_out():
    fused, plain = pair(8, 18, 5)
    x, value = torch.randn(9, 8, device=DEVICE), 2 * torch.rand(9, device=DEVICE) - 1
    found = torch.autograd.grad(fused.nll(x, value), list(fused.parameters()))
    expected = torch.autograd.grad(plain.nll(x.double(), value.double()), list(plain.parameters()))
    assert_near(found, expected)


@pytest.mark.parametrize(
    ("options", "backend"),
    [
        ({}, "inductor"),
        ({"packets": 2, "gamma": 1e-2}, "aot_eager"),  # one graph and its gradient; writing it in C++ takes longest
        pytest.param({"packets": 2, "gamma": 1e-2}, "inductor", marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_compiled_equals_the_reference(options, backend, monkeypatch):
    monkeypatch.setattr(losses.reference, "compiler", lambda: torch.compile(losses.reference.run, backend=backend))
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
    request = Request(x, head.proj.weight, head.proj.bias, torch.tensor([0, 1, 2]), head.layout, head.domain)
    reason = IMPLEMENTATIONS["fused"].why_not(request)
    assert reason is not None
    assert "CUDA" in reason
    assert IMPLEMENTATIONS["closed_form"].why_not(request) is None
    head.impl = "fused"
    with pytest.raises(ValueError, match="impl='fused' does not apply: they need a CUDA device"):
        head.loss(x, torch.tensor([0, 1, 2]))
    with pytest.raises(ValueError, match="impl must be"):
        FourierHead(8, 18, 5, impl="fast")


class _Adapted(torch.nn.Module):
    """A layer beside another whose weight it shows, as adapters do."""

    def __init__(self, base):
        super().__init__()
        self.base, self.extra = base, torch.nn.Linear(base.in_features, base.out_features)
        self.weight, self.bias = base.weight, base.bias

    def forward(self, x):
        return self.base(x) + self.extra(x)


def _hooked(layer):
    layer.register_forward_hook(lambda module, given, found: found + torch.arange(found.shape[-1]))
    return layer


@pytest.mark.filterwarnings("ignore:.*weight_norm:FutureWarning")
@pytest.mark.parametrize("change", [_Adapted, _hooked, torch.nn.utils.weight_norm], ids=["adapter", "hook", "norm"])
def test_losses_see_all_that_the_projection_does(change):
    head = FourierHead(8, 18, 5, init_scale=1.0)
    head.proj = change(head.proj)
    x, target = torch.randn(9, 8), torch.randint(18, (9,))
    value = torch.rand(9)
    for _ in range(2):  # a layer that remembers its last weight has none for a second pass back
        loss, nll = head.loss(x, target), head.nll(x, value)
        head.zero_grad()
        (loss + nll).backward()
    assert all(p.grad is not None for p in head.parameters())
    torch.testing.assert_close(loss, torch.nn.functional.cross_entropy(head(x), target))
    torch.testing.assert_close(nll, -head.density(x).log_prob(value).mean())


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
    # Coefficients of 8 bits are multiplied with cosines of 11 bits: logarithms feel it where there is next to nothing.
    half = dtype == torch.bfloat16
    close = 3e-4 if half else 1e-5
    with torch.no_grad():
        torch.testing.assert_close(head(x), plain(x), rtol=1e-3, atol=0.1 if half else 1e-3)
        assert_near([head(x).exp()], [plain(x).double().exp()], 1e-3 if half else 1e-4)
        fast, slow = head.density(x), plain.density(x)
        cdf = slow.cdf(fast.quantile([0.1, 0.5, 0.9]))
        expected = torch.tensor([0.1, 0.5, 0.9], device="cuda")[:, None, None].expand_as(cdf)
        torch.testing.assert_close(cdf, expected, rtol=0, atol=close)
        draws = fast.sample((7,), generator=torch.Generator("cuda").manual_seed(0))
        level = torch.rand((7, 5, 33), device="cuda", generator=torch.Generator("cuda").manual_seed(0))
        torch.testing.assert_close(slow.cdf(draws), level, rtol=0, atol=close)
    assert head(x).requires_grad
    assert fast.expand((2, 5, 33)).impl == "auto"
    assert plain.density(x).low_pass(0.1).impl == "reference"


@pytest.mark.gpu
@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("options", [{}, {"bias": False}, {"boundary": "reflect"}, {"num_atoms": 3}], ids=str)
def test_padded_weights_change_nothing(options, autocast, monkeypatch):
    """A projection with outputs in whole vectors is another product of the same numbers."""
    dtype = torch.float32 if autocast else torch.bfloat16
    head = FourierHead(64, 256, 20, init_scale=1.0, floor=1e-3, **options).to("cuda", dtype)
    x, found = torch.randn(3, 50, 64, device="cuda", dtype=dtype), []
    levels = torch.tensor([0.1, 0.5, 0.9], device="cuda")
    for least in (0, 1 << 62):
        monkeypatch.setattr("fourier_head.heads.fourier.PADDED_FROM", least)
        with torch.no_grad(), torch.autocast("cuda", torch.bfloat16, enabled=autocast):
            outputs, density = head._outputs(x), head.density(x)
            assert outputs.shape == (3, 50, head.layout.out_features)
            assert outputs.is_contiguous() == (least > 0)  # so the padded ones did come from wider rows
            found.append([t.double() for t in (outputs, head(x).exp(), density.quantile(levels))])
    # Sums in another order may round an output to the next number of 8 bits.
    assert_near(*found, 1e-2)


@needs_triton
@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"packets": 1, "gamma": 0.1}, "that of packets"),
        ({"bin_mass": "exact", "num_atoms": 1}, "exact bin masses"),
        ({"bin_mass": "exact"}, "exact bin masses"),
    ],
)
def test_what_the_kernels_do_not_do_falls_back(options, reason):
    head = FourierHead(16, 18, 5, init_scale=1.0, **options).to(DEVICE)
    x, target = torch.randn(7, 16, device=DEVICE), torch.randint(head.out_features, (7,), device=DEVICE)
    expected = torch.nn.functional.cross_entropy(head(x), target) + head.gamma * head.penalty(x).mean()
    torch.testing.assert_close(head.loss(x, target), expected, rtol=1e-4, atol=1e-5)
    head.impl = "fused"
    with pytest.raises(ValueError, match=reason):
        head.loss(x, target)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_forecasters_loss_takes_the_kernels_and_equals_the_reference(dtype):
    """256 series of 64 values and EOS, 4094 bins, PAD and EOS as atoms: the shape of a Chronos-style T5."""
    fused, plain = pair(384, 4094, 550, dtype)
    fused.impl = "auto"
    x, target = torch.randn(256, 65, 384, device="cuda").to(dtype), torch.randint(2, 4096, (256, 65), device="cuda")
    request = Request(x, fused.proj.weight, fused.proj.bias, target, fused.layout, fused.domain)
    assert IMPLEMENTATIONS["fused"].why_not(request) is None
    target[:, -1] = 1
    target[::3, :20] = -100
    found = loss_and_gradients(fused, x, target)
    exact = [torch.zeros(t.shape, dtype=torch.float64, device="cuda") for t in found]
    for rows in torch.arange(256, device="cuda").split(32):  # float64 of all rows at once would be gigabytes
        loss, grad_x, *grads = loss_and_gradients(plain, x[rows], target[rows], reduction="sum")
        exact[1][rows] = grad_x
        for whole, part in zip([exact[0], *exact[2:]], [loss, *grads], strict=True):
            whole += part
    tolerance = 1e-4 if dtype == torch.float32 else 2e-2
    assert_near(found, [t / (target != -100).sum() for t in exact], tolerance)
    fused.loss = torch.compile(fused.loss, fullgraph=True)
    assert_near(loss_and_gradients(fused, x, target), [t.double() for t in found], tolerance)
