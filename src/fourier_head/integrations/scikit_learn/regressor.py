"""FourierRegressor: networks with any head as a scikit-learn estimator."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
from torch import Tensor

from fourier_head._devices import chosen_device, seeded, small_matrices
from fourier_head.errors import UserError
from fourier_head.integrations.scikit_learn import settings
from fourier_head.integrations.scikit_learn.calibration import HeldOut, conformal_levels
from fourier_head.integrations.scikit_learn.predictive import (
    BinnedPrediction,
    Floats,
    Mixing,
    PredictiveDistribution,
    binned,
    quiet,
)
from fourier_head.integrations.scikit_learn.progress import Progress
from fourier_head.integrations.scikit_learn.targets import Target, checked_targets, merged
from fourier_head.tabular import ensemble
from fourier_head.tabular.columns import Categories
from fourier_head.tabular.inputs import Inputs
from fourier_head.tabular.members import MemberNetwork, held_out

ROWS: dict[str, Any] = {"dtype": np.float64, "ensure_all_finite": "allow-nan"}
FAR = 1e30
"""Size of standardised targets whose squares are finite in float32."""
FEWEST_HELD_OUT = 10
USUAL_SHARE, MOST_HELD_OUT = 0.125, 500
"""Share of the rows that each network leaves out, and rows that are enough for one of them."""
ONE_THREAD = 128
"""Up to this many rows in a batch one thread is faster than several."""


class FourierRegressor(RegressorMixin, BaseEstimator):
    """Predict the distribution of a number from a row of a table.

    Small networks of three kinds, trained at once, end in Fourier heads whose place and width follow the row; the
    distribution is a mixture of theirs. They leave out rows, which say which weights to keep, how much each kind counts
    and how wide distributions should be. Outliers, gaps (NaN), categories and dates of data frames, targets of any
    scale and several of them need no preparation.

    Args:
        head: "fourier", or a head to compare it with: "mixture" or "gmm" (of Gaussians), "hl-gauss" or "linear"
            (histograms).
        body: "pieces" gives the networks each column cut into pieces, too, so that they can jump as trees do, "smooth"
            does not; "boosting" adds what boosted trees say of rows that they have not seen (LightGBM where it is
            installed, else scikit-learn's); "auto" mixes all three as the held-out rows ask for, and drops on the way
            those that are far behind.
        n_members: how many networks; of several kinds, half as many of each.
        num_frequencies, packets, tails: of the Fourier head, and the weight of its tails.
        num_components: Gaussians of the mixture.
        num_bins: of the histograms.
        hidden_sizes: widths of the layers; "auto" takes two of 160 for pieces and boosting, three of 64 for smooth.
        loss: "likelihood", "crps", or "both", their weighted sum, a proper score like either of them. The likelihood
            says nothing of how far a value lies from where it was expected, the CRPS does, and keeps narrow peaks from
            being stuck. Histograms learn by cross-entropy instead of the likelihood.
        discrete: whether targets can be nothing but the values seen, as grades are; distributions are then over these.
            "auto" goes by whether there are few of them. Of the Fourier head only.
        bounds: (lowest, highest) value that a target can have, None for no such end: (0, None) of what is never
            negative. No distribution reaches beyond. Of the Fourier head only.
        max_epochs: passes of each network through the rows; "auto" plans some hundreds of steps and more.
        batch_size: rows per step and network; "auto" goes by their number.
        learning_rate: at its highest; it falls to zero along a cosine.
        weight_decay: of all weights, as in AdamW; "auto" has less of it for more rows.
        validation_fraction: share of the rows that each network leaves out; with 0, or fewer than ten rows, all learn
            from all and are judged by that. "auto" leaves out an eighth, or less of many rows.
        patience: stop after this many epochs without a better score on those rows; None goes on to the end, "auto"
            gives up after a seventh of the course.
        random_state: seed, generator or None; a whole number makes fits repeatable.
        device: "cpu", "cuda", ... or "auto" for the best there is.
        verbose: 1 draws a bar, or prints the score ten times where it is no terminal, 2 whenever it is measured.

    Attributes:
        n_features_in_, feature_names_in_: as everywhere in scikit-learn.
        network_: the trained networks, side by side.
        body_: how much each body counts, those left of them.
        spread_: how many times as wide as networks say distributions are, one number for each target.
        best_epoch_, n_iter_: the last epoch whose weights were kept, and the last one.
        validation_scores_: pairs of epoch and loss on the held-out rows, target standardised.
        calibration_levels_: for each target, P(Y <= y) of rows under the networks that left them out, or of those
            given to ``calibrate``; bounds left out.

    Example:
        >>> import numpy as np
        >>> from fourier_head.integrations.scikit_learn import FourierRegressor
        >>> random = np.random.default_rng(0)
        >>> X = random.uniform(-1, 1, (300, 1))
        >>> y = 4 * X[:, 0] + (0.1 + 0.4 * (X[:, 0] > 0)) * random.normal(size=300)
        >>> model = FourierRegressor(max_epochs=50, random_state=0).fit(X, y)
        >>> model.predict([[-0.5], [0.5]]).round().tolist()
        [-2.0, 2.0]
        >>> low, high = model.predict_interval([[-0.5], [0.5]], 0.9).T
        >>> bool((high - low)[1] > 2 * (high - low)[0])
        True
    """

    def __init__(
        self,
        head: str = "fourier",
        *,
        body: Literal["auto", "pieces", "smooth", "boosting"] = "auto",
        n_members: int = 8,
        num_frequencies: int = 12,
        packets: int = 0,
        tails: float = 0.01,
        num_components: int = 3,
        num_bins: int = 100,
        hidden_sizes: Sequence[int] | Literal["auto"] = "auto",
        loss: Literal["both", "likelihood", "crps"] = "both",
        discrete: bool | Literal["auto"] = "auto",
        bounds: tuple[float | None, float | None] | None = None,
        max_epochs: int | Literal["auto"] = "auto",
        batch_size: int | Literal["auto"] = "auto",
        learning_rate: float = ensemble.LEARNING_RATE,
        weight_decay: float | Literal["auto"] = "auto",
        validation_fraction: float | Literal["auto"] = "auto",
        patience: int | Literal["auto"] | None = "auto",
        random_state: Any = None,
        device: str = "cpu",
        verbose: int = 0,
    ):
        self.head = head
        self.body = body
        self.n_members = n_members
        self.num_frequencies = num_frequencies
        self.packets = packets
        self.tails = tails
        self.num_components = num_components
        self.num_bins = num_bins
        self.hidden_sizes = hidden_sizes
        self.loss = loss
        self.discrete = discrete
        self.bounds = bounds
        self.max_epochs = max_epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.target_tags.multi_output = True
        return tags

    def __getstate__(self) -> dict[str, Any]:
        # Copies and pickles predict on a processor: where they are opened there may be no graphics card.
        state = dict(super().__getstate__())  # which is the model's own
        if "network_" in state and next(self.network_.parameters()).device.type != "cpu":
            weights = self._mixing.weights.cpu()
            state |= {"network_": copy.deepcopy(self.network_).cpu(), "_mixing": replace(self._mixing, weights=weights)}
        return state

    # --- training

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> FourierRegressor:
        """Learn from rows X (n, features), targets y (n,) or (n, targets) and, if given, the weight of each row.

        Categories are columns of a data frame that are neither numbers nor dates.
        """
        settings.check(self)
        self._categories = Categories(X)
        X, y = self._rows(X, y, multi_output=True, ensure_min_samples=2)
        y = checked_targets(y)
        self._single = y.ndim == 1
        weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        if not weights.any():  # newer releases of scikit-learn have said so already
            raise ValueError("sample_weight must be positive for at least one row, got zero for all of them.")
        X, y, weights = merged(X, y.reshape(len(y), -1), weights)
        random = check_random_state(self.random_state)
        seed = int(random.randint(2**31 - 1))
        device = torch.device(self._device())

        targets = self._targets = [Target(self, own, weights) for own in y.T]
        held = self._held_out(torch.from_numpy(random.permutation(len(y))))
        mapped = np.column_stack([target.mapped(own) for target, own in zip(targets, y.T, strict=True)])
        self._inputs = Inputs(X, mapped, weights, self._categories.mask, str(self.body), seed)
        inputs = self._inputs.training(X).to(device)
        values = [target.frame.standardised(own).clip(-FAR, FAR) for target, own in zip(targets, y.T, strict=True)]
        columns = [inputs, *(torch.from_numpy(own).float().to(device) for own in values)]
        plan = self._plan(len(y))
        progress = Progress(plan, self.verbose)
        threads = small_matrices() if plan.batch <= ONE_THREAD and device.type == "cpu" else quiet(device)
        with seeded(seed), threads:
            bodies = self._inputs.plan(inputs.shape[1], self.n_members, self.hidden_sizes)
            network = MemberNetwork(bodies, [target.make_head for target in targets]).to(device)

            def losses(outputs: Tensor, *value: Tensor) -> Tensor:
                per_head = zip(targets, network.heads, network.per_head(outputs), value, strict=True)
                found = [target.losses(head, own, v) for target, head, own, v in per_head]
                return found[0] if len(found) == 1 else torch.stack(found).mean(0)

            course = ensemble.fit(
                network,
                columns,
                torch.from_numpy(weights).float().to(device),
                held or [torch.arange(len(y))],
                losses,
                plan,
                seed=seed,
                learning_rate=self.learning_rate,
                weight_decay=self._decay(len(y)),
                leave_out=bool(held),
                progress=progress,
            )
            progress.close()
        if course.interrupted:
            warnings.warn(
                f"fit was interrupted; the weights of epoch {course.best_epoch} are kept.", ConvergenceWarning, 2
            )
        # In float64 the prediction for a row does not depend on the rows beside it; Apple's GPUs have none.
        self.network_ = network if device.type == "mps" else network.double()
        self.best_epoch_, self.validation_scores_ = course.best_epoch, course.history
        self.n_iter_ = course.history[-1][0] if course.history else 0
        self._calibrate_members(inputs, y, weights, held)
        return self

    def _rows(self, X: Any, *y: Any, **options: Any) -> Any:
        """Return rows, and targets if given, as arrays."""
        numbers = self._categories(X)
        try:
            return validate_data(self, numbers, *y, **ROWS, **options)
        except ValueError as error:
            if self._categories.mask is not None or not str(error).startswith("could not convert string"):
                raise
            raise ValueError(f"{error}: X must be a data frame, as pandas.DataFrame(X), to hold categories.") from None

    def _calibrate_members(self, inputs: Tensor, y: Floats, weights: Floats, held: list[Tensor]) -> None:
        """Go by the held-out rows: drop bodies that count little, weigh the others, and widen or narrow the mixture."""
        network = self.network_
        names, shares = list(network.bodies), np.full(len(network.bodies), 1 / len(network.bodies))
        self.spread_, self.calibration_levels_, left_out = [1.0] * len(self._targets), None, None
        if held:
            seen = HeldOut(network, inputs.to(next(network.parameters())), y, weights, held)
            shares = seen.body_weights(self._targets)
            seen.keep(shares > 0)
            names, shares = [name for name, share in zip(names, shares, strict=True) if share], shares[shares > 0]
            network.keep(names)
            left_out = seen.left_out
            self.spread_ = seen.spreads(self._targets, shares)
            self._targets = [t.spread(spread) for t, spread in zip(self._targets, self.spread_, strict=True)]
            unbounded = [target.unbounded() for target in self._targets]
            self.calibration_levels_ = [d.cdf(own) for d, own in seen.mixtures(unbounded, shares)]
        self._inputs.keep(names)
        self.body_ = dict(zip(names, shares.tolist(), strict=True))
        each = [np.full(count, share / count) for count, share in zip(network.members, shares, strict=True)]
        of_members = torch.from_numpy(np.concatenate(each)).to(next(network.parameters()))
        self._mixing = Mixing(of_members, tuple(network.members), left_out)

    def _device(self) -> str:
        try:
            return chosen_device(str(self.device), "device")
        except UserError as error:
            raise ValueError(str(error)) from None

    def _held_out(self, order: Tensor) -> list[Tensor]:
        """Return the parts of the rows that networks leave out, each the same for two or more; nothing where none."""
        fraction, rows = self.validation_fraction, len(order)
        share = min(USUAL_SHARE, MOST_HELD_OUT / rows) if fraction == "auto" else float(fraction)
        # Where rows are many, more networks leave out the same ones: their mixture is nearer to that of all.
        parts = max(1, self.n_members // (4 if share < USUAL_SHARE and fraction == "auto" else 2))
        return held_out(rows, parts, share, order) if share > 0 and rows >= FEWEST_HELD_OUT else []

    def _plan(self, rows: int) -> ensemble.Plan:
        epochs, batch = (None if n == "auto" else int(n) for n in (self.max_epochs, self.batch_size))
        return ensemble.Plan.for_rows(rows, epochs, batch, self.patience)

    def _decay(self, rows: int) -> float:
        return ensemble.usual_decay(rows) if self.weight_decay == "auto" else float(self.weight_decay)

    # --- prediction

    def _distributions(self, X: Any, bounded: bool = True) -> list[PredictiveDistribution]:
        """Return the distributions of each target, within bounds or as far as the networks say."""
        check_is_fitted(self)
        X = self._rows(X, reset=False)
        network = self.network_
        inputs = self._inputs(X).to(self._mixing.weights)
        with torch.inference_mode(), quiet(inputs.device):
            outputs = network.per_head(network.of_rows(inputs))
        return [
            (target if bounded else target.unbounded()).distribution(head, own, self._mixing)
            for target, head, own in zip(self._targets, network.heads, outputs, strict=True)
        ]

    def _of_targets(
        self, X: Any, function: Callable[..., Floats], *more: Sequence[Any], bounded: bool = True
    ) -> Floats:
        """Return what a function says of the distributions, (n, ...), or (n, targets, ...) of several targets.

        ``more`` holds further arguments of the function, one for each target; ``bounded`` as for the distributions.
        """
        found = [function(*each) for each in zip(self._distributions(X, bounded), *more, strict=True)]
        return found[0] if self._single else np.stack(found, axis=1)

    def predict_density(self, X: Any) -> Any:
        """Return the predicted distributions, one per row: pdf, cdf, quantile, sample, mean, std, entropy, crps.

        Of several targets a list, with the distributions of each by itself.
        """
        densities = self._distributions(X)
        return densities[0] if self._single else densities

    def predict(self, X: Any, quantiles: float | ArrayLike | None = None) -> Floats:
        """Return the means (n,), or quantiles where levels are given, which is how to ask a ``Pipeline`` for them.

        Of several targets there is one more dimension in all that is returned, (n, targets, ...).
        """
        return self._of_targets(X, lambda density: density.mean() if quantiles is None else density.quantile(quantiles))

    def predict_quantiles(self, X: Any, levels: float | ArrayLike = (0.05, 0.5, 0.95)) -> Floats:
        """Return quantiles at any levels, (n, number of levels); they never cross. The median is level 0.5."""
        return self._of_targets(X, lambda density: density.quantile(levels))

    def sample(self, X: Any, n_samples: int = 1, random_state: Any = None) -> Floats:
        """Draw values from the predicted distributions, (n, n_samples); several targets are drawn independently."""
        random = check_random_state(random_state)
        return self._of_targets(X, lambda density: density.sample(n_samples, random))

    def predict_distribution(self, X: Any, num_bins: int = 200) -> BinnedPrediction:
        """Return the distributions of a single target as probabilities of bins, as ScoringBench reads them."""
        return binned(self.predict_density(X), num_bins)

    # --- intervals that keep their word

    def predict_interval(self, X: Any, coverage: float = 0.9, *, conformal: bool = False) -> Floats:
        """Return intervals (n, 2) that hold the target with this probability: the middle of each distribution.

        Args:
            X: rows.
            coverage: the probability.
            conformal: widen or narrow all intervals by what held-out rows say: as many of them as the coverage asks for
                lie inside. These are the rows given to ``calibrate``, for which the coverage holds in finite samples
                whatever the distribution if they were drawn like new ones; or, else, those of the training, each under
                the networks that left it out, which is nearly as good and costs no rows.
        """
        if not conformal:
            return self._of_targets(X, lambda density: density.interval(coverage))
        check_is_fitted(self)
        if self.calibration_levels_ is None:
            raise ValueError("there are no held-out rows to go by: call calibrate(X, y), or fit with some left out.")
        at = [conformal_levels(levels, coverage) for levels in self.calibration_levels_]
        # Bounds cut intervals, not levels: targets that lie at one would all have the farthest.
        return self._of_targets(
            X, lambda density, target, levels: target.within(density.quantile(levels)), self._targets, at, bounded=False
        )

    def calibrate(self, X: Any, y: Any) -> FourierRegressor:
        """Take rows that were not used in ``fit`` to calibrate ``predict_interval(conformal=True)`` by."""
        check_is_fitted(self)
        y = checked_targets(self._rows(X, y, reset=False, multi_output=True)[1])
        y = y.reshape(len(y), -1)
        if y.shape[1] != len(self._targets):
            raise ValueError(f"y must hold {len(self._targets)} targets as in fit, got {y.shape[1]}.")
        self.calibration_levels_ = [
            d.cdf(own) for d, own in zip(self._distributions(X, bounded=False), y.T, strict=True)
        ]
        return self
