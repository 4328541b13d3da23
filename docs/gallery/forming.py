"""The animation: a density that forms during training. `python docs/gallery/forming.py` writes forming.gif."""

from __future__ import annotations

import io
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from learned import ONE, mixture
from look import BLUE, HERE, ORANGE, TRUTH
from PIL import Image

from fourier_head import Bins, FourierHead, LinearHead


def forming(folder: Path = HERE, frames: int = 30) -> Path:
    """Train both heads on the same 400 values and draw them on the way."""
    torch.manual_seed(0)
    truth, bins = mixture((0.55, -0.45, 0.12), (0.45, 0.4, 0.18)), Bins.uniform(100, -1, 1)
    ids, x, z = bins.encode(truth.sample((400,)).clamp(-0.999, 0.999)), ONE.expand(400, 1), torch.linspace(-1, 1, 400)
    heads = {ORANGE: LinearHead(1, domain=bins), BLUE: FourierHead(1, domain=bins, num_frequencies=10)}
    optimizers = [torch.optim.Adam(head.parameters(), lr=0.03) for head in heads.values()]
    pictures, step = [], 0
    for frame in range(frames):
        figure, axis = plt.subplots(figsize=(6.2, 3.2), dpi=90)
        axis.fill_between(z, truth.log_prob(z).exp(), color=TRUTH, lw=0)
        for (colour, head), name in zip(heads.items(), ("linear layer", "Fourier head"), strict=True):
            with torch.no_grad():
                axis.step(bins.centers, head(ONE)[0].exp() * 50, where="mid", color=colour, lw=1.4, label=name)
        axis.set(title=f"step {step}", ylim=(0, 3.4), yticks=[])
        axis.legend(loc="upper right")
        data = io.BytesIO()
        figure.savefig(data, format="png")
        plt.close(figure)
        pictures.append(Image.open(data).convert("RGB").quantize(32, dither=Image.Dither.NONE))
        for _ in range(1 + frame // 2):  # slower at first, where most happens
            step += 1
            for head, optimizer in zip(heads.values(), optimizers, strict=True):
                optimizer.zero_grad()
                head.loss(x, ids).backward()
                optimizer.step()
    path = folder / "forming.gif"
    pace = [150] * (frames - 1) + [2500]
    pictures[0].save(path, save_all=True, append_images=pictures[1:], duration=pace, loop=0, optimize=True)
    return path


if __name__ == "__main__":
    print(forming())
