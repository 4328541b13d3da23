"""How a patch forecaster is made: model, data and training in one description, and the function that follows it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from fourier_head._devices import best_device
from fourier_head.forecasting.corpora.augment import DEFAULT
from fourier_head.forecasting.corpora.mix import BatchStream, standard_corpus
from fourier_head.forecasting.corpora.store import SeriesStore
from fourier_head.forecasting.patch.model import PatchConfig, PatchForecaster
from fourier_head.training.loop import Training
from fourier_head.training.settings import TrainingSettings


class Objective(nn.Module):
    """Return the loss of a batch of windows.

    Args:
        model: the forecaster.
        naive_weighting: how far errors count in units of each series' own naive error, see ``PatchForecaster.loss``.
    """

    def __init__(self, model: PatchForecaster, naive_weighting: float = 0.0):
        super().__init__()
        self.model, self.naive_weighting = model, naive_weighting

    def forward(self, context: Tensor, future: Tensor, period: Tensor) -> Tensor:
        return self.model.loss(context, future, period, self.naive_weighting)


@dataclass(frozen=True)
class Recipe:
    """Describe a forecaster to train.

    Args:
        model: its shape and head.
        shares: parts of the corpus, see ``corpora.standard_corpus``.
        augment: whether windows are changed at random.
        naive_weighting: how errors of smooth and rough series weigh against each other, see ``PatchForecaster.loss``.
        seed: of weights and data.
    """

    model: PatchConfig = field(default_factory=PatchConfig)
    shares: Mapping[str, float] | str = "standard"
    augment: bool = True
    naive_weighting: float = 0.0
    seed: int = 0


def prepare(
    recipe: Recipe, store: SeriesStore | None, settings: TrainingSettings, device: str | None = None
) -> tuple[PatchForecaster, Training]:
    """Return the model of a recipe and the training of it, ready to run or to be continued."""
    torch.manual_seed(recipe.seed)
    model = PatchForecaster(recipe.model)
    place = device or best_device()

    def stream(rank: int) -> BatchStream:
        local = f"cuda:{os.environ.get('LOCAL_RANK', 0)}" if place == "cuda" else place
        corpus = standard_corpus(
            store,
            recipe.model.context,
            recipe.model.horizon,
            shares=recipe.shares,
            steps=DEFAULT if recipe.augment else (),
            device=local,
        )
        processes = int(os.environ.get("WORLD_SIZE", 1))
        return BatchStream(corpus, settings.batch // processes, recipe.seed, rank=rank)

    return model, Training(Objective(model, recipe.naive_weighting), stream, settings, device)


def train(
    recipe: Recipe,
    store: SeriesStore | None,
    settings: TrainingSettings,
    device: str | None = None,
    report: Callable[[dict[str, float]], None] | None = None,
) -> tuple[PatchForecaster, bool]:
    """Train a forecaster; return it with its averaged weights, where there are any, and whether the budget is spent."""
    model, training = prepare(recipe, store, settings, device)
    done = training.run(report)
    training.use_ema()
    return model.eval(), done
