"""A table with every kind of column, for the tests of comparisons."""

import numpy as np
import pandas as pd


def homes(rows=240, seed=0):
    """A table with every kind of column."""
    random = np.random.default_rng(seed)
    size = random.uniform(20, 200, rows)
    town = random.choice(["Ulm", "Rom", "Nizza"], rows)
    price = 3 * size + 100 * (town == "Rom") + random.normal(0, 20, rows)
    frame = pd.DataFrame({"size": size, "town": town, "price": price})
    frame["sold"] = pd.date_range("2020-01-01", periods=rows).strftime("%Y-%m-%d")
    frame["id"] = [f"home-{i}" for i in range(rows)]
    frame["country"] = "EU"
    frame.loc[::7, "size"] = np.nan
    frame.loc[::5, "town"] = None
    return frame
