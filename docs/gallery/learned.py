"""Pictures of heads that learn: `python docs/gallery/learned.py` draws all of them, `... learned.py fans` one."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from look import BLUE, GREEN, GREY, HERE, ORANGE, SKY, TRUTH, network, save, train
from torch.distributions import Categorical, MixtureSameFamily, Normal

from fourier_head import Adaptive, Bins, Circle, FourierHead, Interval, LinearHead

ONE = torch.ones(1, 1)  # a head without a network: features that say nothing


def mixture(*parts: tuple[float, float, float]) -> MixtureSameFamily:
    """Return a mixture of Gaussians, each given by weight, mean and deviation."""
    weight, mean, deviation = torch.tensor(parts).T
    return MixtureSameFamily(Categorical(weight), Normal(mean, deviation))


def two_modes(folder: Path = HERE, steps: int = 600) -> Path:
    """Two modes from 300 values: the same 200 bins, the same loss, with and without knowledge of their order."""
    torch.manual_seed(0)
    truth = mixture((0.6, -0.4, 0.12), (0.4, 0.35, 0.2))
    values = truth.sample((300,)).clamp(-0.999, 0.999)
    bins = Bins.uniform(200, -1, 1)
    ids, x, z = bins.encode(values), ONE.expand(300, 1), torch.linspace(-1, 1, 801)
    figure, axes = plt.subplots(1, 2, sharey=True)
    for axis, name, head, colour in (
        (axes[0], "linear layer", LinearHead(1, domain=bins), ORANGE),
        (axes[1], "Fourier head, N = 10", FourierHead(1, domain=bins, num_frequencies=10), BLUE),
    ):
        train(head.parameters(), lambda head=head: head.loss(x, ids), steps, lr=0.05)
        axis.fill_between(z, truth.log_prob(z).exp(), color=TRUTH, lw=0, label="truth")
        with torch.no_grad():
            axis.step(bins.centers, head(ONE)[0].exp() * 100, where="mid", color=colour, lw=1.2, label=name)
        axis.set(title=name, xlabel="value", ylim=(0, 3.6))
        axis.legend(loc="upper right")
    axes[0].set_ylabel("density")
    return save(figure, "two-modes.png", folder)


def fans(folder: Path = HERE, steps: int = 600) -> Path:
    """One density per input: every quantile at once, never crossing, and two branches where there are two."""
    torch.manual_seed(0)
    x = torch.rand(2000, 1) * 6
    apart = (x[:, 0] - 2.5).clamp(min=0) * 16 * torch.where(torch.rand(2000) < 0.5, -1.0, 1.0)
    y = 500 + 40 * x[:, 0].sin() + apart + (3 + 3 * (3 - x[:, 0]).abs()) * torch.randn(2000)
    body, head = network(1), FourierHead(64, num_frequencies=15, domain=Adaptive.fit(y))
    parameters = [*body.parameters(), *head.parameters()]
    train(parameters, lambda: head.crps(body(x), y, mapped=True) + 0.05 * head.nll(body(x), y), steps)
    inputs, values = torch.linspace(0, 6, 241), torch.linspace(float(y.min()), float(y.max()), 300)
    with torch.no_grad():
        density = head.density(body(inputs[:, None]))
        p = density.log_prob(values[:, None]).exp()
        q = density.quantile([0.025, 0.25, 0.75, 0.975])
    figure, axis = plt.subplots()
    axis.pcolormesh(inputs, values, p.sqrt(), cmap="Blues", shading="auto", rasterized=True)
    axis.plot(x[:500, 0], y[:500], ".", color="black", ms=1.5, alpha=0.6)
    axis.plot(inputs, q.T, color=ORANGE, lw=1, label=["quantiles 2.5, 25, 75, 97.5 %", *[None] * 3])
    axis.set(title="The density of each input, no range given", xlabel="input", ylabel="value")
    axis.legend(loc="lower left")
    return save(figure, "fans.png", folder)


def circle(folder: Path = HERE, steps: int = 600) -> Path:
    """Hours of a day: midnight is no edge."""
    torch.manual_seed(0)
    hours = torch.cat([23.5 + 1.6 * torch.randn(250), 13 + 1.2 * torch.randn(150)]) % 24
    x, grid = ONE.expand(400, 1), torch.linspace(0, 24, 721)[:-1]
    figure, axes = plt.subplots(1, 2, figsize=(7.2, 3.9), subplot_kw={"projection": "polar"})
    for axis, domain, name, colour in (
        (axes[0], Interval(0, 24), "Interval(0, 24): torn at midnight", ORANGE),
        (axes[1], Circle(24.0), "Circle(24.0)", BLUE),
    ):
        head = FourierHead(1, num_frequencies=6, domain=domain)
        train(head.parameters(), lambda head=head: head.nll(x, hours), steps, lr=0.03)
        with torch.no_grad():
            p = head.density(ONE).log_prob(grid[:, None])[:, 0].exp()
        axis.plot(grid * 2 * math.pi / 24, p + 0.06, color=colour, lw=2)
        axis.plot(hours * 2 * math.pi / 24, torch.full((400,), 0.045), ".", color=GREY, ms=2)
        axis.set_theta_zero_location("N")
        axis.set_theta_direction(-1)
        axis.set_xticks([i * math.pi / 4 for i in range(8)], [f"{3 * i}:00" for i in range(8)])
        axis.set_yticks([])
        axis.set_ylim(0, None)
        axis.spines["polar"].set_visible(False)
        axis.set_title(name, loc="center")
    return save(figure, "circle.png", folder)


def scales(folder: Path = HERE, steps: int = 500) -> Path:
    """The same head on values of one, of thousands and of billions: no range is given."""
    torch.manual_seed(0)
    figure, axes = plt.subplots(1, 3, figsize=(7.2, 3.2))
    for axis, factor in zip(axes, (1.0, 1e3, 1e9), strict=True):
        y = factor * (3 + mixture((0.5, -1.0, 0.3), (0.5, 1.0, 0.15)).sample((2000,)))
        x = ONE.expand(2000, 1)
        head = FourierHead(1, num_frequencies=15, domain=Adaptive.fit(y))
        train(
            head.parameters(),
            lambda head=head, x=x, y=y: head.crps(x, y, mapped=True) + 0.05 * head.nll(x, y),
            steps,
            0.02,
        )
        grid = torch.linspace(float(y.min()), float(y.max()), 500)
        axis.hist(y, 60, density=True, color=TRUTH)
        with torch.no_grad():
            axis.plot(grid, head.density(ONE).log_prob(grid[:, None])[:, 0].exp(), color=BLUE)
        axis.set(title=f"values around {3 * factor:,.0f}", yticks=[])
        axis.xaxis.get_offset_text().set_size(8)
    return save(figure, "scales.png", folder)


def packets(folder: Path = HERE, steps: int = 600) -> Path:
    """A narrow peak that moves with the input: few frequencies, with and without packets."""
    torch.manual_seed(0)
    x = torch.rand(1500, 1) * 2 - 1
    y = 0.6 * (3 * x[:, 0]).sin() + 0.03 * torch.randn(1500)
    at, z = torch.tensor([[-0.6], [0.0], [0.7]]), torch.linspace(-1, 1, 801)
    figure, axis = plt.subplots()
    for name, count, colour in (("N = 12", 0, ORANGE), ("N = 12, packets=2", 2, BLUE)):
        body, head = network(1), FourierHead(64, num_frequencies=12, packets=count)
        train([*body.parameters(), *head.parameters()], lambda body=body, head=head: head.nll(body(x), y), steps)
        with torch.no_grad():
            p = head.density(body(at)).log_prob(z[:, None]).exp()
        axis.plot(z, p, color=colour, label=[name, *[None] * 2])
    truth = Normal(0.6 * (3 * at[:, 0]).sin(), 0.03).log_prob(z[:, None]).exp()
    axis.plot(z, truth, color=GREY, ls=":", label=["truth at three inputs", None, None])
    axis.set(title="Narrow peaks that move with the input", xlabel="value", ylabel="density", xlim=(-1, 1.6))
    axis.legend(loc="upper right")
    return save(figure, "packets.png", folder)


def walls(folder: Path = HERE, steps: int = 600) -> Path:
    """Values that pile up at one end: a periodic density leaks round to the other."""
    torch.manual_seed(0)
    y = torch.distributions.Beta(1.0, 3.0).sample((1500,)) * 100
    x, grid = ONE.expand(1500, 1), torch.linspace(0, 100, 600)
    figure, axis = plt.subplots()
    axis.hist(y, 80, density=True, color=TRUTH, label="values")
    for name, boundary, colour in (("periodic (the paper)", "periodic", ORANGE), ("walls", "reflect", BLUE)):
        head = FourierHead(1, num_frequencies=5, domain=Interval(0, 100), boundary=boundary)
        train(head.parameters(), lambda head=head: head.nll(x, y), steps, lr=0.03)
        with torch.no_grad():
            axis.plot(grid, head.density(ONE).log_prob(grid[:, None])[:, 0].exp(), color=colour, label=name)
    axis.set(title="Between two ends that are no neighbours", xlabel="share, %", ylabel="density")
    axis.legend()
    return save(figure, "walls.png", folder)


def frequencies(folder: Path = HERE, steps: int = 500) -> Path:
    """One truth with 2 to 32 frequencies: what more of them buy, and what they begin to invent."""
    torch.manual_seed(0)
    truth = mixture((0.3, -0.55, 0.06), (0.5, 0.0, 0.2), (0.2, 0.6, 0.03))
    values, z = truth.sample((2000,)).clamp(-0.999, 0.999), torch.linspace(-1, 1, 801)
    x = ONE.expand(2000, 1)
    figure, axes = plt.subplots(1, 5, figsize=(7.2, 2.5), sharey=True)
    for axis, count in zip(axes, (2, 4, 8, 16, 32), strict=True):
        head = FourierHead(1, num_frequencies=count)
        train(head.parameters(), lambda head=head: head.nll(x, values), steps, lr=0.03)
        axis.fill_between(z, truth.log_prob(z).exp(), color=TRUTH, lw=0)
        with torch.no_grad():
            axis.plot(z, head.density(ONE).log_prob(z[:, None])[:, 0].exp(), color=BLUE)
        axis.set(title=f"N = {count}", xticks=[-1, 0, 1], yticks=[], ylim=(0, 2.9))
    return save(figure, "frequencies.png", folder)


def sampling(folder: Path = HERE, steps: int = 400) -> Path:
    """Gradients through quantiles and samples: move a density until its 90 % quantile is where it is wanted."""
    torch.manual_seed(0)
    values = mixture((0.5, -0.4, 0.15), (0.5, 0.2, 0.15)).sample((2000,)).clamp(-0.999, 0.999)
    head, x, z = (
        FourierHead(1, num_frequencies=10, domain=Interval(-1, 1)),
        ONE.expand(2000, 1),
        torch.linspace(-1, 1, 601),
    )
    train(head.parameters(), lambda: head.nll(x, values), steps, lr=0.03)
    figure, axis = plt.subplots()
    colours = (GREY, SKY, BLUE, GREEN)
    for wanted, colour in zip((None, 0.5, 0.65, 0.8), colours, strict=True):
        if wanted is not None:
            train(
                head.parameters(),
                lambda wanted=wanted: (head.density(ONE).quantile(0.9) - wanted).square().sum(),
                min(150, steps),
                lr=0.01,
            )
        with torch.no_grad():
            density = head.density(ONE)
            q = float(density.quantile(0.9))
            axis.plot(
                z,
                density.log_prob(z[:, None])[:, 0].exp(),
                color=colour,
                label="start" if wanted is None else f"wanted: {wanted}",
            )
        axis.axvline(q, color=colour, ls=":", lw=1)
    axis.set(title="The 90 % quantile (dotted) has a gradient: it can be a loss", xlabel="value", ylabel="density")
    axis.legend(loc="upper left")
    return save(figure, "gradients.png", folder)


PICTURES = (two_modes, fans, circle, scales, packets, walls, frequencies, sampling)

if __name__ == "__main__":
    for picture in PICTURES:
        if len(sys.argv) == 1 or picture.__name__ in sys.argv[1:]:
            print(picture())
