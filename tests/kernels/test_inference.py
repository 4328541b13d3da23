"""The kernels of inference against the library's formulas: samples, log-probabilities of all bins, quantiles."""

import pytest
import torch
import torch.nn.functional as F

# Before anything of the kernels: decides between a GPU and the interpreter.
from tests.kernels.test_kernels import DEVICE, GPU, problem  # isort: skip

from fourier_head import Adaptive, Asinh, FourierDensity, FourierHead, Interval, kernels
from fourier_head.fourier import series, spectrum
from fourier_head.kernels import evaluation
from tests import kernel_reference as reference


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
    levels = spectrum.cdf(spectrum.of_coefficients(a, 0.1), z.double()[None], walls)[0].sort().values
    even = (torch.arange(tokens, device=DEVICE) + 0.5) / tokens
    # Kolmogorov-Smirnov: by chance this far off once in a thousand.
    assert (levels - even).abs().max() < 1.95 / tokens**0.5


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("walls", [False, True])
def test_sampling_kernel_equals_the_reference(dtype, walls):
    tokens = 1000 if GPU else 36
    x, weight, bias, _ = problem(tokens, 20, 64, 550 if GPU else 12, dtype, walls)
    noise = torch.rand((2 + (10 if GPU else 4), tokens), device=DEVICE)
    y = F.linear(x.float(), weight.float(), bias.float()).detach().to(dtype)
    z = evaluation.drawn(y.unflatten(-1, (1 if walls else 2, -1)), noise, 0.2)
    expected = reference.sample(y.float(), noise, floor=0.2, walls=walls)
    # A draw that falls on the edge of two digits may go the other way.
    assert ((z - expected).abs() < 1e-5).float().mean() > (0.99 if GPU else 0.9)


BRIEF, HALF, WIDE = torch.bfloat16, torch.float16, torch.float32
# (tokens, width, num_bins, num_frequencies), dtype: narrow and wide heads, odd and even bins, one tile and more
BINS = [((3, 20, 18, 6), HALF), ((5, 20, 2, 1), WIDE), ((3, 20, 19, 6), HALF), ((5, 24, 300, 12), WIDE),
        ((70, 20, 18, 14), BRIEF), ((3, 20, 301, 64), BRIEF), ((3, 20, 144, 70), WIDE), ((33, 20, 150, 65), HALF),
        ((11, 20, 272, 70), BRIEF), ((3, 20, 4096, 300), HALF)]  # fmt: skip
if GPU:
    large = [
        (300, 384, 4096, 550),
        (300, 384, 4097, 550),
        (252, 1024, 256, 32),
        (3840, 128, 18, 14),
        (77, 40, 2048, 1023),
    ]
    BINS = [(shape, dtype) for shape in large for dtype in (WIDE, HALF, BRIEF)]


@pytest.mark.parametrize(("shape", "dtype"), BINS)
def test_log_probabilities_of_all_bins(shape, dtype):
    x, weight, bias, _ = problem(*shape, dtype)
    y = F.linear(x, weight, bias).detach()
    found = kernels.log_pmf(y, num_bins=shape[2], floor=1e-3)
    expected = series.log_pmf(y.double().unflatten(-1, (2, -1)), shape[2], 1e-3)
    few = shape[3] <= evaluation.NARROW
    if dtype == WIDE or (shape[2] % 16 and not few) or (dtype == HALF and few):
        torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-4)
    else:
        # Rounded to 11 bits on the way: wide heads of a 16-bit type, and all of bfloat16, which has 8.
        error = (found.double().exp() - expected.exp()) * shape[2]
        assert error.norm() < 2e-3 * (expected.exp() * shape[2]).norm()
        assert error.abs().max() < 2e-2
        assert (found.double() - expected).abs().max() < 0.1
    torch.testing.assert_close(found.exp().sum(-1), torch.ones(shape[0], device=DEVICE), rtol=1e-3, atol=0)


@pytest.mark.parametrize(
    ("products", "close"),  # relative error of probabilities, in norm
    [(evaluation.PRODUCTS[BRIEF], 1e-3), (evaluation.PRODUCTS[HALF], 1e-5), (evaluation.PRODUCTS[WIDE], 1e-5)],
    ids=["11 bits", "22 bits", "float32"],
)
@pytest.mark.parametrize(("bins", "frequencies"), [(18, 14), (7, 0), (101, 64), (256, 32)])
def test_products_for_all_bins(bins, frequencies, products, close):
    y = awkward_rows(frequencies)
    found = torch.full((9, bins), torch.nan, device=DEVICE)
    evaluation.direct(y.unflatten(-1, (2, -1)), found, 1e-3, True, products)
    expected = series.log_pmf(y.double().unflatten(-1, (2, -1)), bins, 1e-3).exp()
    assert (found.exp() - expected).norm() < close * expected.norm()


@pytest.mark.parametrize(("bins", "frequencies"), [(256, 32), (272, 127), (512, 200), (1024, 300)])
def test_a_transform_in_two_steps_for_all_bins(bins, frequencies):
    y = awkward_rows(frequencies)
    found = torch.full((9, bins), torch.nan, device=DEVICE)
    evaluation.four_step(y.unflatten(-1, (2, -1)), found, 1e-3, log=True)
    expected = series.log_pmf(y.double().unflatten(-1, (2, -1)), bins, 1e-3).exp()
    assert (found.exp() - expected).norm() < 1e-3 * expected.norm()


def awkward_rows(frequencies):
    """Return outputs of a projection in bfloat16, among them tiny ones and one row that stands for uniform bins."""
    y = torch.randn(9, 2 * (frequencies + 1), device=DEVICE, dtype=torch.bfloat16)
    y[0] *= 1e-30
    y[1] = 0
    return y


@pytest.mark.parametrize(("bins", "frequencies"), [(18, 14), (256, 32), (1024, 64)])
def test_rounding_of_products_is_below_that_of_bfloat16_outputs(bins, frequencies):
    """Cosines of 11 bits cost less than outputs of 8 bits have cost already."""
    y = torch.randn(16, 2 * (frequencies + 1), device=DEVICE, dtype=torch.float64)
    rounded = y.to(torch.bfloat16)
    before, after = (series.log_pmf(a.double().unflatten(-1, (2, -1)), bins, 1e-3).exp() for a in (y, rounded))
    found = kernels.log_pmf(rounded, num_bins=bins, floor=1e-3).exp()
    assert (found - after).norm() < 0.25 * (after - before).norm()


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
    for z in (kernels.quantile(q, levels, spectra=True), kernels.quantile(a, levels, floor=1e-3)):
        assert (z[:, 0] == -1).all()
        assert (z[:, 1] == 1).all()
        reached = spectrum.cdf(exact, z.double(), walls).float()
        torch.testing.assert_close(reached, levels, rtol=0, atol=5e-6 if GPU else 2e-6)


@pytest.mark.parametrize(
    ("frequencies", "walls"),
    [(n, w) for n in (0, 14, 32, 64, 65, 128, 129, 550) for w in (False, True)]
    if GPU
    else [(0, False), (5, True), (32, True), (32, False), (70, True), (140, False)],
)
def test_quantiles_of_16_bit_coefficients(frequencies, walls):
    """Their grid comes from products of 11 bits: levels are reached to a few of the last of these."""
    tokens = 300 if GPU else 5
    a = torch.randn(tokens, 1 if walls else 2, frequencies + 1, device=DEVICE).to(torch.bfloat16)
    a[0] *= 1e-20
    a[1] = 0
    a[2] = 1  # all of it in one place
    levels = torch.rand(tokens, 7, device=DEVICE)
    exact = spectrum.of_coefficients(a.double(), 1e-3)
    z = kernels.quantile(a, levels, floor=1e-3)
    torch.testing.assert_close(spectrum.cdf(exact, z.double(), walls).float(), levels, rtol=0, atol=3e-4)
    for stepped in (False, True) if frequencies <= evaluation.NARROW else (True,):
        z = evaluation.quantile(evaluation.multiplied_grid(a, 1e-3, stepped), levels, walls)
        torch.testing.assert_close(spectrum.cdf(exact, z.double(), walls).float(), levels, rtol=0, atol=3e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_ordered_quantiles_are_those_of_a_density_and_never_cross(dtype):
    a = torch.randn(6, 3, 2, 9, device=DEVICE)
    a[0, 0, 0] = torch.exp(-(((torch.arange(9) - 4) / 1.5) ** 2))
    a[0, 0, :, 1::2] = 0  # two peaks with nothing between them
    a = a.to(dtype)
    levels = torch.tensor([[0.9, 0.1, 0.5], [0.5, 1.0, 0.0], [0.50001, 0.49999, 0.7]], device=DEVICE)
    fast, slow = (FourierDensity(b, Interval(2.0, 6.0), validate_args=False) for b in (a, a.double()))
    fast.impl = "fused"
    with torch.no_grad():
        z = fast.quantile(levels)
        assert fast._kept is None  # so the kernels did run
        assert z.shape == (3, 3, 6, 3)
        assert (z.flatten(0, 1)[levels.flatten().argsort()].diff(dim=0) >= 0).all()
        torch.testing.assert_close(
            slow.cdf(z.double()).float(), levels[..., None, None].expand_as(z), rtol=0, atol=3e-4
        )
        assert fast.quantile(0.5).shape == (6, 3)
        assert fast.quantile(torch.rand(33)).shape == (33, 6, 3)


@pytest.mark.parametrize(
    ("count", "walls"),
    [(n, w) for n in (1, 9, 32) for w in (False, True)] if GPU else [(1, True), (9, False), (32, True)],
)
def test_levels_in_any_order_give_the_quantiles_of_each(count, walls):
    """More rows than one program owns, the last of them not full; a level that is no number gives none."""
    tokens = 150 // count + 5
    a = torch.randn(tokens, 1 if walls else 2, 6, device=DEVICE).to(torch.bfloat16)
    levels = torch.rand(count, device=DEVICE)
    values = kernels.ordered_quantiles(a, levels, 3.0, 2.0, floor=1e-3)
    z = kernels.quantile(a, levels.expand(tokens, -1), floor=1e-3)
    torch.testing.assert_close(values, 3 + 2 * (z.t() + 1), rtol=0, atol=1e-5)
    assert (values[levels.argsort()].diff(dim=0) >= 0).all()
    levels[count // 2] = torch.nan
    missing = kernels.ordered_quantiles(a, levels, 3.0, 2.0, floor=1e-3).isnan()
    assert torch.equal(missing, levels.isnan()[:, None].expand(-1, tokens))


def test_levels_that_share_a_quantile_do_not_cross():
    """Between two peaks there is nothing: rounding decides where the quantiles of levels this close lie."""
    a = torch.zeros(20, 2, 33, device=DEVICE)
    bell = torch.exp(-(((torch.arange(33, device=DEVICE) - 16) / 6.0) ** 2))
    a[:, 0] = bell * (0.5 + torch.rand(20, 1, device=DEVICE))
    a[:, 0, 1::2] = 0
    levels = 0.5 + 1e-7 * torch.randn(32, device=DEVICE)
    values = kernels.ordered_quantiles(a.to(torch.bfloat16), levels)
    assert (values[levels.argsort()].diff(dim=0) >= 0).all()


@pytest.mark.parametrize("walls", [False, True])
def test_one_sample_per_density(walls):
    a = torch.randn(1 if walls else 2, 12, device=DEVICE).to(torch.bfloat16)
    tokens = 4000 if GPU else 400
    boundary = "reflect" if walls else "periodic"
    many = FourierDensity(a.expand(tokens, -1, -1), floor=0.1, boundary=boundary)
    many.impl = "fused"
    x, same = (many.sample(generator=torch.Generator(DEVICE).manual_seed(3)) for _ in range(2))
    assert torch.equal(x, same)
    assert FourierDensity(a[None].expand(2, -1, -1), boundary=boundary).sample((1, 1)).shape == (1, 1, 2)
    levels = spectrum.cdf(spectrum.of_coefficients(a.double(), 0.1), x.double(), walls).sort().values
    even = (torch.arange(tokens, device=DEVICE) + 0.5) / tokens
    # Kolmogorov-Smirnov: by chance this far off once in a thousand.
    assert (levels - even).abs().max() < 1.95 / tokens**0.5


def test_quantiles_of_the_two_ways_to_a_grid_agree():
    x, weight, bias, _ = problem(7, 20, 4096, 20)
    a = (F.linear(x, weight, bias).detach() * 1e-20).unflatten(-1, (2, -1))
    a[0] = 0  # uniform
    levels = torch.tensor([[0.25, 0.5, 0.9]], device=DEVICE).expand(7, -1)
    z = [evaluation.quantile(evaluation.distribution_grid(a, 0.1, narrow), levels, False) for narrow in (True, False)]
    torch.testing.assert_close(z[0][0], 2 * levels[0] - 1)
    torch.testing.assert_close(z[0], z[1], rtol=0, atol=1e-4)


def test_quantiles_of_a_density_with_holes():
    """Between two peaks with nothing between them every number is a median; none may lie outside."""
    a = torch.zeros(1, 2, 33, device=DEVICE)
    a[0, 0] = torch.exp(-(((torch.arange(33) - 16) / 6.0) ** 2))
    a[0, 0, 1::2] = 0  # peaks at 0 and at the ends
    q = spectrum.of_coefficients(a.double())
    levels = torch.linspace(0, 1, 101, device=DEVICE)[None]
    z = kernels.quantile(a, levels)
    torch.testing.assert_close(spectrum.cdf(q, z.double()).float(), levels, rtol=0, atol=5e-6 if GPU else 2e-6)
    assert (z.diff() >= 0).all()


def test_bad_arguments_of_quantiles_are_named():
    a, levels = torch.zeros(3, 2, 5, device=DEVICE), torch.zeros(3, 1, device=DEVICE)
    with pytest.raises(ValueError, match=r"^levels"):
        kernels.quantile(a, levels[:2])
    with pytest.raises(ValueError, match=r"^a: expected"):
        kernels.quantile(a[0], levels)
    with pytest.raises(TypeError, match=r"^a"):
        kernels.quantile(a.double(), levels, spectra=True)
    with pytest.raises(ValueError, match=r"^levels: expected shape \(V,\)"):
        kernels.ordered_quantiles(a, levels)
    with pytest.raises(ValueError, match=r"^a: expected at most"):
        kernels.coefficient_sample(torch.zeros(1, 2, 4097, device=DEVICE))
    assert kernels.quantile(a, levels[:, :0], spectra=True).shape == (3, 0)
    assert kernels.ordered_quantiles(a[:0], levels[0]).shape == (1, 0)
    assert kernels.coefficient_sample(a[:0]).shape == (0,)


@pytest.mark.parametrize("packets", [0, 2])
@pytest.mark.parametrize(
    "options",
    [
        {"domain": Adaptive(tails=0.01)},
        {"domain": Adaptive(tails=0.01), "boundary": "reflect"},
        {"domain": Adaptive(map=Asinh(3.0, 2.0))},
        {"domain": Adaptive.fit([1e4, 2e4])},
        {"domain": Interval(0, 4)},
    ],
    ids=str,
)
def test_inference_of_heads_that_move_and_mix(options, packets):
    options = {"num_frequencies": 6, "init_scale": 1.0, "packets": packets} | options
    fused, plain = (FourierHead(8, impl=impl, **options).to(DEVICE) for impl in ("fused", "reference"))
    plain.load_state_dict(fused.state_dict())
    x = torch.randn(3, 5, 8, device=DEVICE)
    levels = torch.tensor([0.0005, 0.1, 0.5, 0.9, 0.9995], device=DEVICE)
    close = 5e-6 if GPU else 2e-6
    with torch.no_grad():
        fast, exact = fused.density(x), plain.density(x)
        found = fast.quantile(levels)
        assert found.shape == (5, 3, 5)
        assert (found.diff(dim=0) >= 0).all()
        reached = exact.cdf(found)
        torch.testing.assert_close(reached, levels[:, None, None].expand_as(reached), rtol=0, atol=close)
        if packets == 0:
            assert fast._kept is None  # so the kernels did run
        some = torch.rand(2, 3, 5, device=DEVICE)
        torch.testing.assert_close(exact.cdf(fast.icdf(some)), some, rtol=0, atol=close)
        assert fast.sample((4,)).shape == (4, 3, 5)
        value, fast = found[3], fused.density(x)
        torch.testing.assert_close(fast.log_prob(value), exact.log_prob(value), rtol=1e-5, atol=1e-4)
        torch.testing.assert_close(fast.cdf(found), exact.cdf(found), rtol=0, atol=close)


def test_a_forecasters_densities_take_the_kernels():
    """What `forecasting/patch` asks for, behind a map of each series' own."""
    from fourier_head.forecasting.patch.multiscale import MultiscaleConfig, MultiscaleForecaster

    config = MultiscaleConfig(spans=(32,), horizon=8, patch=8, width=16, layers=1, heads=2, frequencies=5)
    model = MultiscaleForecaster(config).to(DEVICE).eval()
    past, period = torch.randn(2, 30, device=DEVICE).cumsum(-1), torch.tensor([1, 4], device=DEVICE)
    with torch.no_grad():
        model.head.impl = "fused"
        fast = model.density(past, period)
        model.head.impl = "reference"
        slow = model.density(past, period)
        levels = torch.tensor([0.001, 0.1, 0.5, 0.9], device=DEVICE)
        quantiles = fast.quantile(levels)
        torch.testing.assert_close(slow.cdf(quantiles), levels[:, None, None].expand_as(quantiles), rtol=0, atol=1e-4)
        torch.testing.assert_close(fast.cdf(quantiles[2]), slow.cdf(quantiles[2]), rtol=0, atol=1e-4)
        torch.testing.assert_close(fast.log_prob(quantiles[1]), slow.log_prob(quantiles[1]), rtol=1e-3, atol=1e-3)
        assert fast.sample((2,)).shape == (2, 2, 8)
    assert fast._kept is None  # no spectrum was made: the kernels did all of it
