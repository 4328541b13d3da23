"""The fused kernels against the float64 reference: on a GPU where there is one, else in Triton's interpreter."""

import math

import pytest
import torch
import torch.nn.functional as F

pytest.importorskip("triton")
from benchmarks import arms
from fourier_head.fourier import series, spectrum
from fourier_head.kernels import plan
from fourier_head.training.graphs import capture
from tests import kernel_reference as reference

GPU = torch.cuda.is_available()
DEVICE = "cuda" if GPU else "cpu"
# (tokens, width, num_bins, num_frequencies)
SMALL = [(1, 5, 2, 1), (17, 33, 18, 7), (3, 16, 64, 40)]
LARGE = [
    (1, 128, 2, 1), (17, 33, 2048, 1023), (252, 384, 4096, 550), (252, 40, 18, 14), (1000, 1000, 8, 7),
    (252, 1024, 2**20, 1023), (4096, 384, 600, 550), (3840, 128, 18, 14),
]  # fmt: skip
SHAPES = LARGE if GPU else SMALL


def problem(tokens, width, num_bins, num_frequencies, dtype=torch.float32, walls=False, bias=True):
    generator = torch.Generator().manual_seed(tokens + num_frequencies)
    outputs = (num_frequencies + 1) * (1 if walls else 2)

    def draw(*shape):
        return torch.randn(shape, generator=generator).to(DEVICE, dtype)

    x = draw(tokens, width).requires_grad_()
    weight = (draw(outputs, width) / width**0.5).requires_grad_()
    target = torch.randint(0, num_bins, (tokens,), generator=generator).to(DEVICE)
    return x, weight, draw(outputs).requires_grad_() if bias else None, target


def gradients(function, tensors, upstream=None):
    tensors = [t for t in tensors if t is not None]
    loss = function(*tensors)
    if upstream is None:
        upstream = torch.linspace(0.5, 1.5, loss.numel()).view(loss.shape).to(loss)
    return loss.detach(), torch.autograd.grad(loss, tensors, upstream.to(loss.dtype))


def distance(found, expected):
    return [((a.double() - b).norm() / b.norm().clamp_min(1e-30)).item() for a, b in zip(found, expected, strict=True)]


def compare(fused, exact, tensors, tolerance, loss_tolerance=1e-5):
    loss, grads = gradients(fused, tensors)
    wide = [None if t is None else t.detach().double().requires_grad_() for t in tensors]
    expected, expected_grads = gradients(exact, wide)
    torch.testing.assert_close(loss.double(), expected, rtol=loss_tolerance, atol=loss_tolerance * 10)
    assert all(math.isfinite(g.double().norm()) for g in grads)
    assert max(distance(grads, expected_grads)) < tolerance, distance(grads, expected_grads)


TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 2e-3}


def compare_with_reference(tensors, target, **options):
    """Compare the loss of bin ids, and its gradients, at the tolerance of the type of the features."""
    compare(
        lambda *t: arms.kernel_nll(*t, target, **options),
        lambda *t: reference.cross_entropy(*t, target, **options),
        tensors,
        TOLERANCE[tensors[0].dtype],
    )


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("shape", SHAPES)
def test_cross_entropy_and_gradients_equal_the_reference(shape, dtype):
    x, weight, bias, target = problem(*shape, dtype)
    target[2::5] = -100
    compare_with_reference((x, weight, bias), target, num_bins=shape[2], floor=1e-3, reduction="mean")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("walls", [False, True])
@pytest.mark.parametrize(
    ("reduction", "extra"), [("none", "rough"), ("sum", "weighted"), ("mean", "weighted"), ("mean", "rough")]
)
def test_options(dtype, walls, reduction, extra):
    shape = (70, 200, 90, 80) if GPU else (9, 20, 18, 12)
    x, weight, bias, target = problem(*shape, dtype, walls)
    target[::4] = 77
    options = {"num_bins": shape[2], "reduction": reduction, "walls": walls, "floor": 0.02, "ignore_index": 77}
    if extra == "weighted":
        options["class_weight"] = torch.rand(shape[2]).to(DEVICE)
    if extra == "rough":
        options |= {"penalty": 1e-3, "points": 2, "offsets": torch.rand(shape[0]).to(DEVICE)}
    compare_with_reference((x, weight, bias), target, **options)


@pytest.mark.parametrize("walls", [False, True])
@pytest.mark.parametrize("penalty", [0.0, 1e-3])
@pytest.mark.parametrize(
    "shape", [(9, 20, 18, 12), (5, 40, 64, 40)] if not GPU else [(9000, 384, 4096, 550), (70, 200, 90, 80)]
)
def test_rows_that_stay_on_the_chip(shape, penalty, walls, monkeypatch):
    """The kernel that projects and evaluates, at sizes where it would not be chosen."""
    monkeypatch.setattr(plan, "FEW_TOKENS", 0)
    monkeypatch.setattr(plan, "SMALL", 0)
    x, weight, bias, target = problem(*shape, torch.float16, walls)
    target[1::3] = -100
    options = {"num_bins": shape[2], "floor": 0.02, "reduction": "sum", "walls": walls}
    if penalty:
        options |= {"penalty": penalty, "points": 1, "offsets": torch.rand(shape[0]).to(DEVICE)}
    compare_with_reference((x, weight, bias), target, **options)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("walls", [False, True])
def test_density_nll(dtype, walls):
    shape = (252, 200, 4096, 550) if GPU else (5, 20, 64, 20)
    x, weight, bias, _ = problem(*shape, dtype, walls)
    value = (2 * torch.rand(shape[0]) - 1).to(DEVICE)
    compare(
        lambda *t: arms.kernel_nll(*t, value, floor=1e-3, reduction="sum", walls=walls),
        lambda *t: reference.density_nll(*t, value, floor=1e-3, reduction="sum", walls=walls),
        (x, weight, bias), TOLERANCE[dtype],
    )  # fmt: skip


def test_missing_values_do_not_count_and_those_outside_count_as_the_nearest_end():
    x, weight, _, target = problem(6, 20, 18, 7)
    value = torch.tensor([0.1, math.nan, -1.0, 1.0, 1.5, 0.0], device=DEVICE)
    loss = arms.kernel_nll(x, weight, None, value)
    assert loss[1] == 0
    torch.testing.assert_close(loss, arms.kernel_nll(x, weight, None, value.clamp(-1, 1)))
    target[3] = 18
    assert arms.kernel_nll(x, weight, None, target, num_bins=18).isnan().tolist() == [i == 3 for i in range(6)]


def test_reference_equals_the_series():
    x, weight, bias, target = problem(7, 20, 18, 7, torch.float64)
    a = F.linear(x, weight, bias).unflatten(-1, (2, -1))
    found = reference.cross_entropy(x, weight, bias, target, num_bins=18, floor=0.1, reduction="none")
    torch.testing.assert_close(found, -series.log_bin_mass(a, target, 18, 0.1))
    value = 2 * torch.rand(7, dtype=torch.float64, device=DEVICE) - 1
    found = reference.density_nll(x, weight, bias, value, floor=0.1, reduction="none")
    torch.testing.assert_close(found, -series.log_density(a, value[:, None], 0.1)[:, 0])
    torch.testing.assert_close(reference.roughness(x, weight, bias), spectrum.roughness(spectrum.of_coefficients(a)))


def test_the_paper_taken_literally_gives_the_same_loss():
    problem = arms.Problem(6, 20, 18, 7, torch.float32, bias=True, device=DEVICE)
    torch.testing.assert_close(arms.paper(problem), arms.plain(problem))
    torch.testing.assert_close(arms.paper(problem), arms.fused(problem))


def test_roughness_estimate_has_the_integral_as_its_mean():
    x, weight, bias, _ = problem(5, 20, 18, 6, torch.float64)
    exact = reference.roughness(x, weight, bias)
    shifts = (torch.arange(64, device=DEVICE).double() + 0.5) / 64
    samples = [reference.roughness(x, weight, bias, s.expand(5), points=1) for s in shifts]
    torch.testing.assert_close(torch.stack(samples).mean(0), exact)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("scale", [2.0**-100, 2.0**100, 0.0])
def test_scale_of_the_coefficients_does_not_matter(dtype, scale):
    x, weight, _, target = problem(9, 20, 64, 20, dtype, bias=False)
    scaled = (weight.detach() * scale).requires_grad_()
    options = {"num_bins": 64, "floor": 1e-3, "reduction": "mean"}
    loss, (grad_x, grad_weight) = gradients(lambda x, w: arms.kernel_nll(x, w, None, target, **options), (x, scaled))
    if scale == 0:
        assert abs(loss.item() - math.log(64)) < 1e-5
        assert grad_x.norm() == 0
        assert grad_weight.norm() == 0
        return
    expected, (expected_x, expected_weight) = gradients(
        lambda x, w: arms.kernel_nll(x, w, None, target, **options), (x, weight)
    )
    tolerance = 1e-4 if dtype == torch.float32 else 2e-2
    torch.testing.assert_close(loss, expected)
    found, exact = [grad_x, grad_weight.double() * scale], [expected_x.double(), expected_weight.double()]
    assert max(distance(found, exact)) < tolerance


@pytest.mark.parametrize(("tokens", "reduction"), [(9, "mean"), (0, "sum")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_nothing_counted_costs_nothing(dtype, tokens, reduction):
    x, weight, bias, _ = problem(9, 20, 18, 7, dtype)
    none = torch.full((tokens,), -100, device=DEVICE)
    loss, grads = gradients(
        lambda x, w, b: arms.kernel_nll(x[:tokens], w, b, none, num_bins=18, reduction=reduction), (x, weight, bias)
    )
    assert loss == 0
    assert all(g.norm() == 0 for g in grads)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_strided_inputs_frozen_weights_and_repeated_backward(dtype):
    x, weight, bias, target = problem(34, 40, 18, 16, dtype)
    x = x.detach()[::2, ::2].requires_grad_()
    weight, bias, target = weight.detach()[:, ::2], bias.detach(), target[::2]
    loss = arms.kernel_nll(x, weight, bias, target, num_bins=18, reduction="sum")
    (first,) = torch.autograd.grad(loss, x, retain_graph=True)
    (second,) = torch.autograd.grad(loss, x)
    torch.testing.assert_close(first, second, rtol=0, atol=0)
    wide = x.detach().double().requires_grad_()
    exact = reference.cross_entropy(wide, weight.double(), bias.double(), target, num_bins=18, reduction="sum")
    assert max(distance([first], torch.autograd.grad(exact, wide))) < TOLERANCE[dtype]


def test_evaluation_keeps_nothing():
    x, weight, bias, target = problem(9, 20, 18, 7, torch.float16)
    with torch.no_grad():
        loss = arms.kernel_nll(x, weight, bias, target, num_bins=18)
    assert not loss.requires_grad
    expected = reference.cross_entropy(
        x.double(), weight.double(), bias.double(), target, num_bins=18, reduction="none"
    )
    torch.testing.assert_close(loss.double(), expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=["projected before", "kept on the chip"])
def test_compiled_graph_has_no_break(dtype):
    x, weight, bias, target = problem(9, 20, 18, 7, dtype)
    assert plan.is_resident(x, 8) == (dtype == torch.float16)

    def loss(x, weight, bias):
        return arms.kernel_nll(x, weight, bias, target, num_bins=18, reduction="mean") * 2

    plain, grads = gradients(loss, (x, weight, bias))
    compiled, compiled_grads = gradients(torch.compile(loss, backend="aot_eager", fullgraph=True), (x, weight, bias))
    torch.testing.assert_close(compiled, plain)
    assert max(distance(compiled_grads, [g.double() for g in grads])) < 1e-6


def test_paths_are_those_the_shapes_should_take():
    def like(tokens, width, dtype=torch.bfloat16):
        return torch.empty(tokens, width, dtype=dtype, device="meta")

    assert plan.is_small(3840, 128, 15)
    assert not plan.is_small(16384, 384, 15)
    assert not plan.is_small(3840, 128, 551)
    assert plan.is_resident(like(16384, 384), 551)
    assert not plan.is_resident(like(1000, 384), 551)
    assert not plan.is_resident(like(16384, 4096), 129)
    assert not plan.is_resident(like(16384, 384, torch.float32), 551)
    assert plan.Score("nll", "bins", 551, 4096).padded == 552


@pytest.mark.gpu
def test_bfloat16_is_as_exact_as_a_linear_head():
    tokens, width, num_bins, frequencies = 16384, 384, 4096, 550
    x, weight, _, target = problem(tokens, width, num_bins, frequencies, torch.bfloat16, bias=False)
    _, found = gradients(
        lambda x, w: arms.kernel_nll(x, w, None, target, num_bins=num_bins, floor=1e-3, reduction="mean"), (x, weight)
    )
    wide = [t.detach().double().requires_grad_() for t in (x, weight)]
    parts = []
    for rows in torch.arange(tokens, device=DEVICE).split(2048):
        parts.append(gradients(
            lambda x, w, rows=rows: reference.cross_entropy(
                x[rows], w, None, target[rows], num_bins=num_bins, floor=1e-3, reduction="sum") / tokens, wide
        )[1])  # fmt: skip
    ours = distance(found, [sum(p[i] for p in parts) for i in range(2)])
    linear = (torch.randn(num_bins, width, device=DEVICE, dtype=torch.bfloat16) / width**0.5).requires_grad_()
    _, found = gradients(lambda x, w: F.cross_entropy(F.linear(x, w), target), (x, linear))
    wide = [t.detach().double().requires_grad_() for t in (x, linear)]
    _, exact = gradients(lambda x, w: F.cross_entropy(F.linear(x, w), target), wide)
    theirs = distance(found, exact)
    assert max(ours) < 1.5 * max(theirs), (ours, theirs)


@pytest.mark.gpu
def test_autocast_and_checkpoints():
    x, weight, bias, target = problem(300, 384, 64, 40)

    def loss(x, weight, bias):
        return arms.kernel_nll(x, weight, bias, target, num_bins=64, reduction="mean")

    with torch.autocast("cuda", torch.bfloat16):
        value, grads = gradients(loss, (x, weight, bias), torch.ones((), device=DEVICE))
        again = torch.utils.checkpoint.checkpoint(loss, x, weight, bias, use_reentrant=False)
    assert [g.dtype for g in grads] == [torch.float32] * 3
    exact, exact_grads = gradients(loss, (x, weight, bias), torch.ones((), device=DEVICE))
    assert abs(value - exact) < 1e-2
    assert max(distance(grads, [g.double() for g in exact_grads])) < 0.05
    checkpointed = torch.autograd.grad(again, (x, weight, bias))
    assert max(distance(checkpointed, [g.double() for g in grads])) < 1e-6


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [(300, 384, 64, 40), (9000, 384, 64, 40), (300, 64, 18, 7)])
def test_cuda_graph(shape):
    x, weight, _, target = problem(*shape, torch.bfloat16, bias=False)
    upstream = torch.ones((), device=DEVICE)

    def step():
        loss = arms.kernel_nll(x, weight, None, target, num_bins=shape[2], reduction="mean")
        return loss.detach(), *torch.autograd.grad(loss, (x, weight), upstream)

    replay, captured = capture(step)
    with torch.no_grad():
        x.copy_(torch.randn_like(x))
    replay()
    for replayed, fresh in zip(captured, step(), strict=True):
        torch.testing.assert_close(replayed, fresh, rtol=1e-2, atol=1e-5)
