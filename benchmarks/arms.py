"""The implementations a benchmark compares: each makes a step (forward, or forward and backward) from one problem."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fourier_head import kernels
from fourier_head.fourier import series

FLOOR = 1e-3
PENALTY = 1e-6


@dataclass
class Problem:
    """Inputs and weights of one shape: x (tokens, n), Fourier weights (2 (N + 1), n), linear weights (m, n)."""

    tokens: int
    width: int
    num_bins: int
    frequencies: int
    dtype: torch.dtype = torch.bfloat16
    bias: bool = False
    linear: bool = True
    device: str = "cuda"

    def __post_init__(self) -> None:
        generator = torch.Generator(self.device).manual_seed(0)

        def draw(*shape: int) -> Tensor:
            return torch.randn(shape, device=self.device, generator=generator)

        def weight(outputs: int) -> Tensor:
            return (draw(outputs, self.width) / math.sqrt(self.width)).to(self.dtype).requires_grad_()

        def vector(outputs: int) -> Tensor | None:
            return (0.1 * draw(outputs)).to(self.dtype).requires_grad_() if self.bias else None

        outputs = 2 * (self.frequencies + 1)
        self.x = draw(self.tokens, self.width).to(self.dtype).requires_grad_()
        self.target = torch.randint(0, self.num_bins, (self.tokens,), device=self.device, generator=generator)
        self.value = (2 * torch.rand(self.tokens, device=self.device, generator=generator) - 1).float()
        self.weight = weight(outputs)
        self.vector = vector(outputs)
        self.upstream = draw(self.tokens, outputs).to(self.dtype)
        if self.linear:
            self.linear_weight = weight(self.num_bins)
            self.linear_vector = vector(self.num_bins)

    @property
    def about(self) -> dict[str, object]:
        """Return its shape by the names that tables have for it."""
        return {"tokens": self.tokens, "n": self.width, "m": self.num_bins, "N": self.frequencies}

    @property
    def leaves(self) -> list[Tensor]:
        """Return everything a step computes gradients for."""
        named = ("x", "weight", "vector", "linear_weight", "linear_vector")
        return [t for t in (getattr(self, name, None) for name in named) if t is not None]


Loss = Callable[[Problem], Tensor]
Step = Callable[[], object]


def linear_ce(p: Problem) -> Tensor:
    """Linear layer and cross-entropy, as torch runs them."""
    return F.cross_entropy(F.linear(p.x, p.linear_weight, p.linear_vector), p.target)


def linear_ce_float(p: Problem) -> Tensor:
    """The same with logits widened to float32, which a compiler can fuse."""
    return F.cross_entropy(F.linear(p.x, p.linear_weight, p.linear_vector).float(), p.target)


def torch_linear_ce(p: Problem) -> Tensor:
    """torch's own fused function, where it has one."""
    options = torch.nn.LinearCrossEntropyOptions()
    return F.linear_cross_entropy(p.x, p.linear_weight, p.target, linear_bias=p.linear_vector, options=options)


def liger(p: Problem) -> Tensor:
    """Liger's fused linear cross-entropy."""
    from liger_kernel.ops.fused_linear_cross_entropy import LigerFusedLinearCrossEntropyFunction

    result = LigerFusedLinearCrossEntropyFunction.apply(p.x, p.linear_weight, p.target, p.linear_vector)
    return result[0] if isinstance(result, tuple) else result


def cut(p: Problem) -> Tensor:
    """Cut cross-entropy; this version takes no bias."""
    from cut_cross_entropy import linear_cross_entropy

    return linear_cross_entropy(p.x, p.linear_weight, p.target)


def plain(p: Problem) -> Tensor:
    """The O(N) formula in plain torch."""
    return plain_of(p.x, p.weight, p.vector, p.target, p)


def plain_of(x: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor, p: Problem) -> Tensor:
    """The same of any features, weights and targets."""
    a = F.linear(x, weight, bias).unflatten(-1, (2, -1))
    return -series.log_bin_mass(a, target, p.num_bins, FLOOR).mean()


def kernel_nll(
    x: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor, *, walls: bool = False,
    class_weight: Tensor | None = None, offsets: Tensor | None = None, **options: Any,
) -> Tensor:  # fmt: skip
    """The fused loss of bin ids where there are ``num_bins``, else of values in [-1, 1]; one for each unless reduced.

    Further options are those of ``kernels.Score``.
    """
    length = len(weight) if walls else len(weight) // 2
    more: dict[str, Any] = {"target": "bins"} if "num_bins" in options else {"target": "interval", "origin": -1.0}
    score = kernels.Score("nll", length=length, walls=walls, **{"reduction": "none", **more, **options})
    return kernels.row_scores(x, weight, bias, target, score, class_weight, offsets=offsets)


def fused(p: Problem, **options: Any) -> Tensor:
    """The fused kernels."""
    more = {"num_bins": p.num_bins, "floor": FLOOR, "reduction": "mean"} | options
    return kernel_nll(p.x, p.weight, p.vector, p.target, **more)


fused_rough, fused_rough_2 = (functools.partial(fused, penalty=PENALTY, points=points) for points in (1, 2))
"""With the roughness at one or two random points per token."""


def fused_nll(p: Problem) -> Tensor:
    """The fused likelihood of real values."""
    return kernel_nll(p.x, p.weight, p.vector, p.value, floor=FLOOR, reduction="mean")


def paper(p: Problem) -> Tensor:
    """The paper's algorithm, word for word: autocorrelation by a grouped convolution, then every bin of every token.

    Complex numbers in float32; its memory is tokens x bins x frequencies.
    """
    length = p.frequencies + 1
    y = F.linear(p.x, p.weight, p.vector).float()
    a = torch.complex(y[:, :length], y[:, length:])
    tokens = len(a)
    padded = F.pad(a, (0, length - 1)).unsqueeze(0)
    c = F.conv1d(padded.conj().resolve_conj(), a.unsqueeze(1), groups=tokens)[0]
    q = c[:, 1:] / c[:, :1].real
    k = torch.arange(1, length, device=y.device)
    centres = series.bin_centers(p.num_bins, device=y.device)
    basis = torch.exp(1j * math.pi * k * centres[:, None])
    density = 0.5 + (q[:, None, :] * basis[None]).sum(-1).real
    probability = (2 / p.num_bins) * density.clamp_min(0) * (1 - FLOOR) + FLOOR / p.num_bins
    return F.nll_loss(probability.log(), p.target)


def passes(
    forward: Callable[[], Tensor], leaves: Iterable[Tensor | None], upstream: Tensor | None = None
) -> tuple[Step, Step]:
    """Return the forward pass, and one that goes forward and back and leaves new gradients in place."""

    def both() -> None:
        for leaf in leaves:
            if leaf is not None:
                leaf.grad = None
        forward().backward(upstream)

    return forward, both


def step(loss: Loss, p: Problem, backward: bool = True) -> Step:
    """Return a function that runs one step and leaves gradients in place."""
    return passes(lambda: loss(p), p.leaves)[backward]


def gemms(p: Problem, backward: bool = True) -> Step:
    """Return the projection alone: y = x W^T going forward; dx = dy W and dW = dy^T x (and the bias) going back."""
    return passes(lambda: F.linear(p.x, p.weight, p.vector), p.leaves, p.upstream)[backward]


def aligned_gemms(p: Problem, backward: bool = True) -> Step:
    """Return the same products with outputs padded to a multiple of 16, which libraries run several times faster."""
    outputs = -(-p.weight.shape[0] // 16) * 16
    weight = torch.zeros(outputs, p.width, device="cuda", dtype=p.dtype)
    weight[: p.weight.shape[0]] = p.weight.detach()
    weight.requires_grad_()
    vector = torch.zeros(outputs, device="cuda", dtype=p.dtype, requires_grad=True) if p.bias else None
    upstream = F.pad(p.upstream, (0, outputs - p.weight.shape[0]))
    return passes(lambda: F.linear(p.x, weight, vector), [p.x, weight, vector], upstream)[backward]
