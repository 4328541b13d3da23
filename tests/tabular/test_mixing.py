"""How wide mixtures of members are for rows that all of them predict."""

import numpy as np
import pytest
import torch

pytest.importorskip("sklearn")
from fourier_head.domains import Interval
from fourier_head.integrations.scikit_learn import FourierRegressor
from fourier_head.integrations.scikit_learn.interval import FlooredMixtureHead, IntervalDistribution, IntervalFrame
from fourier_head.integrations.scikit_learn.predictive import Mixing


def test_a_mixture_of_all_members_is_as_wide_as_its_errors():
    """Means of members scatter about the truth; each is as wide as noise and its own error together."""
    random = torch.Generator().manual_seed(0)
    noise, error, rows, members = 1.0, 0.6, 4000, 8
    mean = error * torch.randn(members, rows, generator=random)
    y = noise * torch.randn(rows, generator=random)
    variance = torch.full_like(mean, noise**2 + error**2)
    weights = torch.full((members,), 1 / members)
    middle, plain = Mixing(weights).about(mean, variance, 1.0)
    assert torch.equal(plain, torch.ones(rows))
    _, factor = Mixing(weights, (members,), 1).about(mean, variance, 1.0)
    whole = variance.mean(0) + mean.var(0, correction=0)
    wanted = ((y - middle) ** 2).mean()
    assert abs((factor**2 * whole).mean() / wanted - 1) < 0.05
    assert whole.mean() > 1.4 * wanted


def test_bodies_that_agree_are_not_narrowed():
    mean = torch.zeros(6, 3)
    mixing = Mixing(torch.full((6,), 1 / 6), (4, 2), 1)
    middle, factor = mixing.about(mean, torch.ones(6, 3), 1.2)
    torch.testing.assert_close(factor, torch.full((3,), 1.2))
    assert torch.equal(middle, torch.zeros(3))


@pytest.mark.parametrize("head", ["fourier", "mixture", "linear"])
def test_the_spread_moves_widths_and_leaves_means(head):
    random = np.random.default_rng(0)
    X = random.normal(size=(120, 2))
    y = np.exp(0.3 * X[:, 0]) + 0.3 * random.exponential(size=120)
    model = FourierRegressor(head, body="smooth", n_members=4, max_epochs=30, discrete=False, random_state=0).fit(X, y)
    target = model._targets[0]
    means, widths = [], []
    for spread in (0.8, 1.25):
        model._targets = [target.spread(spread)]
        density = model.predict_density(X)
        means.append(density.mean())
        widths.append(np.diff(density.interval(0.9), axis=1).mean())
    assert widths[1] > 1.2 * widths[0]
    assert np.abs(means[1] - means[0]).mean() < 0.05 * y.std()


@pytest.mark.parametrize("spread", [0.6, 1.0, 1.5])
def test_components_outside_of_the_interval_move_nothing(spread):
    """Likelihood alone leaves a component anywhere once it lies outside: it has a share of logits, but no say."""
    head = FlooredMixtureHead(1, 100, 2, domain=Interval(-2.0, 2.0))
    head.proj = torch.nn.Identity()
    near = torch.tensor([0.0, -40.0, -0.5, -0.5, -3.0, -3.0], dtype=torch.float64)
    far = torch.tensor([0.0, 5.0, -0.5, -30.0, -3.0, -3.0], dtype=torch.float64)
    frame = IntervalFrame(0.0, 1.0, low=-2.0, high=2.0, tail=1e-4, spread=spread)
    mixing = Mixing(torch.ones(1, dtype=torch.float64))
    alone, beside = (IntervalDistribution(head, outputs[None, None], frame, mixing) for outputs in (near, far))
    np.testing.assert_allclose(beside.mean(), alone.mean(), atol=1e-3)  # the flat share counts twice as much
    np.testing.assert_allclose(beside.interval(0.9), alone.interval(0.9), atol=1e-3)
    middle = IntervalDistribution(head, far[None, None], IntervalFrame(0.0, 1.0, low=-2.0, high=2.0, tail=1e-4), mixing)
    ratio = np.diff(beside.interval(0.9)) / np.diff(middle.interval(0.9))
    np.testing.assert_allclose(ratio, spread, rtol=0.01)
