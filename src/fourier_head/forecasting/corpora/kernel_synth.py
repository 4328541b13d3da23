r"""KernelSynth: series drawn from Gaussian processes whose kernels are random sums and products of a bank's.

The procedure is that of Chronos (Ansari et al., 2024, appendix B): up to five kernels of the bank, drawn with
replacement and folded from the left by + or x with equal chance. Every base process is a short random Fourier sum,
and processes are added and multiplied in place of kernels. Covariances are those of the kernels, since
:math:`E[f f' g g'] = k_f k_g` for independent f and g; products are no longer Gaussian. It costs O(T) per series where
exact draws take O(T^3), so every batch is new.
"""

from __future__ import annotations

import functools
import math
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from fourier_head.forecasting.corpora.windows import SHORTEST, Windows, cut_contexts, split_windows

UNIT = 1024
"""Steps in one unit of time: length scales are fractions of this many steps, whatever the window."""
MOST, CUT_SHARE = 5, 0.5
"""Kernels of a composition, and the share of rows whose older part is blanked."""
CHUNK = 4096
"""Rows made at once, whose waves take so many x features x length floats."""

Kind = Literal["periodic", "linear", "rbf", "rational", "white", "constant"]
_KINDS: tuple[Kind, ...] = ("periodic", "linear", "rbf", "rational", "white", "constant")
_PERIODIC, _LINEAR, _RBF, _RATIONAL, _WHITE, _CONSTANT = range(6)


class Kernel(NamedTuple):
    """Name one kernel of a bank.

    `value` is the period in steps, the deviation of the offset (linear), the length scale in units (rbf), the exponent
    of a rational quadratic of length scale 1, or the variance (white, constant).
    """

    kind: Kind
    value: float


_PERIODS = (24, 48, 96, 168, 336, 672, 7, 14, 30, 60, 365, 730, 4, 26, 52, 4, 6, 12, 4, 40, 10)

CHRONOS_BANK: tuple[Kernel, ...] = (
    *(Kernel("periodic", p) for p in _PERIODS),
    *(Kernel("linear", s) for s in (0.0, 1.0, 10.0)),
    *(Kernel("rbf", s) for s in (0.1, 1.0, 10.0)),
    *(Kernel("rational", a) for a in (0.1, 1.0, 10.0)),
    Kernel("white", 0.1),
    Kernel("white", 1.0),
    Kernel("constant", 1.0),
)
"""The kernels Chronos draws from; a period that occurs thrice has three times the chance."""

WIDE_BANK: tuple[Kernel, ...] = (
    *CHRONOS_BANK,
    *(Kernel("periodic", p) for p in (4, 5, 7, 12, 12, 12, 24, 52, 144, 288)),
    *(Kernel("rbf", s) for s in (0.01, 0.03)),
)
"""The same with more weight on the seasons of calendars, and smooth movement over tens of steps."""


class KernelMix(NamedTuple):
    """Describe compositions, one a row: kind, value (n, J), how many are used (n,), times instead of plus (n, J)."""

    kind: Tensor
    value: Tensor
    used: Tensor
    times: Tensor

    def period(self) -> Tensor:
        """Return the shortest period among the kernels used (n,), 1 where none is periodic."""
        there = torch.arange(self.kind.shape[1], device=self.kind.device) < self.used[:, None]
        far = torch.where(there & (self.kind == _PERIODIC), self.value, math.inf).amin(1)
        return torch.where(far.isfinite(), far, 1.0).long()


# exp(-2 sin^2(pi d / p)) = sum_k (2 - [k = 0]) e^-1 I_k(1) cos(2 pi k d / p): deviations of the harmonics 0..7.
_BESSEL = (1.2660658778, 0.5651591040, 0.1357476698, 0.0221684249, 0.0027371202, 0.0002714632, 0.0000224887, 1.599e-6)
_DEVIATIONS = tuple(math.sqrt((1 if k == 0 else 2) * b / math.e) for k, b in enumerate(_BESSEL))


@functools.lru_cache(maxsize=32)
def _harmonics(features: int, device: torch.device) -> Tensor:
    """Kept on the device: a copy from the host in every batch would make the host wait."""
    return torch.tensor(_DEVIATIONS + (0.0,) * (features - len(_DEVIATIONS)), device=device)


def draw_spectral(
    mix: KernelMix,
    length: int,
    generator: torch.Generator | None = None,
    features: int = 24,
    start: Tensor | None = None,
) -> Tensor:
    """Draw one series (n, length) per composition from random Fourier sums of `features` terms (8 at least).

    `start` (n, 1) is the time of the first step in units, which only linear kernels notice; 0 where not given.
    """
    rows, slots = mix.kind.shape
    device = mix.kind.device
    kind, value = mix.kind[..., None], mix.value[..., None]
    features = max(features, len(_DEVIATIONS))
    normal = torch.randn(rows, slots, 3, features, device=device, generator=generator)
    # Spectra in radians per unit of time: a normal for rbf; a normal with gamma distributed precision for rational.
    shape = torch.where(kind == _RATIONAL, value, 1.0).expand(-1, -1, features).contiguous()
    gamma = torch._standard_gamma(shape, generator=generator)
    spread = torch.where(kind == _RATIONAL, (gamma / value.clamp_min(1e-6)).sqrt(), 1 / value.clamp_min(1e-6))
    order = torch.arange(features, device=device)
    harmonics = _harmonics(features, device)
    periodic = kind == _PERIODIC
    speed = torch.where(periodic, 2 * math.pi * order / value.clamp_min(1e-6), normal[:, :, 2] * spread / UNIT)
    size = torch.where(periodic, harmonics, 1 / math.sqrt(features))
    size = size * ((kind == _RBF) | (kind == _RATIONAL) | periodic)
    # a cos + b sin with normal a, b is one cosine with amplitude |(a, b)|; half the transcendental functions.
    phase = torch.atan2(normal[:, :, 1], normal[:, :, 0])
    size = size * normal[:, :, :2].square().sum(2).sqrt()
    steps = torch.arange(length, device=device, dtype=torch.float32)
    start = steps.new_zeros(1, 1) if start is None else start
    level = torch.randn(rows, slots, 2, device=device, generator=generator)
    total = torch.zeros(0, device=device)
    for slot in range(slots):
        waves = torch.cos(speed[:, slot, :, None] * steps + phase[:, slot, :, None])
        process = (size[:, slot, :, None] * waves).sum(1)  # no matmul: under autocast it would round to bfloat16
        own, what = value[:, slot], kind[:, slot]
        straight = level[:, slot, :1] * own + level[:, slot, 1:] * (start + steps / UNIT)
        process = torch.where(what == _LINEAR, straight, process)
        process = torch.where(what == _CONSTANT, level[:, slot, :1] * own.sqrt(), process)
        white = torch.randn(rows, length, device=device, generator=generator) * own.sqrt()
        process = torch.where(what == _WHITE, white, process)
        if slot == 0:
            total = process
            continue
        folded = torch.where(mix.times[:, slot, None], total * process, total + process)
        total = torch.where((slot < mix.used)[:, None], folded, total)
    return total


def _to_windows(values: Tensor, period: Tensor, context: int, generator: torch.Generator | None) -> Windows:
    # Compositions differ by ten orders of magnitude; forecasters rescale anyway, and float32 should not overflow first.
    values = values / values.square().mean(1, keepdim=True).sqrt().clamp_min(1e-12)
    # A season longer than the context cannot be seen in it, so naming it would only mislead.
    windows = split_windows(values.float(), context, torch.where(period > context, 1, period))
    draw = torch.rand(len(values), 2, device=values.device, generator=generator)
    return windows._replace(context=cut_contexts(windows.context, CUT_SHARE, SHORTEST, draw))


class SpectralSynth:
    """Draw KernelSynth windows afresh for every batch by random Fourier sums (see `draw_spectral`)."""

    def __init__(self, context: int, horizon: int, *, device: torch.device | str = "cpu") -> None:
        self.context, self.horizon = context, horizon
        self._kinds = torch.tensor([_KINDS.index(k.kind) for k in WIDE_BANK], device=device)
        self._values = torch.tensor([float(k.value) for k in WIDE_BANK], device=device)
        self.device = self._values.device

    def compositions(self, rows: int, generator: torch.Generator | None = None) -> KernelMix:
        """Draw so many compositions of the kernels."""
        draw = torch.rand(rows, 2 * MOST + 1, device=self.device, generator=generator)
        which = (draw[:, :MOST] * len(self._kinds)).long().clamp_max(len(self._kinds) - 1)
        used = 1 + (draw[:, -1] * MOST).long().clamp_max(MOST - 1)
        return KernelMix(self._kinds[which], self._values[which], used, draw[:, MOST : 2 * MOST] < 0.5)

    def sample(self, batch: int, generator: torch.Generator | None = None) -> Windows:
        """Draw a batch of windows."""
        parts = []
        for start in range(0, batch, CHUNK):
            rows, length = min(CHUNK, batch - start), self.context + self.horizon
            mix = self.compositions(rows, generator)
            begin = torch.rand(rows, 1, device=self.device, generator=generator) * max(1 - length / UNIT, 0.0)
            values = draw_spectral(mix, length, generator, start=begin)
            parts.append(_to_windows(values, mix.period(), self.context, generator))
        return parts[0] if len(parts) == 1 else Windows(*(torch.cat(p) for p in zip(*parts, strict=True)))
