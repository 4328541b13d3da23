"""Compute losses of a projected density on a GPU at little more than the cost of the projection.

One kernel reads the rows of a matrix product once and makes both the loss and its gradient; the backward pass is two
more products. Where rows of features fit the chip and the density is the paper's, one kernel multiplies, too, and sums
while the products are still in float32 registers. Nothing of size tokens x bins exists. The reference of `losses.py` is
what all must equal.
"""

from __future__ import annotations

import importlib.util
import os
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from fourier_head._compilers import constant_result
from fourier_head.kernels.plan import Score

__all__ = [
    "Score",
    "available",
    "coefficient_quantile",
    "coefficient_sample",
    "cross_entropy",
    "density_nll",
    "distribution",
    "log_density",
    "log_pmf",
    "ordered_quantiles",
    "quantile",
    "sample",
    "score_rows",
]

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
REDUCTIONS = ("none", "mean", "sum")
# Up to this many levels are put in order while they are found, up to this many coefficients sampled one by one.
FEW_LEVELS = 32
FEW_COEFFICIENTS = 4096
# Up to this many frequencies the spectrum that a ranked score needs stays on the chip.
RANKED_FREQUENCIES = 64
_CAPABLE: dict[int, bool] = {}
_HERE: AbstractContextManager[object] = nullcontext()


def available(x: Tensor) -> bool:
    """Tell whether the kernels run on the device and in the type of ``x``.

    >>> available(torch.zeros(2, 3))
    False
    """
    return x.is_cuda and x.dtype in DTYPES and _capable(x.device.index)


@constant_result
def _capable(index: int) -> bool:
    if index not in _CAPABLE:
        found = importlib.util.find_spec("triton") is not None and torch.version.hip is None
        _CAPABLE[index] = found and torch.cuda.get_device_capability(index) >= (8, 0)
    return _CAPABLE[index]


def interpreted(x: Tensor) -> bool:
    """Tell whether Triton's interpreter would run the kernels on the CPU of ``x``: slowly, for tests."""
    return x.device.type == "cpu" and x.dtype in DTYPES and os.environ.get("TRITON_INTERPRET") == "1"


def wanted(impl: str, *tensors: Tensor) -> bool:
    """Tell whether the kernels of inference take these tensors: where they run, nothing traces or needs a gradient.

    >>> wanted("auto", torch.zeros(2, 3))
    False
    """
    if impl not in ("auto", "fused") or torch.compiler.is_compiling() or torch.jit.is_tracing():
        return False
    if not available(tensors[0]) and not (impl == "fused" and interpreted(tensors[0])):
        return False
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        return False
    return not any(torch._C._functorch.is_functorch_wrapped_tensor(tensor) for tensor in tensors)


def cross_entropy(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    *,
    num_bins: int,
    floor: float = 0.0,
    ignore_index: int = -100,
    class_weight: Tensor | None = None,
    reduction: str = "none",
    penalty: float = 0.0,
    points: int = 1,
    offsets: Tensor | None = None,
    generator: torch.Generator | None = None,
    walls: bool = False,
) -> Tensor:
    r"""Return the cross-entropy of bin ids, plus ``penalty`` times an unbiased estimate of the roughness.

    .. math:: \ell_t = \log m + \log E - \log\bigl((1 - \epsilon)\,|A(b_t)|^2 + \epsilon E\bigr)

    The roughness :math:`\int p'^2` is estimated by the trapezoid rule on ``points`` equally spaced points, shifted at
    random for every token: its mean over the shift is the integral for any number of points, and more than 2N points
    give the integral itself.

    Args:
        x: Inputs of the projection, (tokens, width).
        weight: (2 (N + 1), width), rows alpha_0..alpha_N, beta_0..beta_N; (N + 1, width) between walls.
        bias: (len(weight),) or None.
        target: Bin ids, (tokens,); those equal to ``ignore_index`` count nothing.
        num_bins: Number m of bins; N < m (N < 2 m between walls).
        floor: Weight of the uniform distribution mixed in.
        class_weight: Weights of the bins, (m,), as in :func:`torch.nn.functional.cross_entropy`.
        reduction: ``"none"``, ``"mean"`` or ``"sum"``.
        penalty: Weight of the roughness.
        points: Points per token of the estimate, a power of two.
        offsets: Shifts in [0, 1), (tokens,), in place of random ones.
        generator: Source of the random shifts.
        walls: Real coefficients between reflecting walls in place of the circle.

    Returns:
        Float32 losses, (tokens,), or their mean or sum.
    """
    limit = 2 * num_bins if walls else num_bins
    length = weight.shape[0] if walls else weight.shape[0] // 2
    if length > limit:
        raise ValueError(f"num_bins: {length - 1} frequencies need more than {num_bins} bins in the fused kernels")
    if target.is_floating_point():
        raise TypeError(f"target: expected integer bin ids, got {target.dtype}")
    score = _score(
        "bins", length, num_bins, floor=floor, ignore_index=ignore_index, reduction=reduction, penalty=penalty,
        points=points, walls=walls,
    )  # fmt: skip
    return score_rows(x, weight, bias, target, score, class_weight=class_weight, offsets=offsets, generator=generator)


def density_nll(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    value: Tensor,
    *,
    floor: float = 0.0,
    reduction: str = "none",
    penalty: float = 0.0,
    points: int = 1,
    offsets: Tensor | None = None,
    generator: torch.Generator | None = None,
    walls: bool = False,
) -> Tensor:
    r"""Return the negative log-density at values in [-1, 1], :math:`\log 2E - \log((1 - \epsilon)|A|^2 + \epsilon E)`.

    Arguments are those of :func:`cross_entropy`; no gradient flows to ``value``. NaN does not count, and values outside
    are taken at the nearest end.
    """
    if not value.is_floating_point():
        raise TypeError(f"value: expected real numbers, got {value.dtype}")
    if value.requires_grad:
        raise ValueError("value: the fused kernels give no gradient with respect to the values")
    length = weight.shape[0] if walls else weight.shape[0] // 2
    score = _score(
        "interval", length, floor=floor, reduction=reduction, penalty=penalty, points=points, walls=walls, origin=-1.0
    )
    return score_rows(x, weight, bias, value, score, offsets=offsets, generator=generator)


@torch.no_grad()
def sample(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    num_samples: int = 1,
    *,
    floor: float = 0.0,
    generator: torch.Generator | None = None,
    walls: bool = False,
) -> Tensor:
    """Draw exact samples of the projected densities, (num_samples, tokens) in [-1, 1], in O(N) each.

    No bins, no search and no approximation: `sampling.py` explains the method. No gradient flows.
    """
    from fourier_head.kernels import evaluation

    _check(x, weight, bias)
    x, weight = _match(x, weight)
    length = weight.shape[0] if walls else weight.shape[0] // 2
    noise = _noise(x, length, num_samples, generator)
    bias = bias if bias is None else bias.contiguous()
    with _on(x):
        return evaluation.sample(x, weight, bias, noise, Score("nll", "interval", length, floor=floor, walls=walls))


@torch.no_grad()
def coefficient_sample(
    a: Tensor,
    num_samples: int = 1,
    *,
    floor: float = 0.0,
    generator: torch.Generator | None = None,
    walls: bool = False,
) -> Tensor:
    """Draw samples as :func:`sample` does from coefficients (tokens, 2, N + 1), or (tokens, 1, L) between walls."""
    from fourier_head.kernels import evaluation

    a = _rows("a", a, walls)
    if a.shape[2] > FEW_COEFFICIENTS:
        raise ValueError(f"a: expected at most {FEW_COEFFICIENTS} coefficients, got {a.shape[2]}")
    noise = _noise(a, a.shape[2], num_samples, generator)
    with _on(a):
        return evaluation.coefficient_sample(a, noise, floor, walls)


def _noise(x: Tensor, harmonics: int, num_samples: int, generator: torch.Generator | None) -> Tensor:
    """Return uniform numbers for samples: for the floor, the shift and each binary digit."""
    digits = max(harmonics - 1, 1).bit_length()
    return torch.rand((2 + digits, num_samples, len(x)), device=x.device, generator=generator)


@torch.no_grad()
def log_pmf(y: Tensor, *, num_bins: int, floor: float = 0.0) -> Tensor:
    """Return log-probabilities of all bins, (tokens, num_bins) in float32, on the circle and without a gradient.

    ``y`` are outputs of a projection, (tokens, 2 (N + 1)). Those of float32 give results of that precision. For those
    of a 16-bit type matrix units multiply numbers of 11 bits, which is as many as the outputs have or more; up to 64
    harmonics nothing of float16 outputs is rounded further.
    """
    from fourier_head.kernels import evaluation

    if not available(y) and not interpreted(y):
        raise TypeError(f"y: the fused kernels need a CUDA tensor in {DTYPES}, got {y.dtype} on {y.device}")
    if y.dim() != 2 or y.shape[1] % 2:
        raise ValueError(f"y: expected (tokens, 2 (N + 1)), got {tuple(y.shape)}")
    if y.shape[1] // 2 > num_bins:
        raise ValueError(f"num_bins: {y.shape[1] // 2 - 1} frequencies need more than {num_bins} bins")
    y = y if y.stride(-1) == 1 else y.contiguous()
    with _on(y):
        return evaluation.log_pmf(y, Score("nll", "bins", y.shape[1] // 2, num_bins, floor=floor))


@torch.no_grad()
def quantile(q: Tensor, levels: Tensor, *, walls: bool = False, tails: float = 0.0) -> Tensor:
    """Return the quantiles of spectra (tokens, 2, N), or (tokens, 1, N) between walls, at levels (tokens, V).

    The distribution function is interpolated from a grid twice as fine as its waves (``window``); Laplace tails of a
    weight are mixed in. No gradient flows.
    """
    from fourier_head.kernels import evaluation

    q = _rows("q", q, walls, levels).float()
    with _on(q):
        return evaluation.quantile(q, levels.float(), walls, tails)


@torch.no_grad()
def distribution(a: Tensor, z: Tensor, *, floor: float = 0.0, walls: bool = False, spectra: bool = False) -> Tensor:
    """Return distribution functions at z (tokens, V) of [-1, 1]: of coefficients, or of ``spectra``; no gradient flows.

    Interpolated as in :func:`quantile`, in float32.
    """
    from fourier_head.kernels import evaluation

    a = _rows("a", a, walls, z).float()
    if not z.numel():
        return torch.empty(z.shape, device=a.device)
    with _on(a):
        grid = evaluation.spectrum_grid(a, walls) if spectra else evaluation.grid_of(a, floor, walls)
        return evaluation.distribution(grid, z.float(), walls)


@torch.no_grad()
def log_density(a: Tensor, z: Tensor, *, floor: float = 0.0, walls: bool = False) -> Tensor:
    """Return log-densities of coefficients (tokens, 2, N + 1), or (tokens, 1, L) between walls, at z (tokens,)."""
    a = _rows("a", a, walls)
    score = Score("nll", "interval", a.shape[2], floor=floor, walls=walls, origin=-1.0, reduction="none")
    return -score_rows(a.flatten(1), None, None, z, score)


@torch.no_grad()
def coefficient_quantile(
    a: Tensor, levels: Tensor, *, floor: float = 0.0, walls: bool = False, tails: float = 0.0
) -> Tensor:
    """Return the quantiles of densities with coefficients (tokens, 2, N + 1), or (tokens, 1, L) between walls.

    As :func:`quantile`, without making a spectrum. Coefficients of a 16-bit type are multiplied as such.
    """
    from fourier_head.kernels import evaluation

    a = _rows("a", a, walls, levels)
    with _on(a):
        return evaluation.coefficient_quantile(a, levels.float(), floor, walls, tails)


@torch.no_grad()
def ordered_quantiles(
    a: Tensor,
    levels: Tensor,
    low: float = -1.0,
    half_width: float = 1.0,
    *,
    floor: float = 0.0,
    walls: bool = False,
    tails: float = 0.0,
    loc: Tensor | None = None,
    width: Tensor | None = None,
    spectra: bool = False,
) -> Tensor:
    """Return quantiles at levels (V,), the same for all tokens, as values; of shape (V, tokens), they never cross.

    Args:
        a: coefficients as for :func:`coefficient_quantile` or, with ``spectra``, spectra as for :func:`quantile`.
        levels: at most 32.
        low, half_width: of the interval of values.
        loc, width: middle and half width of the interval of each token, (tokens,), in place of those.
        floor, walls, tails: of the densities.
    """
    from fourier_head.kernels import evaluation

    if levels.dim() != 1 or len(levels) > FEW_LEVELS:
        raise ValueError(f"levels: expected shape (V,), V at most {FEW_LEVELS}, got {tuple(levels.shape)}")
    levels = levels.float().contiguous()
    a = _rows("a", a, walls)
    if loc is not None and width is not None:
        loc, width, low, half_width = loc.float().contiguous(), width.float().contiguous(), 0.0, 1.0
    if not len(a) or not len(levels):
        return torch.empty(len(levels), len(a), device=a.device)
    with _on(a):
        grid = evaluation.spectrum_grid(a.float(), walls) if spectra else evaluation.grid_of(a, floor, walls)
        return evaluation.ordered_quantiles(grid, levels, low, half_width, walls, tails, loc, width)


def _rows(name: str, tensor: Tensor, walls: bool, levels: Tensor | None = None) -> Tensor:
    """Check (tokens, halves, length) beside levels (tokens, V) and return it as the kernels read it."""
    if not available(tensor) and not interpreted(tensor):
        raise TypeError(f"{name}: the fused kernels need a CUDA tensor, got {tensor.dtype} on {tensor.device}")
    rows = 1 if walls else 2
    if tensor.dim() != 3 or tensor.shape[1] != rows:
        raise ValueError(f"{name}: expected (tokens, {rows}, N) with walls={walls}, got {tuple(tensor.shape)}")
    if levels is not None and (levels.dim() != 2 or len(levels) != len(tensor)):
        raise ValueError(f"levels: expected shape ({len(tensor)}, V), got {tuple(levels.shape)}")
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


def _on(x: Tensor) -> AbstractContextManager[object]:
    """Launch on the device of ``x``, whichever is the current one."""
    if x.is_cuda and x.device.index != torch.cuda.current_device():
        return torch.cuda.device(x.device)
    return _HERE


def _score(target: str, length: int, num_bins: int = 0, *, penalty: float, points: int, **options: Any) -> Score:
    if points < 1 or points & (points - 1):
        raise ValueError(f"points: expected a power of two, got {points}")
    if options["reduction"] not in REDUCTIONS:
        raise ValueError(f"reduction: expected one of {REDUCTIONS}, got {options['reduction']!r}")
    return Score("nll", target, length, num_bins, penalty=penalty, points=points if penalty else 0, **options)


def score_rows(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    target: Tensor,
    score: Score,
    *,
    class_weight: Tensor | None = None,
    anchor: Tensor | None = None,
    offsets: Tensor | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Return the loss that a ``Score`` describes, of features (tokens, width) or, without a weight, of outputs.

    Args:
        x, weight, bias: of the projection; the outputs lie in the order of ``Layout``.
        target: bin ids or values, (tokens,).
        score: which loss.
        class_weight: weights of bins and atoms.
        anchor: guesses of the values, for a domain with three outputs.
        offsets: shifts in [0, 1), (tokens,), of the points of the roughness, in place of random ones.
        generator: source of the random shifts.
    """
    # Imported late: triton is optional, and importing it takes a while.
    from fourier_head.kernels import function, ops, plan

    _check(x, weight, bias)
    if target.shape != x.shape[:1]:
        raise ValueError(f"target: expected shape ({x.shape[0]},), got {tuple(target.shape)}")
    x, weight = _match(x, weight)
    if bias is not None and not bias.is_contiguous():
        bias = bias.contiguous()
    if not target.is_contiguous():
        target = target.contiguous()
    if class_weight is not None and score.points:
        raise ValueError("class_weight: not beside a penalty, whose tokens all weigh the same")
    class_weight = class_weight if class_weight is None else class_weight.contiguous()
    anchor = anchor if anchor is None else anchor.contiguous()
    if not score.points:
        offsets = None
    elif offsets is None:
        offsets = torch.rand(len(x), device=x.device, generator=generator)
    whole = weight is not None and score.is_free and plan.is_resident(x, score.length)
    if torch.compiler.is_compiling():
        wanted = any(tensor is not None and tensor.requires_grad for tensor in (x, weight, bias))
        keep = torch.is_grad_enabled() and wanted
        if whole:
            return ops.fused_loss(x, weight, bias, target, offsets, class_weight, score, keep)
        return ops.row_loss(x, weight, bias, target, anchor, offsets, class_weight, score, keep)
    with _on(x):
        if whole:
            return function.FusedLoss.apply(x, weight, bias, target, offsets, class_weight, score)
        return function.RowLoss.apply(x, weight, bias, target, anchor, offsets, class_weight, score)


def _match(x: Tensor, weight: Any) -> tuple[Tensor, Any]:
    """Return both in one type, that of autocast where it is on, with rows of unit stride, as the kernels read them."""
    if weight is None:
        return x if x.stride(-1) == 1 else x.contiguous(), None
    if torch.is_autocast_enabled(x.device.type):
        dtype = torch.get_autocast_dtype(x.device.type)
        x, weight = x.to(dtype), weight.to(dtype)
    elif weight.dtype != x.dtype:
        raise TypeError(f"weight: expected the type of x, {x.dtype}, got {weight.dtype}")
    x = x if x.stride(-1) == 1 else x.contiguous()
    return x, weight if weight.stride(-1) == 1 else weight.contiguous()


def _check(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> None:
    for name, tensor in (("x", x), ("weight", weight), ("bias", bias)):
        if type(tensor).__name__ == "DTensor":
            raise TypeError(f'{name}: the fused kernels need plain tensors, got a DTensor; use impl="reference"')
    if not available(x) and not interpreted(x):
        raise TypeError(f"x: the fused kernels need a CUDA tensor in {DTYPES}, got {x.dtype} on {x.device}")
    if weight is None:
        return
    if x.dim() != 2 or weight.dim() != 2 or x.shape[1] != weight.shape[1]:
        raise ValueError(f"weight: expected (outputs, {x.shape[-1]}), got {tuple(weight.shape)}")
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ValueError(f"bias: expected shape ({weight.shape[0]},), got {tuple(bias.shape)}")
