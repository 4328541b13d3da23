"""Bins: construction, the round trip, the warp, bad input."""

import copy
import json
import math
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fourier_head.bins import Bins

KINDS = {
    "uniform": Bins.uniform(37, -3.0, 5.0),
    "one bin": Bins.uniform(1, 0.0, 1.0),
    "mixed": Bins.mixed(64, -15.0, 15.0, dense=(-1.0, 10.0), sparse_share=0.3),
    "quantile": Bins.quantile(np.random.default_rng(0).standard_t(2, 5000), 50),
    "far from zero": Bins.uniform(1000, 1e6, 1e6 + 1),
    "tiny": Bins.uniform(9, -1e-30, 1e-30),
    "huge": Bins.uniform(8, -8e307, 8e307),
}


@st.composite
def any_bins(draw):
    low = draw(st.floats(-1e6, 1e6))
    span = draw(st.floats(1e-3, 1e6))
    num_bins = draw(st.integers(1, 300))
    kind = draw(st.sampled_from(["uniform", "mixed", "quantile", "custom"]))
    if kind == "uniform":
        return Bins.uniform(num_bins, low, low + span)
    if kind == "mixed":
        a, b = sorted(draw(st.lists(st.integers(0, 100), min_size=2, max_size=2, unique=True)))
        # span * 100 / 100 may round to less than span, which would leave a sliver too narrow for any bin.
        dense = (low + span * a / 100, low + span if b == 100 else low + span * b / 100)
        return Bins.mixed(num_bins + 2, low, low + span, dense=dense, sparse_share=draw(st.floats(0, 0.99)))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    if kind == "quantile":
        data = np.round(low + span * rng.beta(0.5, 2, draw(st.integers(2, 200))), 6)
        return Bins.quantile([*data, low, low + span], num_bins)
    widths = rng.uniform(0.01, 1, num_bins)
    return Bins(low + span * np.concatenate([[0], np.cumsum(widths)]))


def half_width_bound(bins, x):
    """Half the local bin, and a few roundings of numbers of this size."""
    j = bins.encode(x)
    return bins.widths[j] / 2 + 4e-16 * max(abs(bins.low), abs(bins.high))


@settings(max_examples=150, deadline=None)
@given(bins=any_bins(), shares=st.lists(st.floats(0, 1), min_size=1, max_size=30))
def test_round_trip_of_values_is_within_half_a_bin(bins, shares):
    x = bins.low + torch.tensor(shares, dtype=torch.float64) * (bins.high - bins.low)
    x = torch.cat([x.clamp(bins.low, bins.high), bins.edges, torch.nextafter(bins.edges[1:], bins.edges[:-1])])
    for values in (x, x.float()):
        values = values[(values.double() >= bins.low) & (values.double() <= bins.high)]
        error = (bins.decode(bins.encode(values)) - values.double()).abs()
        assert (error <= half_width_bound(bins, values)).all()


@settings(max_examples=100, deadline=None)
@given(bins=any_bins())
def test_round_trip_of_ids_is_exact(bins):
    ids = torch.arange(bins.num_bins)
    assert torch.equal(bins.encode(bins.decode(ids)), ids)
    assert torch.equal(bins.encode(bins.edges[:-1]), ids), "a bin owns its left edge"
    assert bins.encode(bins.edges[-1]) == bins.num_bins - 1, "the last bin owns its right edge too"


@pytest.mark.parametrize("name", KINDS)
def test_kinds_round_trip_and_hold_together(name):
    bins = KINDS[name]
    ids = torch.arange(bins.num_bins)
    assert torch.equal(bins.encode(bins.decode(ids)), ids)
    assert bins.edges.dtype == bins.centers.dtype == bins.widths.dtype == torch.float64
    assert bins.edges.shape == (bins.num_bins + 1,)
    assert (bins.edges.diff() > 0).all()
    assert (bins.low, bins.high) == (bins.edges[0].item(), bins.edges[-1].item())
    torch.testing.assert_close(bins.widths, bins.edges.diff())
    assert ((bins.centers > bins.edges[:-1]) & (bins.centers < bins.edges[1:])).all()


def test_uniform_matches_the_canonical_centres():
    m = 18
    expected = torch.tensor([-1 + (2 * j + 1) / m for j in range(m)], dtype=torch.float64)
    torch.testing.assert_close(Bins.uniform(m, -1, 1).centers, expected, rtol=0, atol=1e-15)


def test_out_of_range_is_clipped_and_nan_is_kept_apart():
    bins = Bins.uniform(10, 0, 1)
    values = [-5.0, -math.inf, 2.0, math.inf, math.nan, 0.55]
    assert bins.encode(values).tolist() == [0, 0, 9, 9, -100, 5]
    assert bins.clip_rate(values) == pytest.approx(4 / 5)
    assert bins.clip_rate([0.0, 1.0]) == 0
    assert bins.clip_rate([math.nan]) == 0
    assert bins.clip_rate([]) == 0
    decoded = bins.decode(bins.encode(values))
    assert decoded.isnan().tolist() == [False] * 4 + [True, False]
    assert Bins.missing == bins.missing == -100


def test_ids_of_missing_values_are_ignored_by_cross_entropy():
    bins = Bins.uniform(4, 0, 1)
    logits = torch.randn(3, 4)
    target = bins.encode([0.1, math.nan, 0.9])
    expected = torch.nn.functional.cross_entropy(logits[[0, 2]], target[[0, 2]])
    torch.testing.assert_close(torch.nn.functional.cross_entropy(logits, target), expected)


def test_own_missing_id():
    bins = Bins([0.0, 1.0, 2.0], missing=2)
    assert bins.encode([math.nan, 0.5]).tolist() == [2, 0]
    assert bins.decode([2]).isnan().all()


@pytest.mark.parametrize(
    ("num_bins", "dense", "share", "counts"),
    [
        (100, (-1, 10), 0.29, (21, 71, 8)),  # 29 bins over 14 + 5: 21.4 left; 0.29 * 100 < 29 in floating point
        (20, (-1, 10), 0.25, (4, 15, 1)),  # 3.68 left
        (100, (-1, 10), 0.0, (1, 98, 1)),  # no range stays without a bin
        (100, (-15, 10), 0.2, (0, 80, 20)),
        (100, (-1, 15), 0.2, (20, 80, 0)),
        (100, (-15, 15), 0.2, (0, 100, 0)),
        (10, (-14.99, 10), 0.2, (1, 8, 1)),
        (3, (-1, 10), 0.9, (1, 1, 1)),
        (4, (-10, 10), 0.75, (2, 1, 1)),  # 1.5 each: the half goes left
    ],
)
def test_mixed_shares_the_bins_out(num_bins, dense, share, counts):
    bins = Bins.mixed(num_bins, -15, 15, dense=dense, sparse_share=share)
    lo, hi = dense
    got = tuple(
        int(part.sum()) for part in (bins.centers < lo, (bins.centers > lo) & (bins.centers < hi), bins.centers > hi)
    )
    assert bins.num_bins == num_bins
    assert got == counts
    assert {lo, hi} <= set(bins.edges.tolist())
    start = 0
    for count in counts:
        widths = bins.widths[start : start + count]
        torch.testing.assert_close(widths, widths.mean().expand_as(widths) if count else widths)
        start += count


def test_mixed_from_data_finds_the_shortest_range():
    rng = np.random.default_rng(1)
    values = np.concatenate([rng.uniform(2, 3, 9000), rng.uniform(-10, 10, 1000)])
    bins = Bins.mixed_from_data(values, 100, -10, 10, sparse_share=0.2, coverage=0.9)
    narrow = bins.edges[:-1][bins.widths < bins.widths.mean()]
    assert narrow.min() == pytest.approx(2, abs=0.05)
    assert narrow.max() == pytest.approx(3, abs=0.05)
    held = ((values >= narrow.min().item()) & (values <= narrow.max().item() + 0.02)).mean()
    assert held >= 0.9


def test_mixed_from_data_with_a_dense_range_at_the_very_end():
    values = [1e-300, *np.linspace(0.01, 1, 90), *np.linspace(2, 10, 9)]
    bins = Bins.mixed_from_data(values, 20, 0, 10, sparse_share=0.2)
    assert bins.widths.min() > 0.01


def test_mixed_from_data_with_a_value_that_repeats():
    values = [0.0] * 95 + [1.0, 2.0, 3.0, 4.0, 5.0, math.nan, math.inf]
    bins = Bins.mixed_from_data(values, 50, 0, 10, sparse_share=0.5)
    assert bins.num_bins == 50
    assert bins.widths[0] == pytest.approx(0.2 / 25)


def test_quantile_bins_hold_equal_shares():
    values = torch.randn(10_000).exp()
    bins = Bins.quantile(values, 25)
    counts = torch.bincount(bins.encode(values), minlength=25)
    assert ((counts - 400).abs() <= 2).all()
    assert (bins.low, bins.high) == (values.min().item(), values.max().item())


@pytest.mark.parametrize("values", [[0, 1], [0, 0, 0, 1], [5, 5, 5, 5, 6, 6, 7], [1.0, 1.0 + 1e-15, 2.0] * 50])
@pytest.mark.parametrize("num_bins", [1, 2, 7, 100])
def test_quantile_bins_with_few_distinct_values(values, num_bins):
    bins = Bins.quantile(values, num_bins)
    assert bins.num_bins == num_bins
    assert (bins.low, bins.high) == (min(values), max(values))
    assert (bins.widths > 0).all()


@pytest.mark.parametrize("kind", ["uniform", "mixed", "quantile"])
def test_fit_takes_its_limits_from_the_data(kind):
    values = torch.cat([torch.randn(1000), torch.tensor([math.nan, math.inf, -math.inf])])
    finite = values[values.isfinite()].double()
    tight = Bins.fit(values, 40, kind)
    assert tight.kind == kind
    assert (tight.low, tight.high) == (finite.min().item(), finite.max().item())
    assert tight.clip_rate(finite) == 0
    wide = Bins.fit(values, 40, kind=kind, margin=0.25)
    span = finite.max().item() - finite.min().item()
    assert wide.low == pytest.approx(tight.low - span / 4)
    assert wide.high == pytest.approx(tight.high + span / 4)
    assert wide.num_bins == 40


def test_fit_hands_on_the_options_of_mixed():
    values = np.random.default_rng(0).normal(size=1000)
    direct = Bins.mixed_from_data(values, 30, values.min(), values.max(), sparse_share=0.5, coverage=0.5)
    assert Bins.fit(values, 30, "mixed", sparse_share=0.5, coverage=0.5) == direct


# --- the warp


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_warp_makes_the_bins_uniform(name, dtype):
    bins = KINDS[name]
    m = bins.num_bins
    z = torch.linspace(-1, 1, m + 1, dtype=torch.float64)
    tolerance = 1e-6 if bins.low == 1e6 else 1e-12
    torch.testing.assert_close(bins.to_unit(bins.edges), z, rtol=0, atol=tolerance)
    torch.testing.assert_close(bins.from_unit(z), bins.edges, rtol=1e-9, atol=1e-9 * min(bins.high, 1.0))
    points = torch.rand(3, 5, 7, dtype=dtype) * 2 - 1
    back = bins.to_unit(bins.from_unit(points.double()))
    torch.testing.assert_close(back, points.double(), rtol=0, atol=tolerance)
    assert bins.to_unit(points).dtype == dtype
    assert bins.from_unit(points).shape == points.shape


@pytest.mark.parametrize("name", ["uniform", "mixed", "quantile"])
def test_slope_is_the_derivative_of_the_warp(name):
    bins = KINDS[name]
    x = (bins.centers + 0.3 * bins.widths).requires_grad_()
    (slope,) = torch.autograd.grad(bins.to_unit(x).sum(), x)
    torch.testing.assert_close(slope.log(), bins.log_slope(x), rtol=0, atol=1e-10)
    z = bins.to_unit(x).detach().requires_grad_()
    (inverse,) = torch.autograd.grad(bins.from_unit(z).sum(), z)
    torch.testing.assert_close(inverse * slope, torch.ones_like(slope), rtol=1e-9, atol=0)
    integral = (bins.log_slope(bins.centers).exp() * bins.widths).sum()
    assert integral.item() == pytest.approx(2), "the slope integrates to the length of [-1, 1]"


def test_warp_outside_the_interval():
    bins = Bins([0.0, 1.0, 10.0])
    x = torch.tensor([-3.0, 11.0, math.inf, -math.inf], requires_grad=True)
    z = bins.to_unit(x)
    assert z.tolist() == [-1, 1, 1, -1]
    assert torch.autograd.grad(z.sum(), x)[0].tolist() == [0, 0, 0, 0]
    assert bins.log_slope(x).tolist() == [-math.inf] * 4
    assert bins.from_unit([-7.0, 7.0]).tolist() == [0, 10]
    nan = torch.tensor([math.nan])
    assert bins.to_unit(nan).isnan().all()
    assert bins.from_unit(nan).isnan().all()
    assert bins.log_slope(nan).isnan().all()


def test_ends_rounded_to_float32_are_inside():
    bins = Bins.uniform(3, -0.1, 0.1)
    ends = bins.from_unit(torch.tensor([-1.0, 1.0]))
    assert bins.log_slope(ends).isfinite().all()
    assert bins.clip_rate(ends) == 0


def test_warp_under_vmap_and_grad():
    bins = KINDS["mixed"]
    x = torch.linspace(-16, 16, 33)
    torch.testing.assert_close(torch.func.vmap(bins.to_unit)(x), bins.to_unit(x))
    slope = torch.func.vmap(torch.func.grad(bins.to_unit))(x[2:-2])
    torch.testing.assert_close(slope.log(), bins.log_slope(x[2:-2]), rtol=1e-5, atol=1e-5)


# --- living with others


@pytest.mark.parametrize("name", KINDS)
def test_copies_are_equal(name):
    bins = KINDS[name]
    for other in (
        Bins.from_dict(json.loads(json.dumps(bins.to_dict()))),
        pickle.loads(pickle.dumps(bins)),
        copy.deepcopy(bins),
        bins.to("cpu"),
    ):
        assert other == bins
        assert hash(other) == hash(bins)
        assert repr(other) == repr(bins)
        assert torch.equal(other.edges, bins.edges)
        assert torch.equal(other.decode([0]), bins.decode([0]))


def test_different_bins_differ():
    bins = Bins.uniform(4, 0, 1)
    assert bins != Bins.uniform(5, 0, 1)
    assert bins != Bins.uniform(4, 0, 2)
    assert bins != Bins(bins.edges, "uniform", missing=-1)
    assert bins != "bins"


def test_all_sorts_of_input_agree():
    bins = Bins.uniform(5, 0, 10)
    expected = [0, 1, 4]
    values = [1, 2, 9]
    for given_values in (
        values,
        tuple(values),
        np.array(values),
        np.array(values, dtype=">f8"),
        np.array(values, dtype=np.float32)[::1],
        np.array(values[::-1], dtype=np.float64)[::-1],
        torch.tensor(values),
        torch.tensor(values, dtype=torch.bfloat16),
        torch.tensor(values, dtype=torch.float64, requires_grad=True),
        torch.tensor([values, values], dtype=torch.float32).t()[:, 0],
    ):
        ids = bins.encode(given_values)
        assert ids.dtype == torch.int64
        assert ids.tolist() == expected
        assert bins.to_unit(given_values).tolist() == pytest.approx([-0.8, -0.6, 0.8], abs=1e-2)
    assert bins.encode(3.0).shape == ()
    assert bins.encode([]).shape == (0,)
    assert bins.decode([]).shape == (0,)
    assert bins.encode([1.0, None]).tolist() == [0, -100]
    assert bins.decode(np.array([[0, 4]])).tolist() == [[1, 9]]
    assert bins.decode(torch.tensor([0], dtype=torch.uint8), dtype=torch.float32).dtype == torch.float32


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: Bins([0.0, 1.0, 1.0]), "edges must be strictly increasing, got 1.0 after 1.0"),
        (lambda: Bins([0.0, 2.0, 1.0]), "edges must be strictly increasing, got 1.0 after 2.0"),
        (lambda: Bins([0.0]), "edges must be one row"),
        (lambda: Bins([[0.0, 1.0]]), "edges must be one row"),
        (lambda: Bins([0.0, math.nan]), "edges must be finite"),
        (lambda: Bins([0.0, math.inf]), "edges must be finite"),
        (lambda: Bins([-1e308, 1e308]), "edges must be finite and span a finite length"),
        (lambda: Bins([1.0, math.nextafter(1, 2)]), "edges must leave room"),
        (lambda: Bins([0.0, 1.0], missing=0), "missing must be an integer that is not the id of a bin"),
        (lambda: Bins.uniform(0, 0, 1), "num_bins must be a whole number of at least 1, got 0"),
        (lambda: Bins.uniform(2.5, 0, 1), "num_bins must be a whole number"),
        (lambda: Bins.uniform(True, 0, 1), "num_bins must be a whole number"),
        (lambda: Bins.uniform(3, 1, 1), "low must be less than high"),
        (lambda: Bins.uniform(3, 2, 1), "low must be less than high"),
        (lambda: Bins.uniform(3, 0, math.nan), "low must be less than high"),
        (lambda: Bins.uniform(3, -math.inf, 0), "low must be less than high"),
        (lambda: Bins.mixed(9, 0, 1, dense=(-1, 0.5)), "dense must be a range inside"),
        (lambda: Bins.mixed(9, 0, 1, dense=(0.2, 1.5)), "dense must be a range inside"),
        (lambda: Bins.mixed(9, 0, 1, dense=(0.5, 0.5)), "dense must be a range inside"),
        (lambda: Bins.mixed(9, 0, 1, dense=(0.5,)), "dense must be a pair of numbers"),
        (lambda: Bins.mixed(9, 0, 1, dense=(0.2, 0.5), sparse_share=1.0), "sparse_share must lie in"),
        (lambda: Bins.mixed(2, 0, 1, dense=(0.2, 0.5)), "num_bins must be at least 3"),
        (lambda: Bins.mixed_from_data([1, 2], 9, 0, 5, coverage=0.0), "coverage must lie in"),
        (lambda: Bins.mixed_from_data([math.nan], 9, 0, 5), "values must hold at least one finite number"),
        (lambda: Bins.mixed_from_data([7, 8], 9, 0, 5), "values must not be constant"),
        (lambda: Bins.quantile([math.nan, math.inf], 4), "values must hold at least one finite number"),
        (lambda: Bins.quantile([], 4), "values must hold at least one finite number"),
        (lambda: Bins.quantile([3.0, 3.0], 4), "values must not be constant"),
        (lambda: Bins.fit([3.0, 3.0, math.nan], 4), "values must not be constant"),
        (lambda: Bins.fit([1, 2], 4, kind="log"), "kind must be uniform, mixed or quantile, got 'log'"),
        (lambda: Bins.fit([1, 2], 4, margin=-1), "margin must be a finite number"),
        (lambda: Bins.fit([1, 2], 4, coverage=0.5), "coverage must come with kind='mixed'"),
        (lambda: Bins.uniform(4, 0, 1).decode([4]), "ids must lie in 0 to 3 or be -100, got 4"),
        (lambda: Bins.uniform(4, 0, 1).decode([-1]), "ids must lie in 0 to 3"),
        (lambda: Bins.from_dict({"kind": "uniform"}), "state must be a dictionary with the keys"),
        (lambda: Bins.from_dict({"edges": [0, 1], "low": 0}), "state must be a dictionary with the keys"),
    ],
)
def test_bad_input_gets_one_clear_sentence(call, says):
    with pytest.raises(ValueError) as error:
        call()
    message = str(error.value)
    assert says in message
    assert message.endswith(".")
    assert "\n" not in message


@pytest.mark.parametrize(
    "call",
    [
        lambda: Bins.uniform(4, 0, 1).decode([0.5]),
        lambda: Bins.uniform(4, 0, 1).encode("text"),
        lambda: Bins.uniform(4, 0, 1).encode(torch.ones(2, dtype=torch.complex64)),
        lambda: Bins(["a", "b"]),
    ],
)
def test_things_that_are_no_numbers_are_type_errors(call):
    with pytest.raises(TypeError, match=r"must be .*, got"):
        call()
