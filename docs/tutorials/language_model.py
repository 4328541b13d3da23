"""A language model that answers with a number: a question with two right answers gets a density with two modes."""

from pathlib import Path

import matplotlib.pyplot as plt
import torch

from fourier_head import NumberLM
from fourier_head.integrations.language_models import tiny_model

QUESTIONS = ["temperature in january:", "temperature in july:", "temperature in january or july:"]


def draw(question: str, count: int) -> torch.Tensor:
    """Return true answers: around 2 degrees in January, around 24 in July, either one if both are asked."""
    cold, warm = 2 + 3 * torch.randn(count), 24 + 2 * torch.randn(count)
    if "or" in question.split():
        return torch.where(torch.rand(count) < 0.5, cold, warm)
    return cold if "january" in question else warm


def main(picture: Path, rows: int = 120, epochs: int = 12) -> None:
    torch.manual_seed(0)
    # A tiny random Llama stands in for a real one: NumberLM.from_pretrained("HuggingFaceTB/SmolLM2-135M", ...)
    model, tokenizer = tiny_model(text=" ".join(QUESTIONS))
    lm = NumberLM(model, tokenizer, low=-15, high=40, num_bins=110, num_frequencies=12)

    prompts = [question for question in QUESTIONS for _ in range(rows)]
    values = torch.cat([draw(question, rows) for question in QUESTIONS])
    lm.fine_tune(prompts, values, lora=False, epochs=epochs, lr=3e-3, batch_size=32)

    density = lm.predict(QUESTIONS)  # one distribution per prompt
    grid = torch.linspace(-15, 40, 400)
    p = density.log_prob(grid[:, None]).exp()
    mean, (low, high) = density.mean, density.quantile([0.05, 0.95])

    figure, axes = plt.subplots(1, 3, figsize=(10, 3), sharey=True, layout="constrained")
    for i, (axis, question) in enumerate(zip(axes, QUESTIONS, strict=True)):
        axis.hist(draw(question, 4000), 80, density=True, color="#c9cfd7", label="truth")
        axis.plot(grid, p[:, i], color="#0a5c9e", label="the model's answer")
        axis.axvspan(float(low[i]), float(high[i]), color="#0a5c9e", alpha=0.08, label="90 % interval")
        axis.axvline(float(mean[i]), color="#d55e00", ls="--", label="its mean")
        axis.set(title=question, xlabel="degrees", xlim=(-15, 40))
    axes[0].legend(fontsize=8)
    figure.savefig(picture, dpi=90)


if __name__ == "__main__":
    main(Path(__file__).with_suffix(".png"))
