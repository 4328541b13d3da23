"""FourierRegressor: networks with any head as a scikit-learn estimator."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
from torch import Tensor, nn

from fourier_head._cpu import small_matrices
from fourier_head._devices import chosen_device
from fourier_head.bins import Bins
from fourier_head.domains import Affine, Interval, ValueMap
from fourier_head.errors import UserError
from fourier_head.heads import FourierHead, Head
from fourier_head.heads.baselines import HLGaussHead, LinearHead
from fourier_head.integrations.scikit_learn import settings
from fourier_head.integrations.scikit_learn.boosting import Boosting
from fourier_head.integrations.scikit_learn.conformal import conformal_levels
from fourier_head.integrations.scikit_learn.discrete import DiscreteDistribution, values_seen
from fourier_head.integrations.scikit_learn.frames import Categories
from fourier_head.integrations.scikit_learn.interval import FlooredMixtureHead, IntervalDistribution, IntervalFrame
from fourier_head.integrations.scikit_learn.predictive import (
    BinnedPrediction,
    Floats,
    PredictiveDistribution,
    binned,
    quiet,
)
from fourier_head.integrations.scikit_learn.rows import merged, target_frame
from fourier_head.tabular import ensemble
from fourier_head.tabular.columns import Columns
from fourier_head.tabular.members import MemberNetwork, held_out
from fourier_head.tabular.network import Course

ROWS: dict[str, Any] = {"dtype": np.float64, "ensure_all_finite": "allow-nan"}
TRIAL = 0.4
"""Share of the steps with which bodies are tried before one is chosen."""
TRIAL_ROWS = 1000
"""Held-out rows that are enough to choose by: half of the networks are tried, or fewer where they leave out so many."""
CRPS_WEIGHT = 10.0
"""How much the CRPS of a standardised target counts beside its likelihood, where both are learned."""
FEWEST_HELD_OUT = 10
USUAL_SHARE = 0.15
"""Of the rows, that each of a few networks leaves out."""
MOST_DECAY, DECAY = 0.1, 100.0
"""Weight decay unless given: the second over the number of rows, as a prior weighs less the more data there is."""
ONE_THREAD = 128
"""Up to this many rows in a batch one thread is faster than several."""


class Body(NamedTuple):
    """A kind of network: whether it gets columns piece by piece, too, what stands between its layers, their widths."""

    pieces: bool
    activation: Callable[[], nn.Module]
    widths: tuple[int, ...]
    boosted: bool = False


BODIES = {
    "pieces": Body(True, nn.ReLU, (160, 160)),
    "smooth": Body(False, nn.SiLU, (64, 64, 64)),
    "boosting": Body(True, nn.ReLU, (160, 160), True),
}


class FourierRegressor(RegressorMixin, BaseEstimator):
    """Predict the distribution of a number from a row of a table.

    Several small networks, trained at once, end in Fourier heads whose place and width follow the row; the distribution
    is the mixture of theirs. Each leaves out other rows, and the weights kept are those that predict the rows left out
    best. Outliers, gaps (NaN), categories of data frames and targets of any scale need no preparation.

    Args:
        head: "fourier", or a head to compare it with: "mixture" or "gmm" (of Gaussians), "hl-gauss" or "linear"
            (histograms).
        body: "pieces" gives the networks each column cut into pieces, too, so that they can jump as trees do, "smooth"
            does not; "boosting" adds what boosted trees say of rows that they have not seen (LightGBM where it is
            installed, else scikit-learn's); "auto" tries them on the held-out rows.
        n_members: how many networks.
        num_frequencies, packets, tails: of the Fourier head, and the weight of its tails.
        num_components: Gaussians of the mixture.
        num_bins: of the histograms.
        hidden_sizes: widths of the layers; "auto" takes two of 160 for pieces and boosting, three of 64 for smooth.
        loss: "likelihood", "crps", or "both", their weighted sum, a proper score like either of them. The likelihood
            says nothing of how far a value lies from where it was expected, the CRPS does, and keeps narrow peaks from
            being stuck. Histograms learn by cross-entropy instead of the likelihood.
        discrete: whether targets can be nothing but the values seen, as grades are; distributions are then over these.
            "auto" goes by whether there are few of them. Of the Fourier head only.
        max_epochs: passes of each network through the rows; "auto" plans a thousand steps and more.
        batch_size: rows per step and network; "auto" goes by their number.
        learning_rate: at its highest; it falls to zero along a cosine.
        weight_decay: of all weights, as in AdamW; "auto" has less of it for more rows.
        validation_fraction: share of the rows that each network leaves out; with 0, or fewer than ten rows, all learn
            from all and are judged by that. "auto" leaves out every row once.
        patience: stop after this many epochs without a better score on those rows; None goes on to the end, "auto"
            gives up after three tenths of the course.
        random_state: seed, generator or None; a whole number makes fits repeatable.
        device: "cpu", "cuda", ... or "auto" for the best there is.
        verbose: 1 draws a bar, or prints the score ten times where it is no terminal, 2 whenever it is measured.

    Attributes:
        n_features_in_, feature_names_in_: as everywhere in scikit-learn.
        network_: the trained networks, side by side.
        body_: the body that was chosen.
        best_epoch_, n_iter_: the epoch whose weights were kept, and the last one.
        validation_scores_: pairs of epoch and loss on the held-out rows, target standardised.
        calibration_levels_: P(Y <= y) of the training rows under the networks that left them out, or of those given
            to ``calibrate``.

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
        max_epochs: int | Literal["auto"] = "auto",
        batch_size: int | Literal["auto"] = "auto",
        learning_rate: float = 1e-2,
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
        return tags

    # --- training

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> FourierRegressor:
        """Learn from rows X (n, features), targets y (n,) and, if given, the weight of each row.

        Categories are columns of a data frame that are no numbers.
        """
        settings.check(self)
        self._categories = Categories(X)
        X, y = validate_data(self, self._categories(X), y, **ROWS, y_numeric=True, ensure_min_samples=2)
        try:
            y = y.astype(np.float64)
        except (TypeError, ValueError):
            raise ValueError(f"y must hold numbers to predict, got {y.flat[0]!r}.") from None
        weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        if not weights.any():  # newer releases of scikit-learn have said so already
            raise ValueError("sample_weight must be positive for at least one row, got zero for all of them.")
        X, y, weights = merged(X, y, weights)
        random = check_random_state(self.random_state)
        seed = int(random.randint(2**31 - 1))
        device = torch.device(self._device())

        self._columns = Columns(X, weights, self._categories.mask)
        make_head = self._measure(y, weights)
        values = self._frame.standardised(y)
        held = self._held_out(torch.from_numpy(random.permutation(len(y))))
        targets = torch.from_numpy(values).float().to(device)
        weight = torch.from_numpy(weights).float().to(device)
        plan = self._plan(len(y))
        threads = small_matrices() if plan.batch <= ONE_THREAD else quiet(device)

        def train(body: str, members: int, plan: ensemble.Plan) -> tuple[MemberNetwork, Course]:
            kind = BODIES[body]
            columns = [self._inputs(X, body, training=True).to(device), targets]
            widths = kind.widths if self.hidden_sizes == "auto" else tuple(self.hidden_sizes)
            torch.manual_seed(seed)
            network = MemberNetwork(members, columns[0].shape[1], widths, kind.activation, make_head).to(device)
            course = ensemble.fit(
                network,
                columns,
                weight,
                held[:members] or [torch.arange(len(y))] * members,
                lambda x, value: self._losses(network.head, network.body(x), value),
                plan,
                seed=seed,
                learning_rate=self.learning_rate,
                weight_decay=self._decay(len(y)),
                leave_out=bool(held),
                progress=self._progress(body, plan),
            )
            return network, course

        if self.body in ("auto", "boosting"):
            mapped = self._map.forward(torch.from_numpy(values)).numpy()
            self._boosting = Boosting(X, mapped, weights, self._categories.mask, seed)
        with torch.random.fork_rng(devices=[]), threads if device.type == "cpu" else nullcontext():
            self.body_ = str(self.body)
            if self.body == "auto":
                members = max(1, min(self.n_members // 2, -(-TRIAL_ROWS // max(map(len, held), default=1))))
                scores = {name: train(name, members, plan.shortened(TRIAL))[1].best_score for name in BODIES}
                self.body_ = min(BODIES, key=lambda name: scores[name])
            network, course = train(self.body_, self.n_members, plan)
        if course.interrupted:
            warnings.warn(
                f"fit was interrupted; the weights of epoch {course.best_epoch} are kept.", ConvergenceWarning, 2
            )
        # In float64 the prediction for a row does not depend on the rows beside it; Apple's GPUs have none.
        self.network_ = network if device.type == "mps" else network.double()
        self.best_epoch_, self.validation_scores_ = course.best_epoch, course.history
        self.n_iter_ = course.history[-1][0] if course.history else 0
        inputs = self._inputs(X, self.body_, training=True)
        self.calibration_levels_ = self._held_out_levels(inputs, values, held) if held else None
        return self

    def _device(self) -> str:
        try:
            return chosen_device(str(self.device), "device")
        except UserError as error:
            raise ValueError(str(error)) from None

    def _measure(self, y: Floats, weights: Floats) -> Callable[[int], Head]:
        """Take the place and unit of targets, and return a function that makes a head for features of some size."""
        self._frame: Any
        self._map: ValueMap = Affine()
        if self.head == "fourier":
            self._frame, adaptive = target_frame(y, weights, self.tails)
            self._frame, self._map = replace(self._frame, values=values_seen(y, self.discrete)), adaptive.map
            options: dict[str, Any] = {"num_frequencies": int(self.num_frequencies), "packets": int(self.packets)}
            return lambda size: FourierHead(size, domain=adaptive, **options)
        self._frame = frame = IntervalFrame.fit(y)
        domain = Interval(frame.low, frame.high)
        if self.head in settings.MIXTURES:
            return lambda size: FlooredMixtureHead(size, self.num_bins, self.num_components, domain=domain)
        kind = HLGaussHead if self.head == "hl-gauss" else LinearHead
        return lambda size: kind(size, self.num_bins, domain=domain)

    def _losses(self, head: Any, features: Tensor, value: Tensor) -> Tensor:
        """Return the loss of each row."""
        if isinstance(head, FourierHead):
            kind = {"likelihood": "nll", "crps": "crps", "both": "both"}[self.loss]
            options: dict[str, Any] = {"kind": kind, "crps_weight": CRPS_WEIGHT, "mapped": True}
            return head.values_loss_of(head.proj(features), value, **options)
        density = head.density(features)
        if self.loss == "crps":
            return density.crps(value)
        if self.head in settings.MIXTURES or not head.training:
            likelihood = -density.log_prob(value)
        else:
            bins = Bins.uniform(self.num_bins, self._frame.low, self._frame.high)
            likelihood = head.loss(features, bins.encode(value), reduction="none")
        return likelihood if self.loss == "likelihood" else likelihood + CRPS_WEIGHT * density.crps(value)

    def _held_out(self, order: Tensor) -> list[Tensor]:
        """Return the rows that each network leaves out; nothing where none does."""
        fraction = self.validation_fraction
        share = min(1 / self.n_members, USUAL_SHARE) if fraction == "auto" else float(fraction)
        enough = share > 0 and len(order) >= FEWEST_HELD_OUT
        return held_out(len(order), self.n_members, share, order) if enough else []

    def _plan(self, rows: int) -> ensemble.Plan:
        epochs, batch = (None if n == "auto" else int(n) for n in (self.max_epochs, self.batch_size))
        return ensemble.Plan.for_rows(rows, epochs, batch, self.patience)

    def _decay(self, rows: int) -> float:
        return min(MOST_DECAY, DECAY / rows) if self.weight_decay == "auto" else float(self.weight_decay)

    def _progress(self, body: str, plan: ensemble.Plan) -> Callable[[int, float], None] | None:
        if not self.verbose:
            return None
        looks, every = 0, 1 if self.verbose > 1 else max(1, plan.steps // plan.check_every // 10)
        last, bar = plan.epoch(plan.steps), self.verbose == 1 and sys.stdout.isatty()

        def say(epoch: int, score: float) -> None:
            nonlocal looks
            looks += 1
            words = f"[FourierRegressor] {body}, epoch {epoch} of {last}: validation loss {score:.4f}"
            if bar:
                print(f"\r{words} [{'#' * (30 * epoch // last):<30}]", end="" if epoch < last else "\n", flush=True)
            elif looks % every == 0 or epoch == last:
                print(words, flush=True)

        return say

    # --- prediction

    def _inputs(self, X: Floats, body: str, training: bool = False) -> Tensor:
        """Return what a body is given of rows; of those of training, what trees say that have not seen them."""
        inputs = self._columns(X, pieces=BODIES[body].pieces)
        if BODIES[body].boosted:
            boosted = self._boosting.out_of_fold if training else self._boosting(X)
            inputs = np.concatenate([boosted, inputs], axis=1)
        return torch.from_numpy(inputs)

    def predict_density(self, X: Any) -> PredictiveDistribution:
        """Return the predicted distributions, one per row: pdf, cdf, quantile, sample, mean, std, entropy, crps."""
        check_is_fitted(self)
        X = validate_data(self, self._categories(X), **ROWS, reset=False)
        inputs = self._inputs(X, self.body_).to(self.network_.head.proj.weight)
        with torch.inference_mode(), quiet(inputs.device):
            features = self.network_.features(inputs)
        kind: type[PredictiveDistribution] = IntervalDistribution
        if self.head == "fourier":
            kind = PredictiveDistribution if self._frame.values is None else DiscreteDistribution
        return kind(self.network_.head, features, self._frame)

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

    def predict_distribution(self, X: Any, num_bins: int = 200) -> BinnedPrediction:
        """Return the distributions as probabilities of bins, as ScoringBench reads them."""
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
            return self.predict_density(X).interval(coverage)
        check_is_fitted(self)
        if self.calibration_levels_ is None:
            raise ValueError("there are no held-out rows to go by: call calibrate(X, y), or fit with some left out.")
        return self.predict_density(X).quantile(conformal_levels(self.calibration_levels_, coverage))

    def calibrate(self, X: Any, y: Any) -> FourierRegressor:
        """Take rows that were not used in ``fit`` to calibrate ``predict_interval(conformal=True)`` by."""
        y = np.asarray(y, dtype=np.float64)
        self.calibration_levels_ = self.predict_density(X).cdf(y)
        return self

    def _held_out_levels(self, inputs: Tensor, values: Floats, held: Sequence[Tensor]) -> Floats:
        inputs = inputs.to(self.network_.head.proj.weight)
        targets = torch.from_numpy(values).to(inputs)
        network = self.network_
        with torch.inference_mode(), quiet(inputs.device):
            levels = ensemble.over_held_out(
                [inputs, targets], held, lambda x, value: network.head.density(network.body(x)).cdf(value)
            )
        return torch.cat(levels).double().cpu().numpy()
