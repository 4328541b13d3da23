"""Train a forecaster further on one's own series: all weights or low-rank updates, stopped when it helps no more."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from fourier_head.errors import needs_extra
from fourier_head.forecasting.corpora.store import SeriesStore
from fourier_head.forecasting.corpora.windows import Windows, WindowSampler
from fourier_head.forecasting.inputs import SeriesSet, read_series
from fourier_head.forecasting.patch.pretrained import Network
from fourier_head.forecasting.rolling import normalise
from fourier_head.training.loop import rate

if TYPE_CHECKING:
    from fourier_head.forecasting.forecaster import Forecaster


@dataclass(frozen=True)
class FineTuning:
    """Say how a fine-tuning went: the validation loss at each look, the step that was kept, and all steps made."""

    steps: tuple[int, ...]
    losses: tuple[float, ...]
    best: int
    last: int


def fine_tune(
    forecaster: Forecaster,
    data: Any,
    *,
    steps: int | None = None,
    epochs: float | None = None,
    lora: bool | int = False,
    learning_rate: float | None = None,
    batch: int = 64,
    horizon: int | None = None,
    validate: bool = True,
    patience: int = 5,
    every: int | None = None,
    seed: int = 0,
    freq: str | None = None,
    id: str | Sequence[str] | None = None,
    time: str | None = None,
    target: str | None = None,
    report: Callable[[int, int, float], None] | None = None,
) -> Forecaster:
    """Return a copy of a forecaster, trained on windows of the series.

    The last steps of every series are kept out of training; their loss decides when to stop and which weights to keep,
    so what comes back is never worse on them than what went in.

    Arguments:
        data: series as `Forecaster.predict` takes them.
        steps, epochs: how long, one of the two; an epoch sees about every value once as a target.
            200 steps unless given.
        lora: False to train all weights, a rank (True: 8) to train low-rank updates of the linear layers, merged in
            the end; needs peft.
        learning_rate: 1e-4, or 1e-3 for low-rank updates, unless given; it rises over the first tenth and falls to 0.
        batch: windows per step.
        horizon: steps to be good at; those of the model unless given.
        validate: whether to keep the last steps of each series out.
        patience: looks without a better validation loss after which to stop.
        every: steps between looks, a twentieth of all unless given.
        seed: of the windows.
        freq, id, time, target: as for `Forecaster.predict`.
        report: called with step, steps in all and the last validation loss (NaN before there is one).
    """
    from fourier_head.forecasting.forecaster import Forecaster

    config = forecaster.config
    ahead = config.horizon if horizon is None else horizon
    if not 1 <= ahead <= config.horizon or ahead % 1:
        raise ValueError(f"horizon must be from 1 to the {config.horizon} of the model, got {horizon}.")
    if steps is not None and epochs is not None:
        raise ValueError(f"steps or epochs must be given, not both, got {steps} and {epochs}.")
    counts = {"steps": steps, "batch": batch, "patience": patience, "every": every}
    for name, value in {**counts, "epochs": epochs, "learning_rate": learning_rate}.items():
        if value is not None and not 0 < value < math.inf:
            raise ValueError(f"{name} must be positive, got {value}.")
        if value is not None and name in counts and value % 1:
            raise ValueError(f"{name} must be a whole number, got {value}.")
    series = data if isinstance(data, SeriesSet) else read_series(data, freq=freq, id=id, time=time, target=target)
    training, held_out = _split(series, ahead if validate else 0, config.context)
    sampler = WindowSampler(training.to(forecaster.device), config.context, ahead, cut_share=0.2)
    if steps is None:
        windows = training.values.numel() / ahead
        steps = 200 if epochs is None else max(1, math.ceil(epochs * windows / batch))
    rank = 8 if lora is True else int(lora)
    model = copy.deepcopy(forecaster.model)
    trained, finish = (_all_weights if not rank else _low_rank)(model, rank)
    optimizer = torch.optim.AdamW(trained, lr=learning_rate or (1e-3 if rank else 1e-4), weight_decay=0.01)
    run = _Run(model, trained, optimizer, sampler, held_out, batch, seed)
    outcome = run.train(steps, every or max(1, steps // 20), patience, report)
    tuned = Forecaster(finish())
    tuned.history = [*forecaster.history, outcome]
    return tuned


def _split(series: SeriesSet, ahead: int, context: int) -> tuple[SeriesStore, Windows | None]:
    """Return the series to train on, and windows on their last steps: at most ``ahead`` of them and a third of each."""
    kept, periods, pasts, futures, told = [], [], [], [], []
    for values, period in zip(series.values, series.periods, strict=True):
        there = np.flatnonzero(~np.isnan(values))
        if len(there) < 2:
            continue
        values = values[there[0] : there[-1] + 1]
        scaled = normalise(torch.from_numpy(values)[None])[0][0].float().numpy()
        size = min(ahead, len(scaled) // 3)
        kept.append(scaled[: len(scaled) - size] if size else scaled)
        periods.append(int(period))
        if size:
            past = scaled[: len(scaled) - size][-context:]
            pasts.append(np.pad(past, (context - len(past), 0), constant_values=np.nan))
            futures.append(np.pad(scaled[-size:], (0, ahead - size), constant_values=np.nan))
            told.append(int(period))
    if not kept:
        raise ValueError("no series has two values or more, so there is nothing to train on.")
    store = SeriesStore.from_series(kept, period=periods)
    if not pasts:
        return store, None
    return store, Windows(torch.from_numpy(np.stack(pasts)), torch.from_numpy(np.stack(futures)), torch.tensor(told))


def _all_weights(model: Network, rank: int) -> tuple[list[Tensor], Callable[[], Network]]:
    return list(model.parameters()), lambda: model


def _low_rank(model: Network, rank: int) -> tuple[list[Tensor], Callable[[], Network]]:
    """Put low-rank updates beside every linear layer; return what trains, and what merges them."""
    try:
        from peft import LoraConfig, get_peft_model
    except ImportError as error:
        raise needs_extra(error, "transformers") from None
    names = [name for name, module in model.named_modules() if isinstance(module, nn.Linear)]
    wrapped: Any = get_peft_model(model, LoraConfig(r=rank, lora_alpha=2 * rank, target_modules=names))
    trained: list[Tensor] = [p for p in model.parameters() if p.requires_grad]

    def merge() -> Network:
        # What was held fixed beside the updates may train again.
        return wrapped.merge_and_unload().requires_grad_(True)

    return trained, merge


@dataclass
class _Run:
    """The loop: draw windows, step, and look at the held-out steps from time to time."""

    model: Network
    trained: list[Tensor]
    optimizer: torch.optim.Optimizer
    sampler: WindowSampler
    held_out: Windows | None
    batch: int
    seed: int

    def train(
        self, steps: int, every: int, patience: int, report: Callable[[int, int, float], None] | None
    ) -> FineTuning:
        generator = torch.Generator(self.sampler.device).manual_seed(self.seed)
        peak = self.optimizer.param_groups[0]["lr"]
        looks, losses = ([0], [self.validation_loss()]) if self.held_out is not None else ([], [])
        best, kept, step = 0, self._weights(), 0
        for step in range(1, steps + 1):
            self.model.train()
            for group in self.optimizer.param_groups:
                group["lr"] = peak * rate((step - 0.5) / steps, 0.1)
            windows = self.sampler.sample(self.batch, generator)
            loss = self._loss(windows)
            if not bool(loss.isfinite()):
                raise ValueError(f"the loss is {float(loss)} at step {step}; a lower learning_rate may help.")
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(self.trained, 1.0)
            self.optimizer.step()
            if self.held_out is not None and (step % every == 0 or step == steps):
                looks.append(step)
                losses.append(self.validation_loss())
                if losses[-1] < min(losses[:-1]):
                    best, kept = step, self._weights()
                elif len(losses) - 1 - int(np.argmin(losses)) >= patience:
                    break
            if report is not None:
                report(step, steps, losses[-1] if losses else math.nan)
        if self.held_out is not None:
            with torch.no_grad():
                for parameter, value in zip(self.trained, kept, strict=True):
                    parameter.copy_(value)
        else:
            best = step
        self.model.eval()
        return FineTuning(tuple(looks), tuple(losses), best, step)

    def _weights(self) -> list[Tensor]:
        return [parameter.detach().clone() for parameter in self.trained]

    def _loss(self, windows: Windows) -> Tensor:
        config, context, future = self.model.config, windows.context, windows.future
        future = nn.functional.pad(future, (0, config.horizon - future.shape[-1]), value=math.nan)
        # Patches before all of the series begin change nothing and cost time.
        longest = context.shape[-1] - int((~context.isnan()).any(0).int().argmax())
        width = -(-longest // config.patch) * config.patch
        return self.model.loss(context[:, -width:], future, windows.period)

    @torch.no_grad()
    def validation_loss(self) -> float:
        """Return the mean loss over the last steps of every series."""
        assert self.held_out is not None
        self.model.eval()
        total, count = 0.0, 0
        for start in range(0, len(self.held_out.period), 4 * self.batch):
            part = self.held_out.rows(slice(start, start + 4 * self.batch)).to(self.sampler.device)
            known = int((~part.future.isnan()).sum())
            total += float(self._loss(part)) * known
            count += known
        return total / max(count, 1)
