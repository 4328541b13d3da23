"""Train a forecaster further on one's own series: all weights or low-rank updates, stopped when it helps no more."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from fourier_head._devices import seeded
from fourier_head.errors import needing, whole_number
from fourier_head.forecasting.corpora.store import SeriesStore
from fourier_head.forecasting.corpora.windows import Windows, WindowSampler
from fourier_head.forecasting.inputs import read_series
from fourier_head.forecasting.patch.multiscale import MultiscaleConfig, MultiscaleForecaster
from fourier_head.forecasting.rolling import normalise
from fourier_head.forecasting.series_set import SeriesSet
from fourier_head.training.averages import EarlyStopping
from fourier_head.training.data import RandomStream
from fourier_head.training.loop import LossOf, Training
from fourier_head.training.settings import TrainingSettings

if TYPE_CHECKING:
    from fourier_head.forecasting.forecaster import Forecaster


AHEAD = 64
"""Steps that a fine-tuned forecaster is to be good at unless said otherwise; a network may reach much further."""


@dataclass(frozen=True)
class FineTuning:
    """How a fine-tuning went: steps and losses of its validations, the step whose weights were kept, and the last."""

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
    fill: float | None = None,
    aggregate: str | None = None,
    report: Callable[[int, int, float], None] | None = None,
) -> Forecaster:
    """Return a copy of a forecaster, trained on windows of the series.

    The last steps of every series are kept out of training; their loss decides when to stop and which weights to keep,
    so what comes back is never worse on them than what went in.

    Args:
        data: series as `Forecaster.predict` takes them.
        steps, epochs: how long, one of the two; an epoch sees about every value once as a target.
            200 steps unless given.
        lora: False to train all weights, a rank (True: 8) to train low-rank updates of the linear layers, merged in
            the end; needs peft.
        learning_rate: 1e-4, or 1e-3 for low-rank updates, unless given; it rises over the first tenth and falls to 0.
        batch: windows per step.
        horizon: steps to be good at, and to keep out of each series; 64 unless given.
        validate: whether to keep the last steps of each series out.
        patience: validations without a better loss after which to stop.
        every: steps between validations, a twentieth of all unless given.
        seed: of the windows, and of what training does at random.
        freq, id, time, target, fill, aggregate: as for `Forecaster.predict`.
        report: called with step, steps in all and the last validation loss (NaN before there is one).
    """
    config, device = forecaster.config, forecaster.device
    if steps is not None and epochs is not None:
        raise ValueError(f"steps or epochs must be given, not both, got {steps} and {epochs}.")
    counts = {"steps": steps, "batch": batch, "patience": patience, "every": every}
    _check_numbers(counts, {"horizon": horizon, "epochs": epochs, "learning_rate": learning_rate})
    ahead = min(AHEAD, config.horizon) if horizon is None else horizon
    if not 1 <= ahead <= config.horizon or ahead % 1:
        raise ValueError(f"horizon must be from 1 to the {config.horizon} of the model, got {horizon}.")
    if not isinstance(lora, Integral) or lora < 0:
        raise ValueError(f"lora must be True, False or a rank, a whole number from 1 on, got {lora!r}.")
    ahead, batch, patience, seed = int(ahead), int(batch), int(patience), whole_number("seed", seed, 0)
    series = read_series(data, freq=freq, id=id, time=time, target=target, fill=fill, aggregate=aggregate)
    training, held_out = _split(series, ahead if validate else 0, config.context)
    sampler = WindowSampler(training.to(device), config.context, ahead, cut_share=0.2)
    if steps is None:
        windows = training.values.numel() / ahead
        steps = 200 if epochs is None else max(1, math.ceil(epochs * windows / batch))
    steps, every = int(steps), int(every or max(1, steps // 20))
    rank = 8 if lora is True else int(lora)
    model = copy.deepcopy(forecaster.model)
    finish = _add_low_rank(model, rank) if rank else lambda: model
    stopping = None
    if held_out is not None:
        stopping = EarlyStopping(lambda: _mean_loss(model, held_out, 4 * batch, device), every, patience)
    run = Training(
        LossOf(model, _window_loss),
        lambda process: RandomStream(
            lambda generator: _shortened(sampler.sample(batch, generator), config), seed, device
        ),
        TrainingSettings(
            batch=batch,
            steps=steps,
            learning_rate=learning_rate or (1e-3 if rank else 1e-4),
            warmup=0.1,
            betas=(0.9, 0.999),
            log_every=1,
        ),
        device,
        stopping=stopping,
    )

    def tell(line: dict[str, float]) -> None:
        if report is not None:
            report(int(line["step"]), steps, stopping.scores[-1] if stopping is not None else math.nan)

    with seeded(seed, device):
        run.run(tell)
    tuned = type(forecaster)(finish().eval())
    seen = ((), (), run.step) if stopping is None else (tuple(stopping.steps), tuple(stopping.scores), stopping.best)
    tuned.history = [*forecaster.history, FineTuning(*seen, run.step)]
    return tuned


def _check_numbers(counts: Mapping[str, float | None], others: Mapping[str, float | None]) -> None:
    """Raise unless what is given are positive numbers, and counts whole ones; the horizon has limits of its own."""
    for name, value in {**counts, **others}.items():
        if value is not None and (not isinstance(value, Real) or isinstance(value, bool)):
            raise ValueError(f"{name} must be a number, got {value!r}.")
        if value is not None and name != "horizon" and not 0 < value < math.inf:
            raise ValueError(f"{name} must be positive, got {value}.")
        if value is not None and name in counts and value % 1:
            raise ValueError(f"{name} must be a whole number, got {value}.")


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


def _add_low_rank(model: MultiscaleForecaster, rank: int) -> Callable[[], MultiscaleForecaster]:
    """Put low-rank updates beside every linear layer and freeze the rest; return what merges them."""
    with needing("transformers"):
        from peft import LoraConfig, get_peft_model
    names = [name for name, module in model.named_modules() if isinstance(module, nn.Linear)]
    wrapped: Any = get_peft_model(model, LoraConfig(r=rank, lora_alpha=2 * rank, target_modules=names))
    # What was held fixed beside the updates may train again.
    return lambda: wrapped.merge_and_unload().requires_grad_(True)


def _window_loss(model: MultiscaleForecaster, context: Tensor, future: Tensor, period: Tensor) -> Tensor:
    """Return the loss of a forecaster on windows whose future need not be whole patches."""
    future = nn.functional.pad(future, (0, -future.shape[-1] % model.config.patch), value=math.nan)
    return model.loss(context, future, period)


def _shortened(windows: Windows, config: MultiscaleConfig) -> tuple[Tensor, Tensor, Tensor]:
    """Return windows without the patches before all of the series begin, which change nothing and cost time."""
    context = windows.context
    longest = context.shape[-1] - int((~context.isnan()).any(0).int().argmax())
    width = -(-longest // config.patch) * config.patch
    return context[:, -width:], windows.future, windows.period


def _mean_loss(model: MultiscaleForecaster, windows: Windows, batch: int, device: torch.device) -> float:
    """Return the mean loss over all future values that are known, with the same noise on them each time."""
    total, count = 0.0, 0
    with seeded(0, device):
        for start in range(0, len(windows.period), batch):
            part = windows.rows(slice(start, start + batch)).to(device)
            known = int((~part.future.isnan()).sum())
            total += float(_window_loss(model, *_shortened(part, model.config))) * known
            count += known
    return total / max(count, 1)
