"""Probabilistic regression with scikit-learn: intervals as wide as the data, and right as often as they say."""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from fourier_head import FourierRegressor


def rents(count: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return made-up flats: size, and whether the kitchen comes with them, which nobody wrote down."""
    size = rng.uniform(20, 140, count)
    furnished = rng.random(count) < 0.4
    rent = 200 + 9 * size + 4 * size * furnished + (0.9 * size) * rng.normal(size=count)
    return size[:, None], rent


def main(picture: Path, rows: int = 1500, epochs: int | str = "auto") -> None:
    rng = np.random.default_rng(0)
    X, y = rents(rows, rng)
    X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)
    model = make_pipeline(StandardScaler(), FourierRegressor(max_epochs=epochs, random_state=0))
    model.fit(X_train, y_train)

    levels = np.array([0.05, 0.25, 0.5, 0.75, 0.95])
    low, high = model.predict(X_test, quantiles=[0.05, 0.95]).T
    inside = np.mean((low <= y_test) & (y_test <= high))
    grid = np.linspace(20, 140, 200)[:, None]
    bands = model.predict(grid, quantiles=levels)

    figure, axes = plt.subplots(1, 2, figsize=(9.5, 3.8), layout="constrained")
    axes[0].plot(X_test[:, 0], y_test, ".", color="#666d78", ms=4)
    axes[0].fill_between(grid[:, 0], bands[:, 0], bands[:, 4], color="#0a5c9e", alpha=0.15, lw=0)
    axes[0].fill_between(grid[:, 0], bands[:, 1], bands[:, 3], color="#0a5c9e", alpha=0.25, lw=0)
    axes[0].plot(grid[:, 0], bands[:, 2], color="#0a5c9e")
    axes[0].set(title=f"{inside:.0%} of {len(y_test)} test flats lie in the 90 % interval", xlabel="m²", ylabel="rent")

    regressor, scaler = model[-1], model[0]
    at = np.array([[40.0], [80.0], [120.0]])
    density = regressor.predict_density(scaler.transform(at))
    values = np.linspace(200, 2200, 400)
    for i, colour in enumerate(("#3aa0dc", "#0a5c9e", "#009e73")):
        p = density.pdf(np.repeat(values[:, None], 3, axis=1))[:, i]
        axes[1].plot(values, p, color=colour, label=f"{at[i, 0]:.0f} m²")
    axes[1].set(title="the whole distribution of a flat's rent", xlabel="rent", yticks=[])
    axes[1].legend()
    figure.savefig(picture, dpi=90)


if __name__ == "__main__":
    main(Path(__file__).with_suffix(".png"))
