"""The Fourier head."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from fourier_head import losses, reductions
from fourier_head._devices import is_distributed
from fourier_head.densities.fourier import FourierDensity
from fourier_head.domains import Boundary
from fourier_head.domains.adaptive import Adaptive  # noqa: F401  (in the example)
from fourier_head.domains.maps import ValueMap
from fourier_head.errors import whole_number
from fourier_head.heads.head import DomainLike, Head, checked_features
from fourier_head.layout import Layout, Regularizer
from fourier_head.losses import Request

# Multiplications from which on a projection takes padded weights: on an H200 a padded one saves about a microsecond per
# 2^27 of them, and the copy takes 3.5.
PADDED_FROM = 1 << 29
MAP_KEY = "domain_map"
"""Name of an adaptive domain's map in a state dict."""


class FourierHead(Head):
    r"""Learn a continuous density as a Fourier series and return its values on ordered bins.

    .. math:: y_j = \frac{|A(b_j)|^2}{m \|a\|^2}, \qquad A(z) = \sum_{l=0}^{N} (\alpha_l + i \beta_l) e^{-i \pi l z}

    with bin centres :math:`b_j = -1 + (2j + 1)/m` and alpha, beta from one linear layer ``proj``, whose output starts
    with :math:`[\alpha_0 .. \alpha_N, \beta_0 .. \beta_N]`. With ``floor=0`` this is Algorithm 1 of the paper.

    Args:
        in_features: size of the features.
        num_bins: number of ordered bins; may be left out where only the density is wanted.
        num_frequencies: the highest harmonic N. No bin gets more than (N + 1) / num_bins, so where one of a few may be
            certain take N from num_bins - 1 up.
        floor: share of probability spread uniformly, which bounds the loss where A vanishes. The released code adds
            1e-5 to every bin: ``floor=released_floor(num_bins)``.
        bin_mass: "midpoint" takes the density at bin centres (the paper), "exact" its integral over each bin.
        boundary: "periodic" makes the two ends neighbours (the paper), "reflect" does not. Unless given, "reflect" on
            an interval of values or a line, "periodic" on a circle, an adaptive domain and for bins without values.
        packets: number K of wave packets mixed with the free coefficients; 0 is the paper's head.
        num_atoms: special classes beside the continuum (padding, end of sequence, ...); they have the first ids.
        gamma: strength of the regulariser that ``loss``, ``nll`` and ``crps`` add in training mode.
        regularizer: "roughness", the integral of p'^2, or "paper", the unnormalised form printed there.
        init_scale: He-initialised weights and biases are divided by this.
        domain: the values that the bins cover: ``Interval``, ``Circle``, ``Line``, ``Bins`` of any kind; or
            ``Adaptive`` for values anywhere, whose place and width the projection emits, too.
        num_outputs: densities per row of features, (..., num_outputs) of them; one, without a dimension, unless given.
        impl: "auto" takes what is fastest, "fused" the kernels, "closed_form" the written-out gradient of small heads
            on a CPU, "compiled" torch.compile, "reference" plain torch; asked for by name, an error says why not.
        bias, device, dtype: as for ``nn.Linear``.

    References:
        Gillman et al., Fourier Head: Helping Large Language Models Learn Complex Probability Distributions, ICLR 2025.

    Example:
        >>> head = FourierHead(in_features=16, num_bins=100, num_frequencies=8)
        >>> x, target = torch.randn(4, 16), torch.tensor([3, 50, 51, 99])
        >>> head(x).exp().sum(-1)
        tensor([1.0000, 1.0000, 1.0000, 1.0000], grad_fn=<SumBackward1>)
        >>> torch.allclose(head.loss(x, target), torch.nn.functional.cross_entropy(head(x), target))
        True
        >>> head.density(x).quantile([0.1, 0.5, 0.9]).shape
        torch.Size([3, 4])

        Values anywhere on the line, no range to know:

        >>> head = FourierHead(16, num_frequencies=15, domain=Adaptive(tails=0.01))
        >>> head.crps(x, torch.tensor([-3.0, 0.0, 5.0, 1000.0])).shape
        torch.Size([])
    """

    def __init__(
        self,
        in_features: int,
        num_bins: int | None = None,
        num_frequencies: int = 16,
        *,
        floor: float = 1e-4,
        bin_mass: Literal["midpoint", "exact"] = "midpoint",
        boundary: Boundary | None = None,
        packets: int = 0,
        num_atoms: int = 0,
        gamma: float = 0.0,
        regularizer: Regularizer = "roughness",
        init_scale: float = 1000.0,
        domain: DomainLike | None = None,
        num_outputs: int | None = None,
        impl: losses.Name = "auto",
        bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ):
        super().__init__(in_features, num_bins, domain)
        losses.check_name(impl)
        if regularizer not in ("roughness", "paper"):
            raise ValueError(f"regularizer must be 'roughness' or 'paper', got {regularizer!r}")
        if not gamma >= 0:
            raise ValueError(f"gamma must not be negative, got {gamma}")
        if not init_scale > 0:
            raise ValueError(f"init_scale must be positive, got {init_scale}")
        if boundary is None:
            # Bins that stand for nothing but themselves are the paper's case, its Algorithm 1.
            bare = domain is None and self.num_bins is not None
            boundary = "periodic" if bare else self.domain.boundary
        self.domain.check_boundary(boundary)
        place = self.domain.place_outputs
        self.layout = Layout(self.num_bins, num_frequencies, floor, bin_mass, boundary, packets, num_atoms, place)
        self.num_outputs = None if num_outputs is None else whole_number("num_outputs", num_outputs, 1)
        self.num_frequencies = num_frequencies
        self.gamma = gamma
        self.regularizer = regularizer
        self.init_scale = init_scale
        self.impl = impl
        self.blur = 0.0
        """Standard deviation, in z, of a low-pass blur of what ``forward`` and ``density`` predict; never of losses."""
        outputs = self.layout.out_features * (num_outputs or 1)
        self.proj = nn.Linear(in_features, outputs, bias=bias, device=device, dtype=dtype)
        self.reset_parameters()

    @property
    def out_features(self) -> int:
        return self.layout.num_classes

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw He-initialised weights and biases and divide them, as the paper does; spread packets over the range."""
        self.proj.reset_parameters()
        self.proj.weight.div_(self.init_scale)
        if self.proj.bias is None:
            return
        self.proj.bias.div_(self.init_scale)
        bias = self.proj.bias.view(-1, self.layout.out_features)
        bias += self.layout.start(self.domain.start()).to(bias)

    def coefficients(self, x: Tensor) -> Tensor:
        """Return the coefficients of the density's squares, (..., 1 + K, 2, N+1), or (..., 1 + K, 1, 2N+2)."""
        return self.layout.coefficients(self._outputs(x))

    def forward(self, x: Tensor, *, map: ValueMap | None = None, anchor: Tensor | None = None) -> Tensor:
        """Return normalised log-probabilities, (..., num_atoms + num_bins)."""
        options = {"map": map, "anchor": anchor, "blur": self.blur, "impl": self.impl}
        return losses.log_probs(self._outputs(x), self.layout, self.domain, **options)  # type: ignore[arg-type]

    def _batch_shape(self, x: Tensor) -> torch.Size:
        return x.shape[:-1] if self.num_outputs is None else torch.Size((*x.shape[:-1], self.num_outputs))

    def _split_outputs(self, outputs: Tensor) -> Tensor:
        return outputs if self.num_outputs is None else outputs.unflatten(-1, (self.num_outputs, -1))

    def _outputs(self, x: Tensor) -> Tensor:
        """Return the outputs of the projection; without gradients on a GPU from weights padded to whole vectors.

        2 (N + 1) is seldom a multiple of 8, and libraries multiply 16-bit matrices that are not aligned up to three
        times slower. The copy of the weights pays for itself in large products only.
        """
        checked_features(x, self.proj)
        layer, outputs = self.proj, self.layout.out_features * (self.num_outputs or 1)
        extra = -outputs % 8
        if not extra or not x.is_cuda or torch.is_grad_enabled() or x.numel() * outputs < PADDED_FROM:
            return self._split_outputs(layer(x))
        half = x.dtype in (torch.bfloat16, torch.float16) or torch.is_autocast_enabled("cuda")
        plain = type(layer) is nn.Linear and not layer._forward_hooks and not layer._forward_pre_hooks
        if not half or not plain or is_distributed(layer.weight):
            return self._split_outputs(layer(x))
        bias = None if layer.bias is None else functional.pad(layer.bias, (0, extra))
        padded: Tensor = functional.linear(x, functional.pad(layer.weight, (0, 0, 0, extra)), bias)
        return self._split_outputs(padded[..., :outputs])

    def _projection(self, x: Tensor) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Return features, weight and bias for a loss; of a layer that is more than those, its outputs alone."""
        # Asked for in every step: dictionaries are faster than the attributes of a module.
        layer: Any = self._modules["proj"]
        hooks = layer._forward_hooks or layer._forward_pre_hooks or layer._backward_hooks or layer._backward_pre_hooks
        # An adapter has a forward of its own; so has a layer whose weights are offloaded, as an attribute.
        more = hooks or type(layer).forward is not nn.Linear.forward or "forward" in layer.__dict__
        if more or self.num_outputs is not None:
            return self._split_outputs(layer(checked_features(x, layer))), None, None
        weight = layer._parameters.get("weight")
        if weight is None:
            weight = layer.weight
        if not isinstance(x, Tensor) or x.dtype != weight.dtype or x.shape[-1:] != weight.shape[1:]:
            checked_features(x, layer)
        return x, weight, layer._parameters.get("bias")

    def density(self, x: Tensor, *, map: ValueMap | None = None, anchor: Tensor | None = None) -> FourierDensity:
        """Return the continuous density over the values of ``domain``; atoms are not part of it.

        Args:
            x: features (..., in_features).
            map: of the values of each row, in place of that of an adaptive domain.
            anchor: a guess of the value of each row, for ``Adaptive(anchored=True)``.
        """
        return self.density_of(self._outputs(x), map=map, anchor=anchor)

    def density_of(
        self, outputs: Tensor, *, map: ValueMap | None = None, anchor: Tensor | None = None
    ) -> FourierDensity:
        """Return the density of outputs of the projection."""
        density = self.layout.density(outputs, self.domain, map=map, anchor=anchor, blur=self.blur)
        density.impl = self.impl
        return density

    def atom_log_probs(self, x: Tensor) -> Tensor:
        """Return log-probabilities (..., 1 + num_atoms): of the continuum, then of each atom."""
        return self.layout.atom_logs(self._split_outputs(self._project(x)))

    def _request(
        self, projected: tuple[Tensor, Tensor | None, Tensor | None], target: Tensor, **options: Any
    ) -> Request:
        gamma = self.gamma if self.training else 0.0
        return Request(
            *projected, target, self.layout, self.domain, gamma=gamma, regularizer=self.regularizer, impl=self.impl,
            **options,
        )  # fmt: skip

    def loss(
        self,
        x: Tensor,
        target: Tensor,
        *,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        label_smoothing: float = 0.0,
        reduction: reductions.Reduction = "mean",
        map: ValueMap | None = None,
        anchor: Tensor | None = None,
    ) -> Tensor:
        """Return the cross-entropy of bin ids in O(N) per token, plus the regulariser in training mode."""
        request = self._request(
            self._projection(x), target, map=map, anchor=anchor, class_weight=weight, ignore_index=ignore_index,
            label_smoothing=label_smoothing, reduction=reduction,
        )  # fmt: skip
        return losses.compute(request)

    def nll(
        self,
        x: Tensor,
        value: Tensor | float,
        *,
        reduction: reductions.Reduction = "mean",
        map: ValueMap | None = None,
        anchor: Tensor | None = None,
    ) -> Tensor:
        """Return the negative log-likelihood of continuous values, in O(N) per value; NaN values do not count.

        Values outside a fixed domain are taken at its nearest end. The regulariser is added in training mode.
        """
        return self._scored("nll", x, value, reduction, map, anchor)

    def crps(
        self,
        x: Tensor,
        value: Tensor | float,
        *,
        reduction: reductions.Reduction = "mean",
        map: ValueMap | None = None,
        anchor: Tensor | None = None,
        mapped: bool = False,
    ) -> Tensor:
        """Return the continuous ranked probability score of values; NaN values do not count.

        With ``mapped`` it is taken in the coordinate of an adaptive domain's map, where it has a closed form for every
        map: the thing to train on. It is strictly proper just the same.
        """
        return self._scored("crps", x, value, reduction, map, anchor, mapped)

    def _scored(
        self, kind: str, x: Tensor, value: Tensor | float, reduction: reductions.Reduction, map: ValueMap | None,
        anchor: Tensor | None, mapped: bool = False,
    ) -> Tensor:  # fmt: skip
        projected = self._projection(x)
        options = {"kind": kind, "mapped": mapped, "map": map, "anchor": anchor}
        if isinstance(value, Tensor) and self.num_outputs is None:
            fused = losses.fused_values(self._request(projected, value, reduction=reduction, **options))
            if fused is not None:
                return fused
        return self._over_values(
            lambda safe: losses.compute(self._request(projected, safe, **options)), x, value, reduction, map
        )

    def values_loss_of(self, outputs: Tensor, value: Tensor, **options: Any) -> Tensor:
        """Return the ``nll``, the ``crps`` or, with ``kind="both"``, their weighted sum of outputs of the projection.

        One score per value, all of them inside the domain. Options as in ``losses.Request``: kind, crps_weight, map,
        anchor, mapped.

        >>> head = FourierHead(16, num_frequencies=8, domain=Adaptive())
        >>> x, value = torch.randn(4, 16), torch.randn(4)
        >>> loss = head.values_loss_of(head.proj(x), value, kind="both", crps_weight=10.0)
        >>> torch.allclose(loss.mean(), head.nll(x, value) + 10 * head.crps(x, value), rtol=1e-4)
        True
        """
        return losses.compute(self._request((outputs, None, None), value, **options))

    def penalty(self, x: Tensor) -> Tensor:
        """Return the regulariser per row of ``x``, without its strength gamma."""
        return self.layout.penalty(self.coefficients(x), self.regularizer)

    def extra_repr(self) -> str:
        layout = self.layout
        return (
            f"in_features={self.in_features}, num_bins={self.num_bins}, num_frequencies={self.num_frequencies}, "
            f"floor={layout.floor:g}, bin_mass={layout.bin_mass}, boundary={layout.boundary}, "
            f"packets={layout.packets}, num_atoms={layout.num_atoms}, gamma={self.gamma:g}, domain={self.domain!r}"
        )

    # The map of an adaptive domain is fitted to data, like a weight, but must not be rounded with the weights.

    @property
    def domain_map(self) -> Tensor | None:
        """The map of an adaptive domain as state dicts hold it; distributed checkpoints look for it by its name."""
        return self.domain.state()

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        if self.domain_map is not None:
            destination[prefix + MAP_KEY] = self.domain_map

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> None:
        state = state_dict.pop(prefix + MAP_KEY, None)
        if state is not None:
            self.domain = self.domain.with_state(state)
        super()._load_from_state_dict(state_dict, prefix, *args)


def released_floor(num_bins: int) -> float:
    """Return the floor that equals the 1e-5 which the paper's released code adds to every bin.

    >>> round(released_floor(4096), 4)
    0.0393
    """
    return 1e-5 * num_bins / (1 + 1e-5 * num_bins)
