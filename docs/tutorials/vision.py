"""Swap the head of a vision model for depth bins: a disc in fog is small and near, or large and far."""

from pathlib import Path

import matplotlib.pyplot as plt
import torch
from transformers import ViTConfig, ViTForImageClassification

from fourier_head import replace_head

BINS = 64  # depths from 1 to 9 metres
FOG = 0.5  # deviation of the noise in a pixel


def scenes(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return images (count, 1, 16, 16) of a disc of one of two sizes, and the bin of its depth."""
    size = torch.where(torch.rand(count) < 0.5, 9.0, 18.0)
    depth = 1 + 8 * torch.rand(count)
    radius = size / (depth + 1)
    line = torch.arange(16) - 7.5
    distance = (line[:, None] ** 2 + line**2).sqrt()
    images = torch.sigmoid(2 * (radius[:, None, None] - distance))[:, None] + FOG * torch.randn(count, 1, 16, 16)
    return images, ((depth - 1) / 8 * BINS).long().clamp(max=BINS - 1)


def main(picture: Path, steps: int = 250) -> None:
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    config = ViTConfig(**sizes, image_size=16, patch_size=4, num_channels=1, num_labels=BINS)
    torch.manual_seed(1)
    images, labels = scenes(800)
    unseen, truth = scenes(1000)
    figure, axes = plt.subplots(3, 2, figsize=(8, 5.4), width_ratios=(1, 4), layout="constrained")
    for fourier, name, colour in ((False, "linear head", "#d55e00"), (True, "Fourier head", "#0a5c9e")):
        torch.manual_seed(0)
        model = ViTForImageClassification(config)  # a real one: from_pretrained("google/vit-base-patch16-224")
        if fourier:
            # Near and far are no neighbours, hence "reflect"; answers are wide, so few frequencies do.
            replace_head(model, num_bins=BINS, num_frequencies=10, boundary="reflect")
        optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
        for _ in range(steps):
            rows = torch.randint(len(images), (64,))
            optimizer.zero_grad()
            model(images[rows], labels=labels[rows]).loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            found = model(unseen, labels=truth)
        label = f"{name}: {found.loss:.2f} nats on unseen images"
        for row, p in zip(axes, found.logits[:3].softmax(-1), strict=True):
            row[1].step(torch.linspace(1, 9, BINS), p, where="mid", color=colour, label=label)
    for row, image in zip(axes, unseen[:3], strict=True):
        row[0].imshow(image[0], cmap="gray")
        row[0].set_axis_off()
        row[1].set(yticks=[], xlim=(1, 9))
    axes[0, 1].set_title("How far away is the disc in the fog? 800 images, 64 bins")
    axes[0, 1].legend()
    axes[-1, 1].set_xlabel("metres")
    figure.savefig(picture, dpi=90)


if __name__ == "__main__":
    main(Path(__file__).with_suffix(".png"))
