"""Robot actions without a tokenizer: a turning joint is a circle, a sliding one an interval, each with 256 bins."""

import math
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from torch import nn

from fourier_head import Circle, FourierHead, Interval, LinearHead


def demonstrations(count: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return states, wrist angles and reaches; an obstacle ahead is passed on the left or on the right."""
    state = torch.rand(count, 2) * 2 - 1  # where the goal is, and how near the obstacle
    aside = torch.where(torch.rand(count) < 0.5, -1.0, 1.0) * (0.3 + 0.5 * (state[:, 1] > 0))
    angle = math.pi + state[:, 0] + aside + 0.15 * torch.randn(count)  # around pi, where -pi begins
    reach = 40 + 30 * state[:, 0] + 4 * torch.randn(count)
    return state, (angle + math.pi) % (2 * math.pi) - math.pi, reach.clamp(0, 100)


class Policy(nn.Module):
    """A small network with a head for each joint."""

    def __init__(self, wrist: nn.Module, slide: nn.Module):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(2, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU())
        self.wrist, self.slide = wrist, slide

    def loss(self, state: torch.Tensor, turn: torch.Tensor, reach: torch.Tensor) -> torch.Tensor:
        x = self.body(state)
        return self.wrist.loss(x, turn) + self.slide.loss(x, reach)


def main(picture: Path, steps: int = 400) -> None:
    torch.manual_seed(0)
    state, angle, reach = demonstrations(600)
    turn = ((angle / math.pi + 1) * 128).long().clamp(0, 255)  # 256 bins per joint, as an action tokenizer has them
    reach = (reach * 2.56).long().clamp(0, 255)
    near = torch.tensor([[0.0, 0.8]])  # the obstacle is near: both ways round are right
    figure, axes = plt.subplots(1, 2, figsize=(9, 4.2), subplot_kw={"projection": "polar"}, layout="constrained")
    for axis, fourier, colour in ((axes[0], False, "#d55e00"), (axes[1], True, "#0a5c9e")):
        if fourier:
            wrist = FourierHead(64, 256, 8, domain=Circle(2 * math.pi, low=-math.pi))
            policy = Policy(wrist, FourierHead(64, 256, 8, domain=Interval(0, 100)))
        else:
            policy = Policy(LinearHead(64, 256), LinearHead(64, 256))
        optimizer = torch.optim.Adam(policy.parameters(), lr=3e-3)
        for _ in range(steps):
            optimizer.zero_grad()
            policy.loss(state, turn, reach).backward()
            optimizer.step()
        with torch.no_grad():
            log_probs = policy.wrist(policy.body(near))[0]  # what any sampler of tokens wants
        theta = (torch.arange(256) + 0.5) / 128 * math.pi - math.pi
        axis.plot(theta, log_probs.exp() * 256, color=colour)
        axis.set_title("Fourier head on a circle" if fourier else "linear layer")
        axis.set_yticks([])
    figure.suptitle("Wrist angle with an obstacle near: 256 bins, 600 demonstrations")
    figure.savefig(picture, dpi=90)


if __name__ == "__main__":
    main(Path(__file__).with_suffix(".png"))
