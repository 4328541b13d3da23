"""A small table to try the forecaster on: four made-up series of different kinds and frequencies."""

from __future__ import annotations

import numpy as np
import pandas as pd


def example(seed: int = 7) -> pd.DataFrame:
    """Return a long table of four series, drawn from a seed: trend and seasons, weekdays, hours, and rare demand.

    >>> table = example()
    >>> list(table.columns), table["series"].nunique()
    (['series', 'timestamp', 'value'], 4)
    """
    random = np.random.default_rng(seed)
    parts = {
        "Museum visitors, monthly": _monthly(random),
        "Bakery sales, daily": _daily(random),
        "Bicycle rentals, hourly": _hourly(random),
        "Spare parts, weekly": _rare(random),
    }
    frames = [pd.DataFrame({"series": name, "timestamp": t, "value": v}) for name, (t, v) in parts.items()]
    return pd.concat(frames, ignore_index=True)


def _noise(random: np.random.Generator, count: int, memory: float) -> np.ndarray:
    """Return noise of deviation one whose neighbours are alike."""
    out = random.standard_normal(count)
    for i in range(1, count):
        out[i] = memory * out[i - 1] + np.sqrt(1 - memory**2) * out[i]
    return out


def _monthly(random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    time = np.arange("2012-01", "2024-07", dtype="datetime64[M]")
    t = np.arange(len(time))
    season = 0.32 * np.sin(2 * np.pi * (t - 3.5) / 12) + 0.08 * np.sin(4 * np.pi * (t - 1) / 12)
    value = 18_000 * np.exp(0.0045 * t + season + 0.05 * _noise(random, len(t), 0.6))
    return time.astype("datetime64[ns]"), np.round(value)


def _daily(random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    time = np.arange("2023-10-02", "2024-06-10", dtype="datetime64[D]")
    weekday = (time.astype(int) + 3) % 7
    value = np.array([410, 380, 400, 430, 560, 790, 640])[weekday] * np.exp(0.07 * _noise(random, len(time), 0.4))
    value[random.random(len(time)) < 0.02] = np.nan
    return time.astype("datetime64[ns]"), np.round(value, 1)


def _hourly(random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    time = np.arange("2024-05-20T00", "2024-06-10T09", dtype="datetime64[h]")
    hour = time.astype(int) % 24
    day = (time.astype("datetime64[D]").astype(int) + 3) % 7
    work = (
        np.exp(-((hour - 8) ** 2) / 3)
        + 1.3 * np.exp(-((hour - 17.5) ** 2) / 6)
        + 0.25 * np.exp(-((hour - 13) ** 2) / 20)
    )
    rest = 1.1 * np.exp(-((hour - 15) ** 2) / 22)
    level = 12 + 420 * np.where(day < 5, work, rest) * np.exp(0.18 * _noise(random, len(time), 0.9))
    return time.astype("datetime64[ns]"), random.poisson(level).astype(float)


def _rare(random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    time = np.arange("2021-01-04", "2024-06-10", 7, dtype="datetime64[D]")
    value = np.where(random.random(len(time)) < 0.3, 1 + random.poisson(2.2, len(time)), 0)
    return time.astype("datetime64[ns]"), value.astype(float)
