"""FourierRegressor: a network with any head as a scikit-learn estimator."""

from __future__ import annotations

import math
import numbers
import warnings
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
from torch import Tensor

from fourier_head import tabular
from fourier_head._cpu import small_matrices
from fourier_head._devices import chosen_device
from fourier_head.bins import Bins
from fourier_head.domains import Interval
from fourier_head.errors import UserError, did_you_mean
from fourier_head.frequencies import recommend_head
from fourier_head.heads import FourierHead, Head
from fourier_head.heads.baselines import HLGaussHead, LinearHead, MixtureHead
from fourier_head.integrations.scikit_learn.predictive import Floats, Frame, PredictiveDistribution, quiet

HEADS = ("fourier", "mixture", "hl-gauss", "linear")
MIXTURES = ("mixture", "gmm")
"""The second is what ``fourier-head compare`` calls it."""
MARGIN = 0.1
"""The interval reaches this share of the range of the training targets beyond either end."""
MOST_FREQUENCIES = 128
CRPS_WEIGHT = 10.0
"""How much the CRPS of a standardised target counts beside its likelihood, where both are learned."""
FEWEST_HELD_OUT = 10
FARTHEST = 10.0
"""Standardised inputs are cut here: one absurd feature must not decide the whole prediction of a row."""


class FlooredMixtureHead(MixtureHead):
    """A mixture with one more, flat component of a small fixed share, as the floor of a Fourier head."""

    share = 1e-4

    def components(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        logits, loc, scale = super().components(x)
        flat = torch.ones_like(logits[..., :1])
        logits = torch.cat([logits.log_softmax(-1) + math.log1p(-self.share), math.log(self.share) * flat], -1)
        # Fifty times as wide as the interval is flat to the fourth digit.
        return logits, torch.cat([loc, 0 * flat], -1), torch.cat([scale, 100 * flat], -1)


class FourierRegressor(RegressorMixin, BaseEstimator):
    """Predict the distribution of a number from a row of numbers.

    A small network ends in a Fourier head; inputs and target are standardised inside. Part of the rows is held out: the
    weights kept are those that predict it best.

    Args:
        head: "fourier", or a head to compare it with: "mixture" or "gmm" (of Gaussians), "hl-gauss" or "linear"
            (histograms).
        num_frequencies: of the Fourier head; "auto" reads them from the data (``recommend_head``), 128 at most.
        packets: wave packets of the Fourier head.
        num_components: Gaussians of the mixture.
        num_bins: of the histograms.
        hidden_sizes: widths of the layers.
        loss: "likelihood", "crps", or "both", their weighted sum, a proper score like either of them. The likelihood
            says nothing of how far a value lies from where it was expected, the CRPS does, and keeps narrow peaks from
            being stuck. Histograms learn by cross-entropy instead of the likelihood. Weights are chosen by the
            likelihood unless the loss is "crps".
        max_epochs: passes through the rows; "auto" plans some thousands of steps.
        batch_size: rows per step; "auto" goes by their number.
        learning_rate: at the start; it falls to zero along a cosine.
        weight_decay: of all weights, as in AdamW.
        validation_fraction: share of the rows that choose the weights; with 0, or fewer than ten rows, the training
            rows do.
        patience: stop after this many epochs without a better score on those rows; None goes on to the end.
        random_state: seed, generator or None; a whole number makes fits repeatable.
        device: "cpu", "cuda", ... or "auto" for the best there is.
        verbose: 1 prints the score ten times, 2 whenever it is measured.

    Attributes:
        n_features_in_, feature_names_in_: as everywhere in scikit-learn.
        network_: the trained network.
        num_frequencies_: of its Fourier head.
        best_epoch_, n_iter_: the epoch whose weights were kept, and the last one.
        validation_scores_: pairs of epoch and loss on the held-out rows, target standardised.

    Example:
        >>> import numpy as np
        >>> from fourier_head.integrations.scikit_learn import FourierRegressor
        >>> random = np.random.default_rng(0)
        >>> X = random.uniform(-1, 1, (300, 1))
        >>> y = 4 * X[:, 0] + (0.1 + 0.4 * (X[:, 0] > 0)) * random.normal(size=300)
        >>> model = FourierRegressor(max_epochs=20, random_state=0).fit(X, y)
        >>> model.predict([[-0.5], [0.5]]).round().tolist()
        [-2.0, 2.0]
        >>> low, high = model.predict_density([[-0.5], [0.5]]).interval(0.9).T
        >>> bool((high - low)[1] > 2 * (high - low)[0])
        True
    """

    def __init__(
        self,
        head: str = "fourier",
        *,
        num_frequencies: int | Literal["auto"] = "auto",
        packets: int | Literal["auto"] = "auto",
        num_components: int = 3,
        num_bins: int = 100,
        hidden_sizes: Sequence[int] = tabular.WIDTHS,
        loss: Literal["both", "likelihood", "crps"] = "both",
        max_epochs: int | Literal["auto"] = "auto",
        batch_size: int | Literal["auto"] = "auto",
        learning_rate: float = 1e-2,
        weight_decay: float = 0.0,
        validation_fraction: float = 0.15,
        patience: int | None = None,
        random_state: Any = None,
        device: str = "cpu",
        verbose: int = 0,
    ):
        self.head = head
        self.num_frequencies = num_frequencies
        self.packets = packets
        self.num_components = num_components
        self.num_bins = num_bins
        self.hidden_sizes = hidden_sizes
        self.loss = loss
        self.max_epochs = max_epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    # --- training

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> FourierRegressor:
        """Learn from rows X (n, features), targets y (n,) and, if given, the weight of each row."""
        self._check()
        X, y = validate_data(self, X, y, dtype=np.float64, y_numeric=True, ensure_min_samples=2)
        y = y.astype(np.float64)  # text that is no number ends here
        weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        if not weights.any():  # newer releases of scikit-learn have said so already
            raise ValueError("sample_weight must be positive for at least one row, got zero for all of them.")
        # A row without weight must not move scales, intervals or the choice of an epoch either.
        X, y, weights = X[weights > 0], y[weights > 0], weights[weights > 0]
        random = check_random_state(self.random_state)
        seed = int(random.randint(2**31 - 1))
        device = torch.device(self._device())

        self._center, deviation = X.mean(0), X.std(0)
        self._scale = np.where(deviation > 1e-12 * np.abs(X).max(0), deviation, 1.0)
        self._frame = _frame(y)
        inputs, values = self._inputs(X), self._frame.standardised(y)
        make_head = self._head_maker(inputs, values)
        order = random.permutation(len(y))
        held = round(self.validation_fraction * len(y)) if len(y) >= FEWEST_HELD_OUT else 0
        chosen, trained = (order[:held], order[held:]) if held else (order, order)

        bins = Bins.uniform(self.num_bins, self._frame.low, self._frame.high)
        columns = [
            torch.from_numpy(inputs),
            torch.from_numpy(values).float(),
            bins.encode(values),
            torch.from_numpy(weights / weights.mean()).float(),
        ]
        training = [column[trained].to(device) for column in columns]
        validation = [column[chosen].to(device) for column in columns]
        histogram = self.head in ("hl-gauss", "linear")

        with torch.random.fork_rng(devices=[]), small_matrices() if device.type == "cpu" else nullcontext():
            torch.manual_seed(seed)
            network = tabular.Network(X.shape[1], tuple(self.hidden_sizes), make_head).to(device)

            def losses(x: Tensor, value: Tensor, ids: Tensor) -> Tensor:
                features, head = network.body(x), network.head
                density: Any = head.density(features)
                if self.loss == "crps":
                    return density.crps(value)
                if histogram and head.training:
                    likelihood = head.loss(features, ids, reduction="none")
                else:
                    likelihood = -density.log_prob(value)
                if self.loss == "likelihood" or not head.training:
                    return likelihood
                return likelihood + CRPS_WEIGHT * density.crps(value)

            def loss(x: Tensor, value: Tensor, ids: Tensor, weight: Tensor) -> Tensor:
                return (losses(x, value, ids) * weight).mean()

            def score() -> float:
                pieces = zip(*(column.split(2048) for column in validation), strict=True)
                total = sum(float((losses(x, v, i) * w).double().sum()) for x, v, i, w in pieces)
                return total / max(float(validation[3].double().sum()), 1e-300)

            course = tabular.fit(
                network,
                training,
                loss,
                score,
                self._schedule(len(trained)),
                seed=seed,
                learning_rate=self.learning_rate,
                weight_decay=self.weight_decay,
                patience=self.patience,
                interruptible=True,
                progress=self._progress(len(trained)),
            )
        if course.interrupted:
            warnings.warn(
                f"fit was interrupted; the weights of epoch {course.best_epoch} are kept.", ConvergenceWarning, 2
            )
        # In float64 the prediction for a row does not depend on the rows beside it; Apple's GPUs have none.
        self.network_ = network if device.type == "mps" else network.double()
        self.num_frequencies_ = getattr(network.head, "num_frequencies", None)
        self.best_epoch_, self.validation_scores_ = course.best_epoch, course.history
        self.n_iter_ = course.history[-1][0] if course.history else 0
        return self

    def _check(self) -> None:
        """Raise one sentence for a setting that cannot be."""
        if self.head not in (*HEADS, *MIXTURES):
            raise ValueError(f"head must name a head, got {self.head!r}; {did_you_mean(str(self.head), HEADS)}")
        if self.loss not in ("both", "likelihood", "crps"):
            raise ValueError(f"loss must be 'both', 'likelihood' or 'crps', got {self.loss!r}.")
        least = {
            "num_frequencies": 1,
            "packets": 0,
            "num_components": 1,
            "num_bins": 2,
            "max_epochs": 1,
            "batch_size": 1,
        }
        for name, smallest in least.items():
            value = getattr(self, name)
            automatic = name in ("num_frequencies", "packets", "max_epochs", "batch_size")
            if automatic and value == "auto":
                continue
            if not isinstance(value, numbers.Integral) or value < smallest:
                words = "'auto' or " if automatic else ""
                raise ValueError(f"{name} must be {words}a whole number of at least {smallest}, got {value!r}.")
        sizes = list(self.hidden_sizes) if isinstance(self.hidden_sizes, Iterable) else []
        if not sizes or not all(isinstance(w, numbers.Integral) and w > 0 for w in sizes):
            raise ValueError(f"hidden_sizes must be a list of whole numbers above 0, got {self.hidden_sizes!r}.")
        if not self.learning_rate > 0 or self.weight_decay < 0:
            raise ValueError(
                f"learning_rate must be positive and weight_decay not negative, got {self.learning_rate} and "
                f"{self.weight_decay}."
            )
        if not 0 <= self.validation_fraction <= 0.9:
            raise ValueError(f"validation_fraction must lie between 0 and 0.9, got {self.validation_fraction}.")

    def _device(self) -> str:
        try:
            return chosen_device(str(self.device), "device")
        except UserError as error:
            raise ValueError(str(error)) from None

    def _head_maker(self, inputs: np.ndarray, values: Floats) -> Callable[[int], Head]:
        """Return a function that makes the head for features of some size."""
        low, high = self._frame.low, self._frame.high
        domain = Interval(low, high)
        if self.head in MIXTURES:
            return lambda size: FlooredMixtureHead(size, self.num_bins, self.num_components, domain=domain)
        if self.head != "fourier":
            kind = HLGaussHead if self.head == "hl-gauss" else LinearHead
            return lambda size: kind(size, self.num_bins, domain=domain)
        options: dict[str, Any] = {"num_frequencies": 8, "packets": 4}
        if np.ptp(values) > 0:
            features = inputs if inputs.std(0).any() else None
            options = recommend_head(values, features=features, domain=(low, high)).as_options()
            # Made for densities as wide as a tenth of the range: the roughness of narrow ones would outweigh all else.
            options["gamma"] = 0.0
            options["num_frequencies"] = min(options["num_frequencies"], MOST_FREQUENCIES)
        if self.num_frequencies != "auto":
            options["num_frequencies"] = int(self.num_frequencies)
        if self.packets != "auto":
            options["packets"] = int(self.packets)
        return lambda size: FourierHead(size, domain=domain, boundary="reflect", **options)

    def _schedule(self, rows: int) -> tabular.Schedule:
        epochs = None if self.max_epochs == "auto" else int(self.max_epochs)
        return tabular.Schedule.for_rows(rows, epochs, None if self.batch_size == "auto" else int(self.batch_size))

    def _progress(self, rows: int) -> Callable[[int, float], None] | None:
        if not self.verbose:
            return None
        schedule = self._schedule(rows)
        every = schedule.check_every if self.verbose > 1 else max(1, schedule.epochs // 10)

        def say(epoch: int, score: float) -> None:
            if epoch % every == 0 or epoch == schedule.epochs:
                print(f"[FourierRegressor] epoch {epoch} of {schedule.epochs}: validation loss {score:.4f}", flush=True)

        return say

    def _inputs(self, X: np.ndarray) -> np.ndarray:
        return np.clip((X - self._center) / self._scale, -FARTHEST, FARTHEST).astype(np.float32)

    # --- prediction

    def predict_density(self, X: Any) -> PredictiveDistribution:
        """Return the predicted distributions, one per row: pdf, cdf, quantile, sample, mean, std, entropy, crps."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        device = next(self.network_.parameters()).device
        with torch.inference_mode(), quiet(device):
            features = self.network_.body(torch.from_numpy(self._inputs(X)).to(self.network_.head.proj.weight))
        return PredictiveDistribution(self.network_.head, features, self._frame)

    def predict(self, X: Any, quantiles: float | ArrayLike | None = None) -> Floats:
        """Return the means (n,), or quantiles where levels are given, which is how to ask a ``Pipeline`` for them."""
        density = self.predict_density(X)
        return density.mean() if quantiles is None else density.quantile(quantiles)

    def predict_quantiles(self, X: Any, levels: float | ArrayLike = (0.05, 0.5, 0.95)) -> Floats:
        """Return quantiles at any levels, (n, number of levels); they never cross. The median is level 0.5."""
        return self.predict_density(X).quantile(levels)

    def sample(self, X: Any, n_samples: int = 1, random_state: Any = None) -> Floats:
        """Draw values from the predicted distributions, (n, n_samples)."""
        return self.predict_density(X).sample(n_samples, random_state)


def _frame(y: Floats) -> Frame:
    """Standardise the targets and give them an interval with margins and tails.

    One of n + 1 values goes beyond the n others with probability 1 / (n + 1) on either side. Most that do stay within
    the margin, so the tails get a twentieth of it.
    """
    center, scale = float(y.mean()), float(y.std())
    # Rounding gives constant targets a deviation, too.
    if not scale > 1e-12 * float(np.abs(y).max()):
        scale = 1.0
    t = (y - center) / scale
    margin = MARGIN * max(float(np.ptp(t)), 1.0)
    return Frame(center, scale, float(t.min()) - margin, float(t.max()) + margin, tail=0.05 / (len(y) + 1))
