"""Nothing finite goes in and comes out as NaN or Inf; memory does not grow with the number of bins."""

import os
import subprocess
import sys

import pytest
import torch

from fourier_head import FourierHead
from fourier_head.layout import Layout
from tests.kernel_reference import layout_loss

SCALES = (0.0, 1e-30, 1e-3, 1.0, 1e30)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_fuzz(dtype):
    """10^5 random tokens per dtype over head options, weight scales, input scales and targets."""
    tokens, done, case = 500, 0, 0
    generator = torch.Generator().manual_seed(0)
    layouts = [
        Layout(50, 12, floor=1e-4),
        Layout(50, 12),
        Layout(7, 20, floor=1e-4),
        Layout(18, 5, floor=1e-4, packets=2),
        Layout(64, 9, floor=1e-3, bin_mass="exact"),
        Layout(50, 8, floor=1e-4, boundary="reflect", packets=1),
        Layout(50, 8, floor=1e-4, num_atoms=2),
        Layout(4096, 60, floor=1e-4),
    ]
    while done < 100_000:
        layout = layouts[case % len(layouts)]
        of_weights = SCALES[case // len(layouts) % len(SCALES)]
        of_inputs = SCALES[case // (len(layouts) * len(SCALES)) % len(SCALES)]
        case += 1
        if of_weights * of_inputs > 1e38:
            continue  # the projection itself overflows
        x = (of_inputs * torch.randn(tokens, 8, generator=generator)).to(dtype).requires_grad_()
        weight = (of_weights * torch.randn(layout.out_features, 8, generator=generator)).to(dtype).requires_grad_()
        bias = (of_weights * torch.randn(layout.out_features, generator=generator)).to(dtype).requires_grad_()
        target = torch.randint(layout.num_classes, (tokens,), generator=generator)
        if case % 3 == 0:
            x.data[::2] = 0
        gamma = 1e-3 * (case % 2)
        loss = layout_loss(x, weight, bias, target, layout, gamma=gamma)
        assert loss.isfinite(), (layout, of_weights, of_inputs)
        for gradient in torch.autograd.grad(loss, [x, weight, bias]):
            assert gradient.isfinite().all(), (layout, of_weights, of_inputs)
        done += tokens


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("boundary", ["periodic", "reflect"])
def test_continuous_losses_stay_finite(scale, boundary):
    head = FourierHead(8, None, 30, boundary=boundary, init_scale=1.0)
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.mul_(scale)
    x = torch.randn(200, 8, requires_grad=True)
    value = torch.cat([torch.rand(190) * 2 - 1, torch.tensor([-1.0, 1.0, 0.0, 5.0, -1e30, 1e30]), torch.rand(4)])
    for score in (head.nll, head.crps):
        loss = score(x, value)
        assert loss.isfinite()
        for gradient in torch.autograd.grad(loss, [x, *head.parameters()]):
            assert gradient.isfinite().all()


def test_zero_of_the_polynomial_has_a_finite_loss():
    """A = 1 + e^{-i pi z} vanishes at z = 1, and at the first centre of one bin N = 1 can vanish exactly."""
    layout = Layout(2, 1)
    outputs = torch.tensor([[1.0, 0.0, 0.0, 1.0]], requires_grad=True)  # A(-1/2) = 1 + i e^{i pi / 2} = 0
    loss = layout_loss(outputs, None, None, torch.tensor([0]), layout, reduction="none")
    assert loss.isfinite().all()
    assert loss.item() > 20
    assert torch.autograd.grad(loss.sum(), outputs)[0].isfinite().all()


PEAK = """
import resource, torch
from fourier_head import FourierHead
torch.set_num_threads(1)
for bins in (1024, 1_048_576):
    head = FourierHead(384, bins, 550)
    x = torch.randn(4096, 384, requires_grad=True)
    target = torch.randint(bins, (4096,))
    head.loss(x, target).backward()
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def test_peak_memory_of_the_loss_does_not_depend_on_the_bins():
    # What is freed goes back at once, so that a peak is what was held together and not what lay about.
    at_once = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "0"}
    done = subprocess.run([sys.executable, "-c", PEAK], capture_output=True, text=True, check=True, env=at_once)
    few, many = map(int, done.stdout.split())  # of the process so far
    assert many < 1.05 * few


def test_label_smoothing_keeps_memory_bounded():
    """The all-bin pass is chunked and recomputed: autograd keeps nothing of size tokens x bins."""
    layout = Layout(4096, 4, floor=1e-4)
    saved = []
    x = torch.randn(3000, 8, requires_grad=True)
    weight = torch.randn(layout.out_features, 8, requires_grad=True)

    def pack(tensor):
        saved.append(tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        layout_loss(x, weight, None, torch.randint(4096, (3000,)), layout, label_smoothing=0.1)
    assert max(saved) <= 3000 * 100
