"""Time a large table and what is asked of fitted models: ``python -m benchmarks.table_speed --device cuda``.

``fit``: 100,000 rows of 20 columns, or ``--rows``, with the seconds that it takes and the CRPS of 5000 test rows,
beside that of the law that they were drawn from, which no method can undercut by more than luck.
``quantiles`` and ``sample``: 199 quantiles and 100 draws of each of 957 rows by a model fitted to 2000 others, which is
timed, too.
Each is a row of ``results/table-speed.csv``: what, method, device, threads, seconds, processor seconds, CRPS, that
of the law, hardware.
Threads are as many as ``OMP_NUM_THREADS`` says, or all cores.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.files import RESULTS, append, parser_of
from benchmarks.table_methods import METHODS, Floats, Normal
from fourier_head.compare.results import hardware
from fourier_head.integrations.scikit_learn import FourierRegressor

COLUMNS = ("what", "method", "device", "threads", "seconds", "processor_seconds", "crps", "law_crps", "hardware")
LEVELS = np.arange(1, 200) / 200
ROWS, TEST_ROWS = 100_000, 5000
SMALL_ROWS, ASKED_ROWS = 2000, 957


def law(X: Floats) -> Normal:
    """Return the distributions of targets: bends, a product, a jump, noise that varies; six columns matter."""
    mean = 2 * np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + np.abs(X[:, 3]) + (X[:, 4] > 0.5)
    return Normal(mean, np.where(X[:, 5] > 0, 0.6, 0.3))


def table(rows: int, test: int) -> tuple[Floats, Floats, Floats, Floats]:
    """Return rows of 20 columns with their targets, and test rows with theirs."""
    random = np.random.default_rng(0)
    X = random.normal(size=(rows + test, 20))
    truth = law(X)
    y = truth.loc + truth.scale * random.normal(size=len(X))
    return X[:rows], y[:rows], X[rows:], y[rows:]


def timed(function: Callable[[], Any]) -> tuple[Any, float, float]:
    """Return what a function returns, the seconds it took and those that processors worked."""
    start, worked = time.perf_counter(), time.process_time()
    found = function()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return found, time.perf_counter() - start, time.process_time() - worked


def fitted(method: str, device: str, X: Floats, y: Floats) -> Callable[[Floats], Any]:
    """Fit a method and return what predicts distributions."""
    if method == "fourier":
        return FourierRegressor(random_state=0, device=device).fit(X, y).predict_density
    return METHODS[method](X, y, 0)


def rows_of(method: str, device: str, what: list[str], many: int = ROWS) -> list[list[Any]]:
    """Return the rows of one method: what, seconds, processor seconds and, of a fit, its CRPS and that of the law."""
    found: list[list[Any]] = []
    if "fit" in what:
        X, y, T, t = table(many, TEST_ROWS)
        predict, *seconds = timed(lambda: fitted(method, device, X, y))
        found.append([f"fit {many} x 20", *seconds, *scores(predict, T, t)])
    if {"quantiles", "sample"} & set(what):
        X, y, T, t = table(SMALL_ROWS, ASKED_ROWS)
        predict, *seconds = timed(lambda: fitted(method, device, X, y))
        found.append([f"fit {SMALL_ROWS} x 20", *seconds, *scores(predict, T, t)])
        asked = {
            "quantiles": ("199 quantiles of 957 rows", lambda: quantiles(predict(T))),
            "sample": ("100 draws of 957 rows", lambda: predict(T).sample(100)),
        }
        # Others are asked for what all of them can say.
        for name in [name for name in asked if name in what and (name == "quantiles" or method == "fourier")]:
            words, function = asked[name]
            _, *seconds = timed(function)
            found.append([words, *seconds, "", ""])
    return found


def scores(predict: Callable[[Floats], Any], X: Floats, y: Floats) -> tuple[float, float]:
    """Return the mean CRPS of what is predicted and of the law itself."""
    return float(predict(X).crps(y).mean()), float(law(X).crps(y).mean())


def quantiles(density: Any) -> Floats:
    """Return the quantiles at all levels, which bells of others have by their place and scale."""
    if hasattr(density, "quantile"):
        return density.quantile(LEVELS)
    from scipy.special import ndtri

    return density.loc[:, None] + density.scale[:, None] * ndtri(LEVELS)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--what", nargs="+", choices=["fit", "quantiles", "sample"], default=["fit"])
    parser.add_argument("--method", choices=["fourier", "ngboost", "catboost"], default="fourier")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rows", type=int, default=ROWS, help="of the large table")
    parser.add_argument("--output", type=Path, default=RESULTS / "table-speed.csv")
    arguments = parser.parse_args()
    if arguments.device != "cpu":  # the first call to a card starts it, which is no part of a fit
        torch.zeros(1, device=arguments.device).sum().item()
    rows = rows_of(arguments.method, arguments.device, arguments.what, arguments.rows)
    on = hardware()
    if arguments.device != "cpu":
        on = f"{torch.cuda.get_device_name()}, {on}"
    for what, *numbers in rows:
        shown = [f"{value:.4g}" if value != "" else "" for value in numbers]
        line = [what, arguments.method, arguments.device, torch.get_num_threads(), *shown, on]
        append(arguments.output, COLUMNS, line)
        print(*line, flush=True)


if __name__ == "__main__":
    main()
