"""Forecasting with a backtest: how good were the forecasts that would have been made, and how often were they right?"""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from fourier_head import Forecaster
from fourier_head.cli.forecasting.example import example

HORIZON, LEVELS = 12, np.array([0.05, 0.25, 0.5, 0.75, 0.95])


def main(picture: Path, origins: int = 5) -> None:
    table = example()  # yours: pd.read_csv("sales.csv")
    series = table[table["series"] == "Museum visitors, monthly"]["value"].to_numpy()
    forecaster = Forecaster.from_pretrained("small")

    # Each forecast sees only what came before it; all of them run as one batch.
    backtest = forecaster.backtest(series, HORIZON, windows=origins, freq="MS")
    print(backtest.words)  # errors beside those of repeating the last year, and how often intervals were right
    quantiles = backtest.forecasts.quantiles(LEVELS)  # (origins, horizon, levels)
    starts, came = [len(past) for past in backtest.windows.pasts.values], backtest.windows.targets

    inside = np.mean((quantiles[..., 0] <= came) & (came <= quantiles[..., 4]))
    error = backtest.overall["mase"] / backtest.overall["naive_mase"]

    time = np.arange(len(series))
    figure, axis = plt.subplots(figsize=(9.5, 4), layout="constrained")
    axis.plot(time[-96:], series[-96:], color="black", lw=1, label="what came")
    for i, start in enumerate(starts):
        ahead = time[start : start + HORIZON]
        first = {"label": "90 % and 50 % intervals, median"} if i == 0 else {}
        axis.fill_between(ahead, quantiles[i, :, 0], quantiles[i, :, 4], color="#0a5c9e", alpha=0.18, lw=0)
        axis.fill_between(ahead, quantiles[i, :, 1], quantiles[i, :, 3], color="#0a5c9e", alpha=0.3, lw=0)
        axis.plot(ahead, quantiles[i, :, 2], color="#0a5c9e", **first)
        axis.axvline(start, color="#c9cfd7", lw=0.8, zorder=0)
    axis.set_title(
        f"{origins} forecasts of a year: {inside:.0%} in the 90 % interval, error {error:.2f} of last year's"
    )
    axis.set(xlabel="month", ylabel="visitors")
    axis.legend(loc="upper left")
    figure.savefig(picture, dpi=90)


if __name__ == "__main__":
    main(Path(__file__).with_suffix(".png"))
