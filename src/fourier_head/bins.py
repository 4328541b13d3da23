r"""Ordered bins of the real line: uniform, mixed precision, quantile."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fourier_head._arrays import widest
from fourier_head.errors import is_whole

Values = Tensor | np.ndarray | Sequence[float] | float


class Bins:
    r"""Cut an interval into ordered bins and translate between values, bin ids and centres.

    Bins are their :math:`m + 1` edges :math:`e_0 < \dots < e_m`. Bin :math:`j` is the half-open
    :math:`[e_j, e_{j+1})`, the last one closed, with its centre halfway and width :math:`w_j = e_{j+1} - e_j`, hence

    .. math:: |\mathrm{decode}(\mathrm{encode}(x)) - x| \leq w_j / 2.

    Edges and comparisons are float64, so the bound also holds for float32 values.

    Args:
        edges: strictly increasing edges, shape (m + 1,).
        kind: a name for how the edges were made; it changes nothing else.
        missing: the id that stands for a missing value (NaN); cross-entropy ignores the default.

    Example:
        >>> (bins := Bins.uniform(4, low=-1.0, high=1.0))
        Bins(kind='uniform', num_bins=4, low=-1.0, high=1.0)
        >>> bins.encode([-0.9, 0.0, 7.0, float("nan")])
        tensor([   0,    2,    3, -100])
        >>> bins.decode([0, 2, 3, -100])
        tensor([-0.7500,  0.2500,  0.7500,     nan], dtype=torch.float64)
    """

    missing: int = -100

    def __init__(self, edges: Values, kind: str = "custom", missing: int = -100) -> None:
        array = _array(edges, "edges")
        if array.ndim != 1 or array.size < 2:
            raise ValueError(f"edges must be one row of at least 2 numbers, got shape {tuple(array.shape)}.")
        if not np.isfinite(array).all() or math.isinf(float(array[-1]) - float(array[0])):
            raise ValueError(f"edges must be finite and span a finite length, got {array.min()} to {array.max()}.")
        if not (rising := array[1:] > array[:-1]).all():
            a, b = array[np.argmin(rising) :][:2]
            raise ValueError(f"edges must be strictly increasing, got {b} after {a}.")
        # Halves first: the sum of two edges may overflow where their mean does not.
        centers = array[:-1] / 2 + array[1:] / 2
        if not ((array[:-1] < centers) & (centers < array[1:])).all():
            raise ValueError("edges must leave room for a float64 centre in every bin, got some too close together.")
        if not is_whole(missing) or 0 <= missing < centers.size:
            raise ValueError(f"missing must be an integer that is not the id of a bin, got {missing!r}.")
        self.kind, self.missing, self.num_bins = str(kind), int(missing), int(centers.size)
        self.low, self.high = float(array[0]), float(array[-1])
        self.edges, self.centers = torch.from_numpy(array), torch.from_numpy(centers)
        self.widths = self.edges.diff()

    # --- making bins

    @classmethod
    def uniform(cls, num_bins: int, low: float, high: float) -> Bins:
        r"""Make bins of equal width, :math:`e_j = low + (high - low) \, j / m`.

        Example:
            >>> Bins.uniform(4, 0.0, 2.0).edges.tolist()
            [0.0, 0.5, 1.0, 1.5, 2.0]
        """
        num_bins, low, high = _count(num_bins), *_limits(low, high)
        return cls(np.linspace(low, high, num_bins + 1), "uniform")

    @classmethod
    def mixed(
        cls, num_bins: int, low: float, high: float, dense: tuple[float, float], sparse_share: float = 0.1
    ) -> Bins:
        r"""Make mixed-precision bins: fine in a dense range, coarse in the sparse ranges around it.

        With :math:`d` = ``sparse_share``, :math:`s = \lfloor d m \rfloor` bins go to the sparse ranges and the rest to
        the dense one; bins of one range have equal width. The left sparse range gets the share of the :math:`s` bins
        that is its share of the sparse length, rounded to the nearest integer (halves up), the right one the others.
        A range of positive length gets at least one bin, so :math:`s` is raised to the number of such ranges where it
        is smaller. :math:`d m` is rounded to 9 decimals first, since in floating point ``0.29 * 100 < 29``.

        References:
            Gillman et al., Fourier Head, ICLR 2025, "Binning strategy".

        Example:
            >>> bins = Bins.mixed(20, low=-15, high=15, dense=(-1, 10), sparse_share=0.25)
            >>> [int((bins.centers < -1).sum()), int((bins.centers > 10).sum()), bins.num_bins]
            [4, 1, 20]
        """
        num_bins, low, high = _count(num_bins), *_limits(low, high)
        if not 0 <= sparse_share < 1:
            raise ValueError(f"sparse_share must lie in [0, 1), got {sparse_share}.")
        try:
            lo, hi = (float(x) for x in dense)
        except (TypeError, ValueError):
            raise ValueError(f"dense must be a pair of numbers (low, high), got {dense!r}.") from None
        if not low <= lo < hi <= high:
            raise ValueError(f"dense must be a range inside [{low}, {high}], got ({lo}, {hi}).")
        left, right = lo - low, high - hi
        needed = int(left > 0) + int(right > 0)
        sparse = max(math.floor(round(sparse_share * num_bins, 9)), needed) if needed else 0
        if sparse >= num_bins:
            raise ValueError(f"num_bins must be at least {needed + 1} for a bin in every range, got {num_bins}.")
        num_left = math.floor(sparse * (left / (left + right)) + 0.5) if needed else 0
        num_left = min(max(num_left, int(left > 0)), sparse - int(right > 0))
        counts, ends = (num_left, num_bins - sparse, sparse - num_left), (low, lo, hi, high)
        parts = [np.linspace(ends[i], ends[i + 1], n + 1)[:-1] for i, n in enumerate(counts) if n]
        return cls(np.concatenate([*parts, [high]]), "mixed")

    @classmethod
    def mixed_from_data(
        cls, values: Values, num_bins: int, low: float, high: float, sparse_share: float = 0.1, coverage: float = 0.9
    ) -> Bins:
        """Make mixed-precision bins whose dense range is estimated from data.

        The dense range is the shortest interval that holds a share ``coverage`` of the values, clipped to
        ``[low, high]``, NaN left out; one shorter than a uniform bin (a value that repeats) is widened to that.

        Example:
            >>> values = [0, 1, 1.5, 2, 2.5, 3, 9]
            >>> Bins.mixed_from_data(values, 8, low=0, high=10, sparse_share=0.25, coverage=0.7).edges[[1, 7]]
            tensor([1., 3.], dtype=torch.float64)
        """
        num_bins, low, high = _count(num_bins), *_limits(low, high)
        if not 0 < coverage <= 1:
            raise ValueError(f"coverage must lie in (0, 1], got {coverage}.")
        array = np.sort(_spread(np.clip(_array(values, "values"), low, high)))
        held = max(math.ceil(round(coverage * array.size, 9)), 2)
        start = int((array[held - 1 :] - array[: array.size - held + 1]).argmin())
        lo, hi, least = float(array[start]), float(array[start + held - 1]), (high - low) / num_bins
        if hi - lo < least:
            lo = min(max((lo + hi - least) / 2, low), high - least)
            hi = min(lo + least, high)
        # A sparse range next to nothing would leave no room for its bins.
        lo, hi = (low if lo - low < 1e-6 * least else lo), (high if high - hi < 1e-6 * least else hi)
        return cls.mixed(num_bins, low, high, (lo, hi), sparse_share)

    @classmethod
    def quantile(cls, values: Values, num_bins: int) -> Bins:
        """Make bins that hold equal shares of the data: the edges are its quantiles.

        NaN and infinite values are left out. Where values repeat (or there are fewer distinct values than bins) some
        quantiles coincide; these are merged into one edge, and the bins won that way go to halving the widest bins,
        one after the other. So there are always ``num_bins``, but shares differ then and some bins may hold no data.

        Example:
            >>> Bins.quantile([0, 1, 2, 4, 8], 4).edges.tolist()
            [0.0, 1.0, 2.0, 4.0, 8.0]
        """
        return cls(_quantile_edges(_spread(values), _count(num_bins)), "quantile")

    @classmethod
    def fit(cls, values: Values, num_bins: int, kind: str = "uniform", margin: float = 0.0, **mixed: float) -> Bins:
        """Make bins with limits fitted to data: its least and greatest finite value, moved out by a margin.

        Args:
            values: the data; NaN and infinite values are left out.
            kind: ``"uniform"``, ``"mixed"`` (dense range estimated) or ``"quantile"`` (only the end edges move).
            margin: how far to move each limit out, as a share of the range of the data.
            mixed: ``sparse_share`` and ``coverage`` of :meth:`mixed_from_data`, for that kind only.

        Example:
            >>> Bins.fit([0.0, 3.0, 10.0, float("nan")], num_bins=6, margin=0.1)
            Bins(kind='uniform', num_bins=6, low=-1.0, high=11.0)
        """
        num_bins, array = _count(num_bins), _spread(values)
        if not 0 <= margin < math.inf:
            raise ValueError(f"margin must be a finite number of at least 0, got {margin}.")
        low, high = float(array.min()), float(array.max())
        low, high = low - margin * (high - low), high + margin * (high - low)
        if kind == "mixed":
            return cls.mixed_from_data(array, num_bins, low, high, **mixed)
        if mixed:
            raise ValueError(f"{', '.join(mixed)} must come with kind='mixed', got kind={kind!r}.")
        if kind == "uniform":
            return cls.uniform(num_bins, low, high)
        if kind == "quantile":
            return cls([low, *_quantile_edges(array, num_bins)[1:-1], high], "quantile")
        raise ValueError(f"kind must be uniform, mixed or quantile, got {kind!r}.")

    # --- values and ids

    def encode(self, values: Values) -> Tensor:
        """Find the bin of each value; those outside, infinities included, go to the first or last, NaN to ``missing``.

        Example:
            >>> Bins.uniform(10, 0, 1).encode([[0.0, 0.1], [1.0, -float("inf")]])
            tensor([[0, 1],
                    [9, 0]])
        """
        x = widest(_tensor(values, "values"))
        return torch.where(x.isnan(), self.missing, self._index(x))

    def decode(self, ids: Tensor | np.ndarray | Sequence[int] | int, dtype: torch.dtype = torch.float64) -> Tensor:
        """Give the centre of each bin, NaN for ``missing``.

        It is float64 unless asked otherwise: a centre rounded to float32 may fall outside a very narrow bin.

        Example:
            >>> Bins.uniform(10, 0, 1).decode([0, 9], dtype=torch.float32)
            tensor([0.0500, 0.9500])
        """
        ids = ids if isinstance(ids, Tensor) else torch.from_numpy(np.array(ids))
        if ids.numel() and (ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool):
            raise TypeError(f"ids must be integers, got {ids.dtype}.")
        ids = ids.long()
        gone = ids == self.missing
        wrong = ((ids < 0) | (ids >= self.num_bins)) & ~gone
        if wrong.any():
            raise ValueError(f"ids must lie in 0 to {self.num_bins - 1} or be {self.missing}, got {ids[wrong][0]}.")
        centers = self.centers.to(device=ids.device, dtype=dtype)
        return torch.where(gone, math.nan, centers[ids.masked_fill(gone, 0)])

    def clip_rate(self, values: Values) -> float:
        """Give the share of values, NaN left out, that lie outside the interval.

        Example:
            >>> Bins.uniform(10, 0, 1).clip_rate([0.0, 0.5, 1.5, float("inf"), float("nan")])
            0.5
        """
        x = _tensor(values, "values")
        known = int((~x.isnan()).sum())
        return int(self._outside(x).sum()) / known if known else 0.0

    # --- the warp of the value axis

    def to_unit(self, values: Values) -> Tensor:
        r"""Warp values so that the bins become uniform on :math:`[-1, 1]`; differentiable.

        .. math:: z(x) = -1 + \frac{2}{m} \left( j + \frac{x - e_j}{w_j} \right), \quad x \in [e_j, e_{j+1}]

        Values outside are clamped to -1 or 1, with zero gradient; NaN stays NaN. The arithmetic is float64.

        Example:
            >>> Bins([0.0, 1.0, 10.0]).to_unit(torch.tensor([0.0, 0.5, 1.0, 5.5, 10.0, 99.0]))
            tensor([-1.0000, -0.5000,  0.0000,  0.5000,  1.0000,  1.0000])
        """
        values = _tensor(values, "values")
        x = widest(values).clamp(self.low, self.high)
        j = self._index(x)
        start, width = self._at(self.edges, j, x), self._at(self.widths, j, x)
        z = (2 * (j + (x - start) / width) / self.num_bins - 1).clamp(-1, 1)
        return z.to(values.dtype)

    def from_unit(self, z: Values) -> Tensor:
        r"""Undo :meth:`to_unit`; differentiable.

        .. math:: x(z) = e_j + (t - j) \, w_j, \quad t = m (z + 1) / 2, \quad j = \lfloor t \rfloor

        Arguments outside :math:`[-1, 1]` are clamped, with zero gradient; NaN stays NaN.

        Example:
            >>> Bins([0.0, 1.0, 10.0]).from_unit(torch.tensor([-1.0, -0.5, 0.5, 1.0]))
            tensor([ 0.0000,  0.5000,  5.5000, 10.0000])
        """
        z = _tensor(z, "z")
        t = (widest(z).clamp(-1, 1) + 1) * (self.num_bins / 2)
        # NaN has no bin; bin 0 stands in, and the NaN comes back through the fraction.
        j = t.detach().nan_to_num(0.0).floor().long().clamp(0, self.num_bins - 1)
        return torch.lerp(self._at(self.edges, j, t), self._at(self.edges, j + 1, t), t - j).to(z.dtype)

    def log_slope(self, values: Values) -> Tensor:
        r"""Give the log of the slope of :meth:`to_unit`, constant on each bin.

        .. math:: \log \frac{dz}{dx} = \log \frac{2}{m w_j}

        A log-density of z plus this is one of values. Outside the interval it is ``-inf``; NaN stays NaN.

        Example:
            >>> Bins([0.0, 1.0, 10.0]).log_slope(torch.tensor([0.5, 5.0, 11.0])).exp()
            tensor([1.0000, 0.1111, 0.0000])
        """
        values = _tensor(values, "values")
        x = widest(values)
        slope = math.log(2 / self.num_bins) - self._at(self.widths.log(), self._index(x), x)
        slope = torch.where(self._outside(values), -math.inf, slope)
        return torch.where(values.isnan(), math.nan, slope).to(values.dtype)

    def _index(self, x: Tensor) -> Tensor:
        inner = self.edges[1:-1].to(device=x.device, dtype=x.dtype)
        return torch.searchsorted(inner.contiguous(), x.detach().contiguous(), right=True)

    def _outside(self, x: Tensor) -> Tensor:
        # Compared in the dtype of the values: an end rounded to float32 is still the end.
        return (x < self.low) | (x > self.high)

    @staticmethod
    def _at(table: Tensor, j: Tensor, like: Tensor) -> Tensor:
        # Not table[j]: vmap takes a 0-dimensional index for a number.
        return table.to(device=like.device, dtype=like.dtype).gather(0, j.reshape(-1)).reshape(j.shape)

    # --- living with others

    def to(self, device: torch.device | str) -> Bins:
        """Give the same bins with their tables on a device, which spares a copy in every call on tensors there."""
        other = Bins(self.edges, self.kind, self.missing)
        for name in ("edges", "centers", "widths"):
            setattr(other, name, widest(getattr(other, name), torch.device(device)))
        return other

    def to_dict(self) -> dict[str, Any]:
        """Give a dictionary fit for JSON, with the keys kind, missing and edges."""
        return {"kind": self.kind, "missing": self.missing, "edges": self.edges.tolist()}

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Bins:
        """Make bins from what :meth:`to_dict` gave.

        Example:
            >>> Bins.from_dict(Bins.uniform(2, 0, 1).to_dict()) == Bins.uniform(2, 0, 1)
            True
        """
        if not isinstance(state, Mapping) or "edges" not in state or set(state) - {"kind", "missing", "edges"}:
            raise ValueError(f"state must be a dictionary with the keys edges, kind and missing, got {state!r:.80}.")
        return cls(**state)

    def __eq__(self, other: object) -> bool:
        return self.to_dict() == other.to_dict() if isinstance(other, Bins) else NotImplemented

    def __hash__(self) -> int:
        return hash((self.kind, self.missing, tuple(self.edges.tolist())))

    def __repr__(self) -> str:
        return f"Bins(kind={self.kind!r}, num_bins={self.num_bins}, low={self.low}, high={self.high})"


def _tensor(values: Values, name: str) -> Tensor:
    """Make a tensor; floating-point tensors and float32 arrays keep their dtype, all else becomes float64."""
    if not isinstance(values, Tensor):
        return torch.from_numpy(_array(values, name, keep_float32=True))
    if values.is_complex():
        raise TypeError(f"{name} must be real numbers, got {values.dtype}.")
    return values if values.is_floating_point() else widest(values)


def _array(values: Values, name: str, keep_float32: bool = False) -> np.ndarray:
    if isinstance(values, Tensor):
        values = values.detach().cpu().double().numpy()
    dtype = np.float32 if keep_float32 and getattr(values, "dtype", None) == np.float32 else np.float64
    try:
        return np.array(values, dtype=dtype, order="C")
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be numbers, got {values!r:.60}.") from None


def _count(num_bins: int) -> int:
    if not is_whole(num_bins, 1):
        raise ValueError(f"num_bins must be a whole number of at least 1, got {num_bins!r}.")
    return int(num_bins)


def _limits(low: float, high: float) -> tuple[float, float]:
    low, high = float(low), float(high)
    if not 0 < high - low < math.inf:
        raise ValueError(f"low must be less than high, a finite length apart, got low={low} and high={high}.")
    return low, high


def _spread(values: Values) -> np.ndarray:
    """Give the finite values, which must not all be one."""
    array = _array(values, "values").ravel()
    array = array[np.isfinite(array)]
    if array.size == 0:
        raise ValueError("values must hold at least one finite number, got none.")
    if array.min() == array.max():
        raise ValueError(f"values must not be constant where they count, got only {array[0]}.")
    return array


def _quantile_edges(array: np.ndarray, num_bins: int) -> np.ndarray:
    edges = np.quantile(array, np.linspace(0, 1, num_bins + 1))
    low, high = float(array.min()), float(array.max())
    # Edges nearer than rounding errors count as one: no centre would fit between them.
    least = 1e-12 * (high - low) + 8 * np.finfo(np.float64).eps * max(abs(low), abs(high))
    kept = [low]
    for edge in edges[1:-1].tolist():
        if edge - kept[-1] > least and high - edge > least:
            kept.append(edge)
    heap = [(lo - hi, lo, hi) for lo, hi in itertools.pairwise([*kept, high])]
    heapq.heapify(heap)
    while len(heap) < num_bins:
        _, lo, hi = heapq.heappop(heap)
        mid = lo / 2 + hi / 2
        heapq.heappush(heap, (lo - mid, lo, mid))
        heapq.heappush(heap, (mid - hi, mid, hi))
    return np.array([*sorted(lo for _, lo, _ in heap), high])
