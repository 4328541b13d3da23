"""The kernels of inference against the library's formulas: samples, log-probabilities of all bins, quantiles."""

import pytest
import torch
import torch.nn.functional as F

# Before anything of the kernels: decides between a GPU and the interpreter.
from tests.test_kernels import DEVICE, GPU, problem  # isort: skip

from fourier_head import kernels, series, spectrum
from fourier_head.kernels import reference


@pytest.mark.parametrize("walls", [False, True])
@pytest.mark.parametrize("frequencies", [1, 5, 15] if not GPU else [1, 5, 15, 550, 1023])
def test_samples_follow_the_density(frequencies, walls):
    tokens = 4000
    x, weight, bias, _ = problem(1, 20, 2048, frequencies, torch.float32, walls)
    y = F.linear(x, weight, bias).detach()
    digits = max(frequencies, 1).bit_length()
    noise = torch.rand(2 + digits, tokens, device=DEVICE)
    z = reference.sample(y.expand(tokens, -1), noise, floor=0.1, walls=walls)
    a = y.unflatten(-1, (1 if walls else 2, -1)).double()
    levels = spectrum.cdf(spectrum.of_coefficients(a, 0.1), z.double()[None])[0].sort().values
    even = (torch.arange(tokens, device=DEVICE) + 0.5) / tokens
    # Kolmogorov-Smirnov: by chance this far off once in a thousand.
    assert (levels - even).abs().max() < 1.95 / tokens**0.5


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("walls", [False, True])
def test_sampling_kernel_equals_the_reference(dtype, walls):
    tokens = 1000 if GPU else 12
    x, weight, bias, _ = problem(tokens, 20, 64, 550 if GPU else 12, dtype, walls)
    z = kernels.sample(x, weight, bias, 3, floor=0.2, generator=torch.Generator(DEVICE).manual_seed(1), walls=walls)
    digits = 10 if GPU else 4
    noise = torch.rand((2 + digits, 3, tokens), device=DEVICE, generator=torch.Generator(DEVICE).manual_seed(1))
    y = F.linear(x.float(), weight.float(), bias.float()).detach()
    for i in range(3):
        expected = reference.sample(y, noise[:, i], floor=0.2, walls=walls)
        # A draw that falls on the edge of two digits may go the other way.
        assert ((z[i] - expected).abs() < 1e-5).float().mean() > (0.99 if GPU else 0.9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_log_probabilities_of_all_bins(dtype):
    shape = (300, 384, 4096, 550) if GPU else (3, 20, 18, 6)
    x, weight, bias, _ = problem(*shape, dtype)
    found = kernels.log_pmf(x, weight, bias, num_bins=shape[2], floor=1e-3)
    a = F.linear(x.double(), weight.double(), bias.double()).unflatten(-1, (2, -1))
    torch.testing.assert_close(found.double(), series.log_pmf(a, shape[2], 1e-3), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("walls", [False, True])
def test_quantiles(walls):
    shape = (300, 384, 4096, 550) if GPU else (3, 20, 18, 6)
    x, weight, bias, _ = problem(*shape, torch.float32, walls)
    a = F.linear(x, weight, bias).detach().unflatten(-1, (1 if walls else 2, -1))
    q = spectrum.of_coefficients(a, 1e-3)
    levels = torch.tensor([0.0, 0.3, 1.0], device=DEVICE).expand(shape[0], -1)
    z = kernels.quantile(q, levels)
    assert (z[:, 0] == -1).all()
    assert (z[:, -1] == 1).all()
    torch.testing.assert_close(spectrum.cdf(q.double(), z.double()).float(), levels, rtol=0, atol=1e-5)
