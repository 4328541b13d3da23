"""What all pictures of the gallery share: size, colours, and small files."""

from __future__ import annotations

import io
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from PIL import Image

HERE = Path(__file__).parent
BLUE, SKY, ORANGE, GREEN, GREY, TRUTH = "#0a5c9e", "#3aa0dc", "#d55e00", "#009e73", "#666d78", "#c9cfd7"

plt.rcParams.update(
    {
        "figure.figsize": (7.2, 4.0),
        "figure.dpi": 110,
        "figure.constrained_layout.use": True,
        "font.size": 10,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.edgecolor": GREY,
        "axes.titlesize": 11,
        "axes.titlelocation": "left",
        "legend.frameon": False,
    }
)


def save(figure: plt.Figure, name: str, folder: Path = HERE) -> Path:
    """Write a figure as a PNG of 64 colours, which is a third of the size and looks the same."""
    data = io.BytesIO()
    figure.savefig(data, format="png")
    plt.close(figure)
    path = folder / name
    Image.open(data).convert("RGB").quantize(64, dither=Image.Dither.NONE).save(path, optimize=True)
    return path


def train(parameters, loss, steps: int, lr: float = 3e-3) -> None:
    """Minimise a loss with Adam and a rate that falls to zero."""
    optimizer = torch.optim.Adam(parameters, lr=lr)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(steps):
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()
        schedule.step()


def network(inputs: int, width: int = 64) -> torch.nn.Sequential:
    """Return a small network from inputs to features."""
    layers = [torch.nn.Linear(inputs, width), torch.nn.SiLU(), torch.nn.Linear(width, width), torch.nn.SiLU()]
    return torch.nn.Sequential(*layers)
