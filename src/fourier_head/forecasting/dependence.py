r"""How the steps of a forecast hang together: Student's t copula over the densities of the single steps.

Every step keeps its density. A path is drawn as :math:`x_h = F_h^{-1}(T_\nu(s z_h))` from normal numbers z with the
correlation :math:`R = \sum_k w_k R_k + (1 - \sum_k w_k) I`, a mixture of few kinds of dependence: one level that all
steps share, steps that add up (a random walk), errors that die away, errors that come back with the season. The weights
of a series are fitted to what the forecaster got wrong in the series' own past, where :math:`z_h = \Phi^{-1}(F_h(x_h))`
is known, beside what is usual. The scale s is one for all steps of a path, :math:`s^{-2} \sim \chi^2_\nu / \nu`: where
one step errs by much, so do the others.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

KINDS = ("level", "walk", "fading", "brief", "season")
FADING, BRIEF = 0.9, 0.5
"""Correlation of neighbours where errors die away slowly, and where they do soon."""
LARGEST = 3.0
"""Of normal scores: one outcome far out must not decide."""
WORTH = 6.0
"""Windows that what the other series show counts for, beside those of the series itself."""
WORTH_USUAL = 40.0
"""Windows that what is usual counts for, beside those of all series of a period together."""
FREEDOM = 6
"""Degrees of freedom, an even number: fewer make the errors of a path more alike in size. Chosen on held-out training
series, as results/joint-paths/plan.md tells."""
USUAL = {
    "yearly": (0.1, 0.18, 0.32, 0.27, 0.0),
    "quarterly": (0.0, 0.28, 0.0, 0.38, 0.26),
    "monthly": (0.02, 0.42, 0.0, 0.22, 0.07),
    "weekly": (0.0, 0.42, 0.0, 0.32, 0.0),
    "daily": (0.03, 0.05, 0.34, 0.15, 0.07),
    "hourly": (0.0, 0.31, 0.36, 0.23, 0.1),
}
"""Weights that are usual, by the period of a series: of past windows of held-out training series, as `python -m studies
joint-paths --corpus` finds them."""


def group_of(period: int) -> str:
    """Return the kind of series that a period belongs to.

    >>> [group_of(period) for period in (1, 4, 12, 52, 7, 5, 24, 288)]
    ['yearly', 'quarterly', 'monthly', 'weekly', 'daily', 'daily', 'hourly', 'hourly']
    """
    return {1: "yearly", 4: "quarterly", 12: "monthly", 52: "weekly", 7: "daily", 5: "daily"}.get(period, "hourly")


@dataclass(frozen=True)
class Dependence:
    """Weights of the kinds of dependence of many series.

    Args:
        weights: (series, kinds), none negative, of sum 1 at most.
        periods: steps per season (series,).
        freedom: degrees of freedom of Student's t, an even number; None for a Gaussian copula.
    """

    weights: np.ndarray
    periods: np.ndarray
    freedom: int | None = FREEDOM

    @classmethod
    def usual(cls, periods: np.ndarray) -> Dependence:
        """Return what is usual for series of these periods."""
        return cls(np.array([USUAL[group_of(int(period))] for period in periods]).reshape(-1, len(KINDS)), periods)

    @classmethod
    def fitted(
        cls, periods: np.ndarray, scores: np.ndarray, owner: np.ndarray, usual: np.ndarray | None = None
    ) -> Dependence:
        """Return what past errors show beside what is usual.

        Args:
            periods: of the series.
            scores: normal scores (windows, steps) of what came after pasts of the series, NaN where unknown.
            owner: the number of the series that each window is of.
            usual: weights (series, kinds) in place of the usual ones.

        Example:
            >>> level = np.random.default_rng(0).standard_normal((200, 1))
            >>> found = Dependence.fitted(np.array([12]), level.repeat(18, 1), np.zeros(200, dtype=int))
            >>> bool(found.weights[0, 0] > 0.8)
            True
        """
        prior = cls.usual(periods).weights if usual is None else usual
        weights = np.array(prior, dtype=float)
        steps = scores.shape[1]
        if steps < 2:
            return cls(weights, periods)
        known = ~np.isnan(scores)
        z = np.where(known, np.clip(scores, -LARGEST, LARGEST), 0.0)
        share = (known.mean(1) ** 2).clip(0, 1)
        for period in np.unique(periods):
            rows = np.flatnonzero(periods == period)
            mine = np.isin(owner, rows)
            kinds = correlations(steps, int(period)) - np.eye(steps)
            products = np.einsum("kij,lij->kl", kinds, kinds)
            # How alike the errors of a window are, as each kind of dependence sees it.
            alike = np.einsum("wi,kij,wj->wk", z[mine], kinds, z[mine])
            total = np.stack([np.bincount(owner[mine], one, len(periods)) for one in alike.T], axis=1)[rows]
            count = np.bincount(owner[mine], share[mine], len(periods))[rows, None]
            usually = prior[rows].mean(0)[None]
            together = _shrunk(products, total.sum(0)[None], count.sum(0)[None], usually, WORTH_USUAL)
            weights[rows] = _shrunk(products, total, count, together, WORTH)
        return cls(weights, periods)

    def __getitem__(self, rows: slice) -> Dependence:
        return Dependence(self.weights[rows], self.periods[rows], self.freedom)

    def scores(self, count: int, steps: int, generator: torch.Generator | None = None) -> Tensor:
        """Draw normal numbers (count, series, steps), dependent over the steps, on the device of the generator."""
        device = "cpu" if generator is None else generator.device
        shape = (count, len(self.weights), steps)

        def noise(*size: int) -> Tensor:
            return torch.randn(size, generator=generator, device=device)

        weights = torch.as_tensor(self.weights, dtype=torch.float32, device=device)
        rest = (1 - weights.sum(-1)).clamp_min(0)
        out = rest.sqrt().unsqueeze(-1) * noise(*shape)
        for kind, weight in zip(KINDS, weights.T, strict=True):
            rows = torch.nonzero(weight > 0).flatten()
            if not len(rows):
                continue
            size = (count, len(rows), steps)
            if kind == "level":
                drawn = noise(count, len(rows), 1).expand(size)
            elif kind == "walk":
                drawn = noise(*size).cumsum(-1) / torch.arange(1, steps + 1, device=device).sqrt()
            elif kind == "season":
                period = torch.as_tensor(self.periods, device=device)[rows]
                period = torch.where(period > 1, period, steps)  # without a season no two steps are alike
                phase = torch.arange(steps, device=device) % period.unsqueeze(-1)
                each = noise(count, len(rows), min(steps, int(period.max())))
                drawn = each.gather(-1, phase.expand(size))
            else:
                drawn = noise(*size)
                like = FADING if kind == "fading" else BRIEF
                for step in range(1, steps):
                    drawn[..., step] = like * drawn[..., step - 1] + (1 - like**2) ** 0.5 * drawn[..., step]
            out[:, rows] += weight[rows].sqrt().unsqueeze(-1) * drawn
        if self.freedom is None:
            return out
        square = noise(*shape[:2], self.freedom).square_().mean(-1, keepdim=True)
        return torch.special.ndtri(student_cdf(out.double() / square.sqrt(), self.freedom)).to(out.dtype)


def student_cdf(x: Tensor, freedom: int) -> Tensor:
    r"""Return the distribution function of Student's t, exact for an even number of degrees of freedom.

    .. math::
        T_\nu(x) = \tfrac12 + \tfrac12 \sin\theta \sum_{k=0}^{\nu/2-1} \frac{(2k)!}{4^k (k!)^2} \cos^{2k}\theta,
        \quad \tan\theta = x / \sqrt\nu

    >>> [round(value, 4) for value in student_cdf(torch.tensor([-1.0, 0.0, 2.776], dtype=torch.float64), 4).tolist()]
    [0.187, 0.5, 0.975]
    """
    if freedom < 2 or freedom % 2:
        raise ValueError(f"freedom must be an even number from 2 on, got {freedom}.")
    cosine = freedom / (freedom + x.square())
    total = torch.ones_like(x)
    for k in range(freedom // 2 - 1, 0, -1):  # Horner: each term is (2k - 1) / 2k of the one before
        total = 1 + (2 * k - 1) / (2 * k) * cosine * total
    return (1 + x * (freedom + x.square()).rsqrt() * total) / 2


def usual_weights(scores: list[tuple[np.ndarray, int]]) -> np.ndarray:
    """Return the weights (kinds,) that fit the past errors of several sets of series best.

    Args:
        scores: of each set, normal scores (windows, steps) and the period of its series.
    """
    products, linear = np.zeros((len(KINDS), len(KINDS))), np.zeros((1, len(KINDS)))
    for z, period in scores:
        steps = z.shape[1]
        if len(z) and steps > 1:
            kinds = correlations(steps, period) - np.eye(steps)
            z = np.nan_to_num(np.clip(z, -LARGEST, LARGEST))
            # Sets count alike, whatever their horizon and number of windows.
            products += np.einsum("kij,lij->kl", kinds, kinds) / steps**2
            linear += np.einsum("wi,kij,wj->k", z, kinds, z) / steps**2 / len(z)
    return _on_simplex(products, linear, 3000)[0]


def correlations(steps: int, period: int) -> np.ndarray:
    """Return the correlations (kinds, steps, steps) of each kind of dependence.

    >>> correlations(4, 2)[1].round(2).tolist()[0]
    [1.0, 0.71, 0.58, 0.5]
    """
    step = np.arange(1, steps + 1)
    apart = np.abs(step[:, None] - step)
    walk = np.sqrt(np.minimum(step[:, None], step) / np.maximum(step[:, None], step))
    season = (apart % period == 0) if period > 1 else apart == 0
    return np.stack([np.ones_like(walk), walk, FADING**apart, BRIEF**apart, season.astype(float)])


def _shrunk(products: np.ndarray, total: np.ndarray, count: np.ndarray, usual: np.ndarray, worth: float) -> np.ndarray:
    """Return weights (rows, kinds) from what so many windows add up to, beside usual ones that are worth so many."""
    return _on_simplex(products, (total + worth * usual @ products) / (count + worth))


def _on_simplex(products: np.ndarray, linear: np.ndarray, steps: int = 300) -> np.ndarray:
    """Return weights w (rows, kinds), none negative and of sum 1 at most, that minimise w P w / 2 - w b of each row."""
    size = np.linalg.norm(products, 2)
    w = np.zeros_like(linear)
    ahead, t = w, 1.0
    if size == 0:
        return w
    for _ in range(steps):  # accelerated projected gradients
        new = _project(ahead - (ahead @ products - linear) / size)
        t, before = (1 + np.sqrt(1 + 4 * t * t)) / 2, t
        ahead, w = new + (before - 1) / t * (new - w), new
    return w


def _project(w: np.ndarray) -> np.ndarray:
    """Return the nearest weights that are not negative and of sum 1 at most."""
    positive = w.clip(0)
    order = -np.sort(-w, axis=1)
    excess = (np.cumsum(order, axis=1) - 1) / np.arange(1, w.shape[1] + 1)
    last = (order > excess).sum(1) - 1
    on_face = (w - np.take_along_axis(excess, last[:, None], 1)).clip(0)
    return np.where(positive.sum(1, keepdims=True) <= 1, positive, on_face)
