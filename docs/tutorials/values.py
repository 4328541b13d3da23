"""A value function without V_min and V_max: returns learned from single steps, whatever their scale."""

from pathlib import Path

import matplotlib.pyplot as plt
import torch
from torch import nn

from fourier_head import Adaptive, Affine, FourierHead

STATES, DISCOUNT = 6, 0.9


def step(state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Walk on, mostly forward; coins on the way, a jackpot or a bill of thousands at the end."""
    after = (state + torch.where(torch.rand(len(state)) < 0.8, 1, -1)).clamp(min=0)
    done = after >= STATES
    end = torch.where(torch.rand(len(state)) < 0.5, 4000.0, -2000.0) + 300 * torch.randn(len(state))
    return torch.where(done, end, 20 * torch.randn(len(state))), after.clamp(max=STATES - 1), done


def returns(state: int, count: int) -> torch.Tensor:
    """Return sums of rewards that episodes from a state really had."""
    now, total = torch.full((count,), state), torch.zeros(count)
    factor, alive = 1.0, torch.ones(count, dtype=torch.bool)
    for _ in range(200):
        reward, now, done = step(now)
        total += factor * reward * alive
        alive &= ~done
        factor *= DISCOUNT
    return total


def main(picture: Path, steps: int = 2000) -> None:
    torch.manual_seed(0)
    body = nn.Embedding(STATES, 64)  # yours: the network that reads observations
    # The scale of the rewards of a first handful of steps is all that is said about values.
    scale = float(step(torch.randint(STATES, (500,)))[0].std())
    head = FourierHead(64, num_frequencies=12, domain=Adaptive(map=Affine(0.0, scale)))
    optimizer = torch.optim.Adam([*body.parameters(), *head.parameters()], lr=2e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(steps):
        state = torch.randint(STATES, (512,))
        reward, after, done = step(state)
        with torch.no_grad():  # the target is a draw from what the next state promises, but for its outermost tails
            target = reward + DISCOUNT * ~done * head.density(body(after)).icdf(0.01 + 0.98 * torch.rand(512))
        x = body(state)
        loss = head.crps(x, target, mapped=True)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()

    levels = torch.tensor([0.1, 0.25, 0.75, 0.9])
    with torch.no_grad():
        learned = head.density(body(torch.arange(STATES))).quantile(levels)
    true = torch.stack([torch.quantile(returns(s, 2000), levels) for s in range(STATES)], 1)
    figure, axis = plt.subplots(figsize=(8, 4), layout="constrained")
    axis.plot(true.T, "o", color="#666d78", ms=4, label=["what episodes returned", *[None] * 3])
    axis.plot(learned.T, color="#0a5c9e", label=["learned from single steps", *[None] * 3])
    axis.set(title="Quantiles 10, 25, 75 and 90 % of the return", xlabel="state", ylabel="return")
    axis.legend()
    figure.savefig(picture, dpi=90)


if __name__ == "__main__":
    main(Path(__file__).with_suffix(".png"))
