"""Inputs from columns, and networks trained side by side."""

import itertools
from datetime import date, timedelta
from decimal import Decimal

import numpy as np
import pytest
import torch
from torch import nn

from fourier_head import Adaptive, FourierHead
from fourier_head.tabular import ensemble
from fourier_head.tabular.columns import Categories, Columns, weighted_quantiles
from fourier_head.tabular.members import Body, MemberLinear, MemberNetwork, Weights, held_out

# --- columns


def test_outliers_move_no_other_row():
    random = np.random.default_rng(0)
    X = random.normal(size=(400, 2))
    wild = X.copy()
    wild[:3, 0] = 1e6
    plain, moved = (Columns(rows, np.ones(400))(X[3:]) for rows in (X, wild))
    assert np.abs(moved).max() < 10
    for a, b in zip(plain.T, moved.T, strict=True):
        assert a.std() < 1e-9 or np.corrcoef(a, b)[0, 1] > 0.95
    assert np.isfinite(Columns(wild, np.ones(400))(np.array([[1e300, -1e300]]))).all()


def test_pieces_rise_one_after_the_other():
    columns = Columns(np.arange(101.0)[:, None], np.ones(101))
    assert columns.plain == 1
    pieces = columns(np.array([[0.0], [50.0], [100.0], [1e9]]))[:, 1:]
    assert pieces.shape[1] == 16
    np.testing.assert_allclose(pieces.sum(1), [0, 8, 16, 16], atol=1e-5)
    assert (np.diff(pieces[1]) <= 0).all()  # full ones before empty ones


def test_columns_that_never_change_are_left_out_and_gaps_are_marked():
    X = np.array([[7.0, 1.0, np.nan], [7.0, np.nan, np.nan], [7.0, 3.0, np.nan]])
    columns = Columns(X, np.ones(3))
    inputs = columns(np.array([[0.0, np.nan, 5.0]]), pieces=False)
    np.testing.assert_array_equal(inputs, [[0.0, 1.0]])  # the mean, and the mark of a gap


def test_categories_have_an_input_for_each_level():
    X = np.array([[0.0], [1.0], [1.0], [2.0]])
    columns = Columns(X, np.ones(4), np.array([True]))
    inputs = columns(np.array([[1.0], [2.0], [-1.0], [np.nan]]))
    np.testing.assert_array_equal(inputs, [[0, 1, 0], [0, 0, 1], [0, 0, 0], [0, 0, 0]])


def test_levels_become_codes_whatever_their_columns_are_called():
    pd = pytest.importorskip("pandas")
    seen = pd.DataFrame({0: ["b", "a", None], 1: [1.0, 2.0, 3.0], 2: pd.Categorical([True, False, True])})
    categories = Categories(seen)
    assert categories.mask.tolist() == [True, False, True]
    np.testing.assert_array_equal(categories(seen), [[1, 1, 1], [0, 2, 0], [np.nan, 3, 1]])
    new = pd.DataFrame({0: ["z", None], 1: [1.0, 2.0], 2: [None, False]})
    np.testing.assert_array_equal(categories(new), [[-1, 1, np.nan], [np.nan, 2, 0]])
    assert seen[0].tolist() == ["b", "a", None], "the frame given stays as it is"


def test_dates_and_numbers_kept_as_objects_are_numbers():
    pd = pytest.importorskip("pandas")
    days = pd.to_datetime(["2024-01-03", None, "2024-01-01"])
    seen = pd.DataFrame(
        {
            "object": pd.Series([0.5, None, 2], dtype=object),
            "decimal": pd.Series([Decimal("0.5"), None, Decimal(2)], dtype=object),
            "masked": pd.Series([1, pd.NA, 3], dtype=object),
            "date": days,
            "zone": days.tz_localize("Europe/Berlin"),
            "length": days - days[0],
            "day": pd.Series([date(2024, 1, 3), None, date(2024, 1, 1)], dtype=object),
            "span": pd.Series([timedelta(2), None, timedelta(0)], dtype=object),
            "period": pd.PeriodIndex(["2024-01-03", None, "2024-01-01"], freq="D"),
            "truth": pd.Series([True, None, False], dtype=object),
        }
    )
    categories = Categories(seen)
    assert categories.mask.tolist() == [False] * 9 + [True]
    gap = [np.nan] * 10
    known = [[0.5, 0.5, 1, 2, 2, 2, 2, 2, 2, 1], gap, [2, 2, 3, 0, 0, 0, 0, 0, 0, 0]]
    np.testing.assert_array_equal(categories(seen), known)
    unknown = pd.DataFrame({name: [None] for name in seen})  # as a single row from elsewhere may be
    np.testing.assert_array_equal(categories(unknown).astype(float), [gap])
    np.testing.assert_array_equal(categories(seen.to_numpy()), known)
    with pytest.raises(ValueError, match="X must be a data frame with the columns seen in fit"):
        categories(seen.to_numpy()[:, :3])
    swapped = seen.assign(day=seen["date"], date=seen["day"], period=seen["date"])
    np.testing.assert_array_equal(categories(swapped), known)
    later = seen.assign(date=pd.to_datetime(["2024-01-11"] * 3).astype("datetime64[s]"))
    assert categories(later)["date"].tolist() == [10, 10, 10]


def test_columns_are_found_by_their_names():
    pd = pytest.importorskip("pandas")
    pyarrow = pytest.importorskip("pyarrow")
    seen = pd.DataFrame({"size": [1.0, 2.0], "side": ["low", "high"]})
    table = pyarrow.Table.from_pandas(seen)
    assert Categories(table).mask.tolist() == [False, True]
    np.testing.assert_array_equal(Categories(seen)(table), Categories(seen)(seen))
    twice = pd.concat([seen, seen[["side"]]], axis=1)
    for call in (Categories, Categories(seen)):
        with pytest.raises(ValueError, match="several named 'side': rename them"):
            call(twice)


def test_weights_are_repetitions():
    random = np.random.default_rng(1)
    x, times = random.normal(size=30), random.integers(1, 4, 30)
    X = np.column_stack([x, x**2])
    merged = Columns(X, times.astype(float))(X)
    np.testing.assert_allclose(merged, Columns(X, 5.0 * times)(X), rtol=1e-6)
    middle = weighted_quantiles(x, times.astype(float), np.array([0.5]))
    assert abs(middle[0] - np.median(np.repeat(x, times))) < np.diff(np.sort(x)).max()


# --- members


def network(members=3, inputs=2, seed=0, frequencies=3, heads=1):
    torch.manual_seed(seed)
    domain = Adaptive(tails=0.01)
    make = [lambda size: FourierHead(size, num_frequencies=frequencies, domain=domain)] * heads
    return MemberNetwork({"one": Body(members, inputs, (8,), nn.SiLU)}, make)


def density(net, x):
    return net.heads[0].density(net.of_rows(x))


def test_members_are_networks_of_their_own():
    net = network()
    x = torch.randn(5, 2)
    first, _, last = net.bodies["one"]
    outputs = net.of_rows(x)
    for j in range(3):
        alone = nn.functional.silu(x @ first.weight[j] + first.bias[j])
        torch.testing.assert_close(outputs[j], alone @ last.weight[j] + last.bias[j])
    assert not torch.equal(outputs[0], outputs[1])
    assert density(net, x).batch_shape == (3, 5)


def test_bodies_see_the_first_inputs_and_can_be_dropped():
    bodies = {"few": Body(2, 1, (4,)), "all": Body(3, 2, (5, 6))}
    net = MemberNetwork(bodies, [lambda size: FourierHead(size, num_frequencies=3, domain=Adaptive())])
    x = torch.randn(7, 2)
    outputs = net.of_rows(x)
    moved = net.of_rows(x + torch.tensor([0.0, 1.0]))
    assert net.members == [2, 3]
    assert torch.equal(outputs[:2], moved[:2])
    assert not torch.equal(outputs[2:], moved[2:])
    net.keep(["all"])
    torch.testing.assert_close(net.of_rows(x), outputs[2:])


def test_heads_of_several_targets_share_the_body():
    net = network(heads=2)
    first, second = net.per_head(net.of_rows(torch.randn(5, 2)))
    assert first.shape == second.shape == (3, 5, 10)
    assert not torch.equal(first, second)


def test_stacked_layers_are_the_layers():
    layers = [nn.Linear(4, 6) for _ in range(3)]
    x = torch.randn(3, 7, 4)
    torch.testing.assert_close(
        MemberLinear.stack(layers)(x), torch.stack([layer(part) for layer, part in zip(layers, x, strict=True)])
    )


def test_gradients_are_clipped_one_by_one():
    weights = Weights(MemberLinear(torch.zeros(2, 1, 3), torch.zeros(2, 1, 1)))
    weights.gradient.copy_(torch.tensor([[3.0, 0.0, 0.0, 4.0], [0.1, 0.0, 0.0, 0.0]]))
    weights.clip(1.0)
    torch.testing.assert_close(weights.gradient, torch.tensor([[0.6, 0.0, 0.0, 0.8], [0.1, 0.0, 0.0, 0.0]]))


def test_layers_are_views_of_all_weights_until_released():
    layer = MemberLinear.stack([nn.Linear(4, 3) for _ in range(2)])
    x = torch.randn(2, 5, 4)
    before = layer(x).detach()
    weights = Weights(layer)
    torch.testing.assert_close(layer(x), before)
    layer(x).sum().backward()
    assert layer.weight.grad.abs().sum() + layer.bias.grad.abs().sum() == weights.gradient.abs().sum()
    weights.take(2 * weights.now.detach())
    torch.testing.assert_close(layer(x), 2 * before)
    weights.release()  # the best so far are those of the start
    torch.testing.assert_close(layer(x), before)
    assert layer.weight.is_contiguous()
    assert layer.weight.grad is None


@pytest.mark.parametrize("activation", [nn.ReLU, nn.SiLU])
def test_outputs_and_gradients_of_a_body_are_those_of_autograd(activation):
    sizes = ((4, 8), (8, 6), (6, 3))
    layers = [MemberLinear.stack([nn.Linear(*size) for _ in range(2)]) for size in sizes]
    body = nn.Sequential(layers[0], activation(), layers[1], activation(), layers[2])
    x = torch.randn(2, 5, 4)
    wanted = body(x)
    gradients = torch.autograd.grad((wanted**2).sum(), list(body.parameters()))
    weights = Weights(body)
    for _ in range(2):  # the second time in place of the first
        outputs = weights.outputs(x)
        weights.backward(2 * outputs.detach())
    torch.testing.assert_close(outputs, wanted)
    torch.testing.assert_close(weights.gradient, torch.cat([g.reshape(2, -1) for g in gradients], 1))


@pytest.mark.parametrize(("rows", "members"), [(100, 8), (77, 7), (30, 3)])
def test_every_row_is_left_out_once(rows, members):
    parts = held_out(rows, members, 1 / members, torch.randperm(rows))
    assert sorted(torch.cat(parts).tolist()) == list(range(rows))
    few = held_out(rows, members, 0.1, torch.randperm(rows))
    assert [len(part) for part in few] == [round(0.1 * rows)] * members
    assert all(not torch.equal(a, b) for a, b in itertools.pairwise(few))


# --- training


def rows(count=300, seed=0):
    torch.manual_seed(seed)
    x = torch.rand(count, 2) * 2 - 1
    return x, 2 * x[:, 0] + 0.1 * torch.randn(count)


def trained(net, x, y, held, weights=None, leave_out=True, **plan):
    def loss(outputs, value):
        options = {"kind": "both", "crps_weight": 10.0, "mapped": True}
        return net.heads[0].values_loss_of(outputs, value, **options)

    weights = torch.ones(len(y)) if weights is None else weights
    options = {"seed": 0, "learning_rate": 1e-2, "weight_decay": 0.0, "leave_out": leave_out}
    return ensemble.fit(net, [x, y], weights, held, loss, ensemble.Plan.for_rows(len(y), **plan), **options)


def test_members_learn_and_rows_left_out_teach_them_nothing():
    x, y = rows()
    held = held_out(300, 3, 1 / 3, torch.randperm(300))
    net = network()
    course = trained(net, x, y, held, epochs=60)
    assert (density(net, x).mean - 2 * x[:, 0]).abs().mean() < 0.1
    assert min(score for _, score in course.history) < course.history[0][1] - 1
    batches = ensemble._batches(300, held, 64, torch.Generator().manual_seed(0))
    seen = torch.cat([next(batches) for _ in range(12)], dim=1)
    for own, out in zip(seen, held, strict=True):
        assert not set(own.tolist()) & set(out.tolist())
        assert len(own.unique()) == 200  # all others, in four passes


def test_without_rows_to_leave_out_all_are_learned():
    x, y = rows(8)
    net = network()
    course = trained(net, x, y, [torch.arange(8)] * 3, leave_out=False, epochs=30)
    assert min(score for _, score in course.history) < course.history[0][1]


def test_weights_of_rows_count():
    torch.manual_seed(0)
    x = torch.zeros(200, 2)
    y = torch.cat([torch.full((100,), -1.0), torch.ones(100)]) + 0.1 * torch.randn(200)
    weights = torch.cat([torch.full((100,), 1.8), torch.full((100,), 0.2)])
    net = network(frequencies=8)  # three cannot have two narrow peaks so far apart
    trained(net, x, y, held_out(200, 3, 1 / 3, torch.randperm(200)), weights, epochs=150, batch=100)
    assert abs(density(net, x[:1]).cdf(torch.tensor(0.0)).mean() - 0.9) < 0.05


def test_plans_grow_with_the_rows_and_keep_to_what_they_are_told():
    small, large = ensemble.Plan.for_rows(200), ensemble.Plan.for_rows(200_000)
    assert small.steps < large.steps < 10 * small.steps
    assert (small.batch, large.batch) == (64, 512)
    told = ensemble.Plan.for_rows(100, epochs=7, batch=25, patience=2)
    assert (told.steps, told.batch, told.patience, told.epoch(told.steps)) == (28, 25, 8, 7)
    assert ensemble.Plan.for_rows(5).batch == 5
    assert told.rate(28) == pytest.approx(0)
    assert max(told.rate(step) for step in range(1, 29)) > 0.95


def test_bodies_far_behind_are_dropped_where_rows_tell():
    good = torch.randn(1000, generator=torch.Generator().manual_seed(0))
    losses = torch.stack([good, good + 0.5, good + 0.05])
    assert ensemble._still_good(losses, torch.ones(1000)) == [0, 2]
    assert ensemble._still_good(losses[:, :100], torch.ones(100)) == [0, 1, 2]


def test_members_take_versions_of_rows_one_after_the_other():
    net = network(members=4)
    versions = torch.randn(2, 5, 2)
    outputs = net.of_rows(versions)
    for j in range(4):
        torch.testing.assert_close(outputs[j], net.of_rows(versions[j % 2])[j])
    few = network(members=1)
    torch.testing.assert_close(few.of_rows(versions), few.of_rows(versions.mean(0)))
