"""One stacked group of the discrete study: train it, measure every run of it against the known truth."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from fourier_head._devices import small_matrices
from fourier_head.fourier.series import bin_centers
from fourier_head.frequencies import recommend_head
from fourier_head.heads import released_floor
from fourier_head.heads.baselines import RegressionHead
from fourier_head.metrics import kl_divergence, smoothness
from fourier_head.tasks.runs import hardware, versions
from studies.synthetic import arms, data
from studies.synthetic.stack import FourierOptions, Schedule, draw_network, make_head, train

Report = Callable[[float, str], None]
EXAMPLES = 16
"""Test inputs whose predicted points are kept of a regression, for a figure to choose from."""


@dataclass(frozen=True)
class Protocol:
    """What a protocol means for every arm alike."""

    scaled_inputs: bool
    schedule: Schedule
    fourier: FourierOptions


PROTOCOLS = {
    # Raw bin indices as inputs and a constant learning rate, as the released code has them.
    "released": Protocol(False, Schedule(500, 32, 1e-3), FourierOptions.released(released_floor(data.NUM_BINS))),
    # Inputs scaled to [-1, 1], anywhere in their bins, and a cosine schedule, the same for every arm. Batch, jitter
    # and epochs were chosen by the likelihood of linear and Fourier heads on a fifth of the training rows.
    "recommended": Protocol(
        True, Schedule(150, 64, 3e-3, cosine=True, jitter=1 / data.NUM_BINS), FourierOptions(1e-4, 1000.0)
    ),
}


def train_group(
    protocol: str,
    kind: str,
    frequencies: Sequence[int],
    gammas: Sequence[float],
    packets: int,
    datasets: Sequence[data.DatasetName],
    seeds: Sequence[int],
    epochs: int | None = None,
    device: str = "cpu",
    report: Report | None = None,
    scored_on: Literal["test rows", "held-out rows"] = "test rows",
    init_scale: float | None = None,
) -> list[dict[str, Any]]:
    """Train all runs of a kind as one stack and return a record per run.

    The runs are the product of data sets, seeds and settings; ``kind`` "recommended" takes its settings from the
    training data of each run instead. For choices, ``scored_on`` takes part of the training rows in place of the test.
    What first weights of Fourier heads are divided by may be another ``init_scale`` than the protocol's.
    """
    chosen = PROTOCOLS[protocol]
    if init_scale is not None:
        chosen = replace(chosen, fourier=replace(chosen.fourier, init_scale=init_scale))
    triples = [data.draw(name, seed) for name in datasets for seed in seeds]
    if scored_on == "held-out rows":
        triples = [data.held_out(triple) for triple in triples]
    if kind == "recommended":
        return _recommended(protocol, triples, epochs, device, report)
    runs = arms.combinations(kind, frequencies, gammas, len(triples))
    return _train(chosen, kind, triples, runs, packets, epochs, device, report)


def _recommended(
    protocol: str, triples: list[data.Triples], epochs: int | None, device: str, report: Report | None
) -> list[dict[str, Any]]:
    """Train one run per data set and seed with the settings that the rule draws from its training part."""
    chosen = PROTOCOLS[protocol]
    rule = [
        recommend_head(
            np.clip(t.train_outcomes, -1, 1), features=t.train_inputs, num_bins=data.NUM_BINS, domain=(-1.0, 1.0)
        )
        for t in triples
    ]
    records = []
    for n in sorted({r.num_frequencies for r in rule}):
        same = [i for i, r in enumerate(rule) if r.num_frequencies == n]
        runs = [(j, n, rule[i].gamma) for j, i in enumerate(same)]
        part = [triples[i] for i in same]
        records += _train(chosen, "recommended", part, runs, rule[same[0]].packets, epochs, device, report)
    return records


def _train(
    protocol: Protocol,
    kind: str,
    triples: list[data.Triples],
    runs: list[tuple[int, int, float]],
    packets: int,
    epochs: int | None,
    device: str,
    report: Report | None,
) -> list[dict[str, Any]]:
    def inputs_of(values: np.ndarray) -> np.ndarray:
        ids = data.quantize(values)
        return bin_centers(data.NUM_BINS).numpy()[ids] if protocol.scaled_inputs else ids.astype(np.float32)

    def stacked(arrays: list[np.ndarray], dtype: torch.dtype) -> Tensor:
        return torch.as_tensor(np.stack(arrays), dtype=dtype, device=device)

    x = stacked([inputs_of(t.train_inputs) for t in triples], torch.float32)
    target = stacked([data.quantize(t.train_outcomes) for t in triples], torch.int64)
    schedule = protocol.schedule.shortened(epochs)
    clock = time.process_time if device == "cpu" else time.perf_counter  # of this process, whatever else runs
    begin = clock()
    networks = [
        draw_network(triples[d].seed, make_head(kind, protocol.fourier, n, gamma, packets)) for d, n, gamma in runs
    ]
    with small_matrices():
        progress = None if report is None else lambda share: report(share, f"epoch {round(share * schedule.epochs)}")
        train(networks, x, target, [d for d, _, _ in runs], schedule, report=progress)
    seconds = clock() - begin
    where = {"hardware": hardware(device != "cpu"), "versions": versions()}
    records = []
    for network, (d, n, gamma) in zip(networks, runs, strict=True):
        triple = triples[d]
        record = arms.record(triple, kind, n, packets, gamma)
        record |= {"stacked_runs": len(runs), "group_seconds": round(seconds, 1)} | where
        if kind == "recommended":
            # The rule may choose differently from seed to seed; the runs still belong together.
            record |= {"frequencies": None, "gamma": None, "chosen_frequencies": n, "chosen_gamma": gamma}
        with torch.no_grad():
            head = network.eval().head
            features = network.body(torch.as_tensor(inputs_of(triple.test_inputs), dtype=torch.float32))
            if isinstance(head, RegressionHead):
                prediction = head.predict(features).double()
                observed = torch.from_numpy(data.quantize(triple.test_outcomes))
                error = ((prediction - bin_centers(data.NUM_BINS, torch.float64)[observed]) ** 2).mean().item()
                record |= {"mse": error, "example": prediction[:EXAMPLES].tolist()}
            else:
                record |= _scores(head(features).double(), triple)
        records.append(record)
    return records


def _scores(log_pmf: Tensor, triple: data.Triples) -> dict[str, Any]:
    """Return the paper's three metrics of predicted log-probabilities (n, m)."""
    truth = torch.from_numpy(data.true_pmf(triple.name, triple.test_inputs))
    observed = torch.from_numpy(data.quantize(triple.test_outcomes))
    pmf, centers = log_pmf.exp(), bin_centers(data.NUM_BINS, torch.float64)
    place = (pmf * torch.arange(data.NUM_BINS)).sum(-1)
    return {
        # As released, 1e-10 is added: a linear head on raw indices predicts probabilities that round to zero.
        "kl": kl_divergence(truth, pmf + 1e-10).mean().item(),
        "smoothness": smoothness(pmf, max_sigma="released").mean().item(),
        # As released: the expected bin is rounded to a bin, whose centre is the prediction.
        "mse": ((centers[place.round().long()] - centers[observed]) ** 2).mean().item(),
        "nll": -log_pmf.gather(1, observed[:, None]).mean().item(),
        "example": [round(v, 5) for v in pmf[0].tolist()],
    }
