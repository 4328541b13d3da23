"""Losses of projected rows, one kernel each, against the float64 reference: every domain, packets, walls and atoms."""

import math
from dataclasses import replace

import pytest
import torch

pytest.importorskip("triton")

from fourier_head import Adaptive, Circle, FourierHead, Interval, Line
from fourier_head.kernels import launch, matrices, plan, resident, rowwise
from fourier_head.training.graphs import capture

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
TOLERANCE = {torch.float32: 5e-5, torch.bfloat16: 2e-2, torch.float16: 3e-3}


def pair(width=8, dtype=torch.float32, **options):
    """Return a head of the kernels and the same head as the reference in float64."""
    options = {"init_scale": 1.0, "floor": 1e-3} | options
    torch.manual_seed(0)
    fused = FourierHead(width, impl="fused", **options).to(DEVICE, dtype)
    plain = FourierHead(width, impl="reference", **options).to(DEVICE).double()
    plain.load_state_dict(fused.state_dict())
    return fused, plain


def gradients(head, loss, x, upstream=None):
    """Return the loss of a head and its gradients of inputs and parameters."""
    x = x.detach().to(head.proj.weight.dtype).requires_grad_()
    found = loss(head, x)
    if upstream is None:
        upstream = torch.linspace(0.5, 1.5, found.numel(), device=DEVICE).view(found.shape)
    return [found.detach(), *torch.autograd.grad(found, [x, *head.parameters()], upstream.to(found))]


def compare(fused, plain, loss, x, tolerance=None):
    tolerance = tolerance or TOLERANCE[fused.proj.weight.dtype]
    for a, b in zip(gradients(fused, loss, x), gradients(plain, loss, x), strict=True):
        assert a.shape == b.shape
        assert (a.double() - b).norm() <= tolerance * b.norm() + 1e-9, ((a.double() - b).norm() / b.norm(), a, b)


BINS = {"num_bins": 18, "num_frequencies": 6}


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize(
    "options",
    [
        {"packets": 1},
        {"packets": 3, "boundary": "reflect"},
        {"packets": 2, "num_atoms": 3, "num_frequencies": 5, "bias": False},
        {"num_atoms": 3},
        {"num_atoms": 1, "boundary": "reflect"},
    ],
    ids=str,
)
def test_bins(options, reduction):
    fused, plain = pair(**BINS | options)
    classes = fused.layout.num_classes
    x, target = torch.randn(2, 9, 8, device=DEVICE), torch.randint(classes, (2, 9), device=DEVICE)
    target[0, :3] = torch.tensor([-100, 0, classes - 1])
    weight = torch.rand(classes, device=DEVICE)
    compare(fused, plain, lambda h, x: h.loss(x, target, reduction=reduction), x)
    compare(fused, plain, lambda h, x: h.loss(x, target, reduction=reduction, weight=weight.to(x)), x)


DOMAINS = {
    "interval": (Interval(-2, 6), lambda u: 8 * u - 2),
    "circle": (Circle(24.0), lambda u: 48 * u - 7),
    "line": (Line(1.0, 3.0), lambda u: 20 * u - 10),
    "adaptive": (Adaptive(tails=0.02), lambda u: 14 * u - 7),
    "fitted": (Adaptive.fit([100.0, 180.0]), lambda u: 300 * u),
    "anchored": (Adaptive(anchored=True), lambda u: 14 * u - 7),
}
MIXES = [{}, {"packets": 2}, {"boundary": "reflect"}, {"packets": 1, "boundary": "reflect"}, {"num_atoms": 2, **BINS}]


def values_of(name, options):
    """Return heads, features, values and options of a call; some values and guesses are missing or infinite."""
    domain, draw = DOMAINS[name]
    if name == "circle" and options.get("boundary"):
        pytest.skip("a circle has no walls")
    if name in ("adaptive", "fitted", "anchored"):  # no bins are laid over these
        options = {k: v for k, v in options.items() if k != "num_bins"}
    fused, plain = pair(**{"num_frequencies": 6, "domain": domain, "boundary": "periodic"} | options)
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(3, 7, 8, generator=generator).to(DEVICE)
    value = draw(torch.rand(3, 7, generator=generator)).to(DEVICE)
    value[0, 0] = math.nan
    more = {"anchor": draw(torch.rand(3, 7, generator=generator)).to(DEVICE)} if name == "anchored" else {}
    if isinstance(domain, Adaptive):
        value[0, 1], value[0, 2] = math.inf, -math.inf
    for guess in more.values():
        guess[0, 0] = guess[0, 3] = math.nan
    return fused, plain, x, value, more


@pytest.mark.parametrize("options", MIXES, ids=str)
@pytest.mark.parametrize("name", DOMAINS)
def test_likelihood_of_values(name, options):
    fused, plain, x, value, more = values_of(name, options)
    for reduction in ("mean", "none"):
        compare(fused, plain, lambda h, x: h.nll(x, value, reduction=reduction, **more), x)  # noqa: B023


@pytest.mark.parametrize("options", [m for m in MIXES if "packets" not in m], ids=str)
@pytest.mark.parametrize("name", [n for n in DOMAINS if n != "line"])
def test_ranked_score(name, options):
    fused, plain, x, value, more = values_of(name, options)
    for reduction in ("mean", "none"):
        compare(fused, plain, lambda h, x: h.crps(x, value, reduction=reduction, **more), x)  # noqa: B023


@pytest.mark.parametrize(
    ("options", "loss"),
    [
        ({"domain": Adaptive(tails=0.02)}, lambda h, x, v: h.nll(x, v)),
        ({"domain": Interval(-7, 7)}, lambda h, x, v: h.crps(x, v)),
        ({**BINS, "packets": 1, "num_atoms": 1}, lambda h, x, v: h.loss(x, v.abs().long())),
    ],
    ids=["adaptive nll", "crps", "packets and atoms"],
)
def test_compiled_without_a_break(options, loss):
    fused, _ = pair(**{"num_frequencies": 4} | options)
    compiled = torch.compile(loss, backend="aot_eager", fullgraph=True, dynamic=True)
    for rows in (5, 9):
        x, value = torch.randn(rows, 8, device=DEVICE), 3 * torch.randn(rows, device=DEVICE)
        found = gradients(fused, lambda h, x: compiled(h, x, value), x)  # noqa: B023
        for a, b in zip(found, gradients(fused, lambda h, x: loss(h, x, value), x), strict=True):  # noqa: B023
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


def test_operators_name_their_arguments_apart():
    """Compilers pass arguments by name: two of one name are one of them twice."""
    from fourier_head.kernels import ops

    for operator in (ops._loss, ops._gradients):
        names = [argument.name for argument in operator._opoverload._schema.arguments]
        assert len(set(names)) == len(names), names


def test_a_second_pass_back_and_outputs_without_a_projection():
    fused, plain = pair(domain=Adaptive(), num_frequencies=4)
    x, value = torch.randn(9, 8, device=DEVICE), 3 * torch.randn(9, device=DEVICE)
    loss = fused.nll(x, value)
    first = torch.autograd.grad(loss, fused.proj.weight, retain_graph=True)[0].clone()
    torch.testing.assert_close(torch.autograd.grad(loss, fused.proj.weight)[0], first)
    for kind in ("nll", "crps"):
        compare(fused, plain, lambda h, x: h.values_loss_of(h.proj(x), value.to(x.dtype), kind=kind), x)  # noqa: B023


def test_everything_missing_costs_nothing():
    fused, _ = pair(domain=Adaptive(), num_frequencies=4)
    missing = torch.full((5,), math.nan, device=DEVICE)
    for loss in (lambda h, x: h.nll(x, missing), lambda h, x: h.crps(x, missing)):
        assert all(float(t.abs().sum()) == 0 for t in gradients(fused, loss, torch.randn(5, 8, device=DEVICE)))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_types_in_turn(dtype):
    """Kernels compiled for one type must not serve another."""
    fused, plain = pair(dtype=dtype, domain=Adaptive(tails=0.02), num_frequencies=6)
    x, value = torch.randn(40, 8, device=DEVICE).to(dtype), 3 * torch.randn(40, device=DEVICE)
    compare(fused, plain, lambda h, x: h.nll(x, value, reduction="sum"), x)
    compare(fused, plain, lambda h, x: 100 * h.crps(x, value), x)


LOSSES = {
    "bins": (BINS, lambda h, x, v, **o: h.loss(x, v.abs().long(), **o)),
    "atoms": ({**BINS, "num_atoms": 2}, lambda h, x, v, **o: h.loss(x, v.abs().long(), **o)),
    "nll": ({"domain": Adaptive(tails=0.02), "num_frequencies": 6}, lambda h, x, v, **o: h.nll(x, v, **o)),
    "crps": ({"domain": Interval(-9, 9), "num_frequencies": 6}, lambda h, x, v, **o: h.crps(x, v, **o)),
}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", LOSSES)
def test_one_loss_per_row_in_16_bits(name, dtype):
    """What arrives from above is float32 and may lie anywhere: strided, one number for all, zero for some."""
    options, loss = LOSSES[name]
    fused, plain = pair(dtype=dtype, **options)
    x, value = torch.randn(10, 8, device=DEVICE).to(dtype), 3 * torch.randn(10, device=DEVICE)
    drawn = torch.rand(20, device=DEVICE)
    for upstream in (drawn[::2], drawn[:1].expand(10), (drawn[:10] > 0.5).float()):
        found, exact = (
            gradients(head, lambda h, x: loss(h, x, value, reduction="none"), x, upstream) for head in (fused, plain)
        )
        assert [t.dtype for t in found[1:]] == [dtype] * 3
        for a, b in zip(found, exact, strict=True):
            assert (a.double() - b).norm() <= TOLERANCE[dtype] * b.norm() + 1e-9


@pytest.mark.parametrize("name", LOSSES)
def test_gradients_of_some_inputs_are_those_of_all(name):
    options, loss = LOSSES[name]
    fused, _ = pair(dtype=torch.bfloat16, **options)
    value = 3 * torch.randn(10, device=DEVICE)
    x = torch.randn(10, 8, device=DEVICE, dtype=torch.bfloat16, requires_grad=True)
    inputs = (x, *fused.parameters())
    for reduction in ("none", "mean"):
        whole = torch.autograd.grad(loss(fused, x, value, reduction=reduction).sum(), inputs)
        for one, expected in zip(inputs, whole, strict=True):
            for other in inputs:
                other.requires_grad_(other is one)
            (found,) = torch.autograd.grad(loss(fused, x, value, reduction=reduction).sum(), one)
            torch.testing.assert_close(found, expected, rtol=1e-2, atol=1e-4)
        for other in inputs:
            other.requires_grad_()


@pytest.mark.parametrize("name", LOSSES)
def test_autocast_keeps_the_types_of_parameters(name):
    options, loss = LOSSES[name]
    fused, plain = pair(**options)
    x, value = torch.randn(10, 8, device=DEVICE), 3 * torch.randn(10, device=DEVICE)

    def cast(head, x):
        with torch.autocast(DEVICE, torch.bfloat16, enabled=head is fused):
            return loss(head, x, value, reduction="none")

    found, exact = gradients(fused, cast, x), gradients(plain, cast, x)
    assert [t.dtype for t in found] == [torch.float32] * 4
    for a, b in zip(found, exact, strict=True):
        assert (a.double() - b).norm() <= 4e-2 * b.norm()


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["nll", "crps"])
def test_replayed_from_a_graph(kind):
    fused, _ = pair(width=64, dtype=torch.bfloat16, domain=Adaptive(), num_frequencies=15)
    x = torch.randn(5000, 64, device=DEVICE, dtype=torch.bfloat16, requires_grad=True)
    value = 3 * torch.randn(5000, device=DEVICE)
    upstream = torch.ones((), device=DEVICE)

    def step():
        loss = getattr(fused, kind)(x, value)
        return loss.detach(), *torch.autograd.grad(loss, (x, fused.proj.weight), upstream)

    replay, captured = capture(step)
    value.copy_(torch.randn_like(value))
    for _ in range(2):
        replay()
    for replayed, fresh in zip(captured, step(), strict=True):
        torch.testing.assert_close(replayed, fresh, rtol=0, atol=0)  # sums are added up in one order always


@pytest.mark.gpu
def test_streams_do_not_share_their_sums():
    fused, _ = pair(width=64, domain=Adaptive(), num_frequencies=15)
    x, values = torch.randn(20000, 64, device=DEVICE), [torch.randn(20000, device=DEVICE) * s for s in (1, 2, 3)]
    with torch.no_grad():
        expected = [fused.nll(x, value) for value in values]
        torch.cuda.synchronize()
        streams, found = [torch.cuda.Stream() for _ in values], []
        for _ in range(10):
            for stream, value in zip(streams, values, strict=True):
                with torch.cuda.stream(stream):
                    found.append(fused.nll(x, value))
        torch.cuda.synchronize()
    assert all(torch.equal(a, expected[i % 3]) for i, a in enumerate(found))


# Every loss has met both types of 16 bits above (one loss per row); here each meets one of them.
@pytest.mark.parametrize(
    ("name", "dtype"), zip(LOSSES, 2 * (torch.float16, torch.bfloat16), strict=True), ids=lambda v: str(v)
)
def test_both_products_of_few_tokens_in_one_kernel(name, dtype, monkeypatch):
    """More rows than one program takes, features that fill no block, and gradients of some inputs alone."""
    monkeypatch.setattr(rowwise, "FEW_NUMBERS", 1 << 20)
    options, loss = LOSSES[name]
    fused, plain = pair(width=20, dtype=dtype, **options)
    monkeypatch.setattr(plan, "RESIDENT_WIDTH", 0)  # so that bins take the row kernel, too
    x, value = torch.randn(70, 20, device=DEVICE).to(dtype), 3 * torch.randn(70, device=DEVICE)
    for reduction in ("none", "mean"):
        compare(fused, plain, lambda h, x: loss(h, x, value, reduction=reduction), x)  # noqa: B023
    fused.proj.weight.requires_grad_(False)
    x = x.requires_grad_()
    some = torch.autograd.grad(loss(fused, x, value), (x, fused.proj.bias))
    fused.proj.weight.requires_grad_(True)
    whole = torch.autograd.grad(loss(fused, x, value), (x, fused.proj.bias))
    assert all(torch.equal(a, b) for a, b in zip(some, whole, strict=True))


@pytest.mark.parametrize(
    ("name", "dtype"), [("atoms", torch.float16), ("nll", torch.bfloat16), ("packets", torch.float16)]
)
def test_few_rows_are_projected_by_the_kernel_of_their_likelihood(name, dtype, monkeypatch):
    """Features that fill no block, strides of their own, and a bias; nothing else multiplies going forward."""
    packets = ({**BINS, "packets": 2}, LOSSES["bins"][1])
    options, loss = {**LOSSES, "packets": packets}[name]
    fused, plain = pair(width=20, dtype=dtype, **options)
    value = 3 * torch.randn(21, device=DEVICE)
    monkeypatch.setattr(rowwise, "product", None)
    for x in (torch.randn(21, 20, device=DEVICE), torch.randn(21, 24, device=DEVICE)[:, :20]):
        for reduction in ("none", "mean"):
            compare(fused, plain, lambda h, x: loss(h, x, value, reduction=reduction), x.to(dtype))  # noqa: B023


@pytest.mark.parametrize(("name", "dtype"), [("bins", torch.float16), ("bins", torch.float32), ("nll", torch.bfloat16)])
def test_products_of_rows_that_fill_whole_vectors(name, dtype, monkeypatch):
    """Outputs whose number is no multiple of eight; all gradients, then those of some inputs alone."""
    monkeypatch.setattr(rowwise, "FEW_NUMBERS", 0)
    monkeypatch.setattr(rowwise, "PADDED_FROM", 0)
    monkeypatch.setattr(plan, "RESIDENT_WIDTH", 0)
    options, loss = LOSSES[name]
    fused, plain = pair(width=20, dtype=dtype, **options | {"num_frequencies": 8})
    assert fused.proj.weight.shape[0] % 8
    x, value = torch.randn(30, 20, device=DEVICE).to(dtype), 3 * torch.randn(30, device=DEVICE)
    for reduction in ("none", "mean"):
        compare(fused, plain, lambda h, x: loss(h, x, value, reduction=reduction), x)  # noqa: B023
    x, weight = x.requires_grad_(), fused.proj.weight
    whole = torch.autograd.grad(loss(fused, x, value), (x, weight))
    assert torch.equal(torch.autograd.grad(loss(fused, x, value), weight)[0], whole[1])
    weight.requires_grad_(False)
    assert torch.equal(torch.autograd.grad(loss(fused, x, value), x)[0], whole[0])

    def watched(site, tensors, launch=launch.launch):
        assert site.grid[0], "a launch of no programs"
        launch(site, tensors)

    monkeypatch.setattr(matrices, "launch", watched)  # of the bias alone there is nothing to multiply
    assert torch.autograd.grad(loss(fused, x.detach(), value), fused.proj.bias)[0].isfinite().all()


@pytest.fixture
def anew():
    """Choose blocks anew, before and after, where a test changes what they depend on."""
    caches = rowwise.blocks_of, rowwise._site, rowwise._product_sites
    for cache in caches:
        cache.cache_clear()
    yield
    for cache in caches:
        cache.cache_clear()


@pytest.mark.parametrize(("name", "projects"), [("bins", True), ("bins", False), ("nll", False), ("packets", False)])
@pytest.mark.usefixtures("anew")
def test_both_products_of_many_tokens_block_after_block(name, projects, monkeypatch):
    monkeypatch.setattr(plan, "FEW_TOKENS", 32)
    monkeypatch.setattr(rowwise, "PRODUCTS", 2)
    monkeypatch.setattr(rowwise, "MANY_BLOCKS", (32, 128, 8, 3))  # two for each program: rows take the interpreter long
    monkeypatch.setattr(rowwise, "LIKELIHOODS", 16)
    monkeypatch.setattr(plan, "RESIDENT_WIDTH", 0)
    options, loss = {**LOSSES, "packets": ({**BINS, "packets": 2}, LOSSES["bins"][1])}[name]
    if projects:
        monkeypatch.setattr(rowwise, "product", None)  # the kernel of the likelihood multiplies, too
    else:
        monkeypatch.setattr(rowwise, "MANY_WIDTH", 0)
    fused, plain = pair(width=20, dtype=torch.bfloat16, **options)
    # Three blocks, the last not full, for two programs: one of them has a second block.
    x, value = torch.randn(70, 20, device=DEVICE).bfloat16(), 3 * torch.randn(70, device=DEVICE)
    for reduction in ("none", "mean"):
        compare(fused, plain, lambda h, x: loss(h, x, value, reduction=reduction), x)  # noqa: B023


@pytest.mark.parametrize("few", [True, False])
@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({"domain": Adaptive()}, "nll"),
        ({"domain": Interval(-9, 9), "boundary": "reflect", "num_frequencies": 70}, "nll"),
        ({"num_bins": 300, "packets": 2, "num_atoms": 1}, "loss"),
    ],
    ids=str,
)
@pytest.mark.usefixtures("anew")
def test_rows_held_in_a_tile_and_a_tail(options, kind, few, monkeypatch):
    monkeypatch.setattr(plan, "FEW_TOKENS", 1000 if few else 1)
    fused, plain = pair(**{"num_frequencies": 140} | options)
    x, value = torch.randn(6, 8, device=DEVICE), 3 * torch.randn(6, device=DEVICE)
    target = value if kind == "nll" else torch.randint(301, (6,), device=DEVICE)
    # On a card float32 divides to two places: at 140 harmonics that of a value in half widths is 1e-4 of a phase.
    for reduction in ("none", "mean"):
        compare(fused, plain, lambda h, x: getattr(h, kind)(x, target, reduction=reduction), x, 2e-4)  # noqa: B023
    asked = score_of(fused, lambda h, x, value: getattr(h, kind)(x, target), x, value)
    assert rowwise.tiles_of(asked) == (128, 16)


@pytest.mark.parametrize(("rows", "steps"), [(1, 1), (2, 3), (4, 8)])
@pytest.mark.parametrize("name", ["bins", "atoms", "nll"])
def test_blocks_of_any_size_give_the_same(name, rows, steps, monkeypatch):
    """Rows one by one or together, more or fewer than there are."""
    monkeypatch.setattr(plan, "RESIDENT_WIDTH", 0)  # so that bins take this kernel, too
    options, loss = LOSSES[name]
    fused, plain = pair(**options)
    x, value = torch.randn(10, 8, device=DEVICE), 3 * torch.randn(10, device=DEVICE)
    chosen = replace(rowwise.blocks_of(score_of(fused, loss, x, value), len(x)), rows=rows, steps=steps)
    monkeypatch.setattr(rowwise, "blocks_of", lambda *_: chosen)
    rowwise._site.cache_clear()
    for reduction in ("none", "mean"):
        compare(fused, plain, lambda h, x: loss(h, x, value, reduction=reduction), x)  # noqa: B023
    rowwise._site.cache_clear()


def score_of(head, loss, x, value):
    """Return the last score that a loss of the head asks the kernels for."""
    asked = []
    with pytest.MonkeyPatch.context() as patch:
        forward = rowwise.forward
        patch.setattr(rowwise, "forward", lambda *args: asked.append(args[7]) or forward(*args))
        loss(head, x, value)
    return asked[-1]


@pytest.mark.parametrize("few", [0, 1 << 20])
@pytest.mark.parametrize("name", LOSSES)
def test_launches_have_their_arguments_in_the_order_of_the_kernel(name, few, monkeypatch):
    """Compiled kernels are given tensors, numbers and constants by place, not by name; reals are never integers."""
    seen = []

    def watched(site, tensors, launch=launch.launch):
        seen.append((site.kernel.arg_names, len(tensors), site.numbers, list(site.constants)))
        launch(site, tensors)

    for module in (matrices, resident, rowwise):
        monkeypatch.setattr(module, "launch", watched)
    monkeypatch.setattr(rowwise, "FEW_NUMBERS", few)
    monkeypatch.setattr(rowwise, "PADDED_FROM", 0)
    options, loss = LOSSES[name]
    fused, _ = pair(dtype=torch.bfloat16, floor=0, **options)
    x = torch.randn(10, 8, device=DEVICE, dtype=torch.bfloat16, requires_grad=True)
    for widest in (plan.RESIDENT_WIDTH, 0):
        monkeypatch.setattr(plan, "RESIDENT_WIDTH", widest)
        loss(fused, x, 3 * torch.randn(10, device=DEVICE)).backward()
    assert len(seen) >= 2
    for names, tensors, numbers, constants in seen:
        assert names[tensors + len(numbers) :] == constants
        for argument, number in zip(names[tensors:], numbers, strict=False):
            assert isinstance(number, float) == (argument in REALS), argument


REALS = {
    "floor", "units", "origin", "unit", "tails", "penalty", "omega", "gain", "count", "rounded", "length", "constant",
    "bow",
}  # fmt: skip
