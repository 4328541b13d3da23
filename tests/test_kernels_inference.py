"""The kernels of inference against the library's formulas: samples, log-probabilities of all bins, quantiles."""

import pytest
import torch
import torch.nn.functional as F

# Before anything of the kernels: decides between a GPU and the interpreter.
from tests.test_kernels import DEVICE, GPU, problem  # isort: skip

from fourier_head import kernels, series, spectrum
from fourier_head.kernels import evaluation, reference


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


HALF, WIDE = torch.float16, torch.float32
# (tokens, width, num_bins, num_frequencies), dtype: narrow and wide heads, odd and even bins, one tile and more
BINS = [((3, 20, 18, 6), HALF), ((5, 20, 2, 1), WIDE), ((3, 20, 19, 6), HALF), ((5, 24, 300, 12), WIDE),
        ((3, 20, 144, 70), WIDE), ((33, 20, 150, 65), HALF)]  # fmt: skip
if GPU:
    large = [
        (300, 384, 4096, 550),
        (300, 384, 4097, 550),
        (252, 1024, 256, 32),
        (3840, 128, 18, 14),
        (77, 40, 2048, 1023),
    ]
    BINS = [(shape, dtype) for shape in large for dtype in (WIDE, HALF, torch.bfloat16)]


@pytest.mark.parametrize(("shape", "dtype"), BINS)
def test_log_probabilities_of_all_bins(shape, dtype):
    x, weight, bias, _ = problem(*shape, dtype)
    y = F.linear(x, weight, bias).detach()
    found = kernels.log_pmf(y, num_bins=shape[2], floor=1e-3)
    expected = series.log_pmf(y.double().unflatten(-1, (2, -1)), shape[2], 1e-3)
    if dtype == torch.float32 or shape[3] < evaluation.NARROW or shape[2] % 2:
        torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-4)
    else:
        # Wide heads of a 16-bit type: rounded to 11 bits, where bfloat16 has 8.
        error = (found.double().exp() - expected.exp()) * shape[2]
        assert error.norm() < 2e-3 * (expected.exp() * shape[2]).norm()
        assert error.abs().max() < 2e-2
        assert (found.double() - expected).abs().max() < 0.1
    torch.testing.assert_close(found.exp().sum(-1), torch.ones(shape[0], device=DEVICE), rtol=1e-3, atol=0)


@pytest.mark.parametrize(
    ("frequencies", "walls"),
    [(n, w) for n in (0, 1, 14, 32, 63, 64, 550, 1023) for w in (False, True)]
    if GPU
    else [(0, False), (5, True), (64, False)],
)
def test_quantiles(frequencies, walls):
    tokens = 300 if GPU else 3
    x, weight, bias, _ = problem(tokens, 20, 4096, frequencies, torch.float32, walls)
    a = F.linear(x, weight, bias).detach().unflatten(-1, (1 if walls else 2, -1))
    q = spectrum.of_coefficients(a, 1e-3)
    exact = spectrum.of_coefficients(a.double(), 1e-3)
    levels = torch.cat([torch.tensor([[0.0, 1.0, 0.5, 1e-4]]).expand(tokens, -1), torch.rand(tokens, 5)], 1).to(DEVICE)
    for z in (kernels.quantile(q, levels), kernels.coefficient_quantile(a, levels, floor=1e-3)):
        assert (z[:, 0] == -1).all()
        assert (z[:, 1] == 1).all()
        torch.testing.assert_close(spectrum.cdf(exact, z.double()).float(), levels, rtol=0, atol=5e-6 if GPU else 2e-6)


def test_quantiles_of_the_two_ways_to_a_grid_agree():
    x, weight, bias, _ = problem(7, 20, 4096, 20)
    a = (F.linear(x, weight, bias).detach() * 1e-20).unflatten(-1, (2, -1))
    a[0] = 0  # uniform
    levels = torch.tensor([[0.25, 0.5, 0.9]], device=DEVICE).expand(7, -1)
    z = [evaluation._solve(evaluation.distribution_grid(a, 0.1, narrow), levels, False) for narrow in (True, False)]
    torch.testing.assert_close(z[0][0], 2 * levels[0] - 1)
    torch.testing.assert_close(z[0], z[1], rtol=0, atol=1e-4)


def test_quantiles_of_a_density_with_holes():
    """Between two peaks with nothing between them every number is a median; none may lie outside."""
    a = torch.zeros(1, 2, 33, device=DEVICE)
    a[0, 0] = torch.exp(-(((torch.arange(33) - 16) / 6.0) ** 2))
    a[0, 0, 1::2] = 0  # peaks at 0 and at the ends
    q = spectrum.of_coefficients(a.double())
    levels = torch.linspace(0, 1, 101, device=DEVICE)[None]
    z = kernels.coefficient_quantile(a, levels)
    torch.testing.assert_close(spectrum.cdf(q, z.double()).float(), levels, rtol=0, atol=5e-6 if GPU else 2e-6)
    assert (z.diff() >= 0).all()


def test_bad_arguments_of_quantiles_are_named():
    a, levels = torch.zeros(3, 2, 5, device=DEVICE), torch.zeros(3, 1, device=DEVICE)
    with pytest.raises(ValueError, match=r"^levels"):
        kernels.coefficient_quantile(a, levels[:2])
    with pytest.raises(ValueError, match=r"^a: expected"):
        kernels.coefficient_quantile(a[0], levels)
    with pytest.raises(TypeError, match=r"^q"):
        kernels.quantile(a.double(), levels)
    assert kernels.quantile(a, levels[:, :0]).shape == (3, 0)
