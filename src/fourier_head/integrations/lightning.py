"""A Lightning module for any network that ends in a head: loss, metrics of its distributions, quantiles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from fourier_head.errors import needing
from fourier_head.heads import Head
from fourier_head.integrations.torchmetrics import CRPS, CalibrationError, NegativeLogLikelihood, Smoothness
from fourier_head.reductions import check_target
from fourier_head.training.settings import rate

with needing("lightning"):
    from lightning.pytorch import LightningModule
    from torchmetrics import MeanMetric, MetricCollection

Objective = Literal["bins", "nll", "crps"]
OBJECTIVES = ("bins", "nll", "crps")


class DensityModule(LightningModule):
    """Train a network that ends in a head, and watch its predictive distributions.

    A batch is a pair of inputs and target, or a mapping with the target under ``target_key`` and the arguments of the
    body under the other keys. Targets have the shape of the features without their last dimension; missing ones are NaN
    or, for bins, -100.

    Args:
        body: maps inputs to features (..., head.in_features).
        head: any of ours.
        objective: what is minimised: "nll" or "crps" of values, or "bins", the cross-entropy of bin ids.
        lr, weight_decay: of AdamW.
        warmup, schedule: share of the steps in which the rate rises, and how it falls to zero afterwards: "cosine",
            "linear", or None for a rate that stays.
        levels: of the quantiles that ``Trainer.predict`` returns beside the means; None returns the distributions.
        target_key: where the target of a batch that is a mapping is.

    Logged are ``train_loss`` and, for values, ``val_nll``, ``val_crps`` and ``val_calibration``, for bins,
    ``val_loss``, ``val_accuracy`` and ``val_smoothness``; the same with ``test_``. All are means over values or tokens,
    not over batches, and over all processes. The likelihood of a value outside the domain is that of its nearest end,
    as in training.

    Example:
        >>> import torch
        >>> from lightning.pytorch import Trainer
        >>> from torch.utils.data import DataLoader, TensorDataset
        >>> from fourier_head import FourierHead, Line
        >>> x = torch.randn(256, 3)
        >>> data = DataLoader(TensorDataset(x, x[:, 0] + 0.1 * torch.randn(256)), batch_size=64)
        >>> body = nn.Sequential(nn.Linear(3, 32), nn.SiLU())
        >>> module = DensityModule(body, FourierHead(32, num_frequencies=8, domain=Line(0.0, 1.0)), objective="crps")
        >>> quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
        >>> trainer = Trainer(max_epochs=2, accelerator="cpu", enable_checkpointing=False, **quiet)
        >>> trainer.fit(module, data)
        >>> sorted(trainer.validate(module, data, verbose=False)[0])
        ['val_calibration', 'val_crps', 'val_nll']
        >>> trainer.predict(module, data)[0]["quantiles"].shape
        torch.Size([3, 64])
    """

    def __init__(
        self,
        body: nn.Module,
        head: Head,
        objective: Objective = "nll",
        *,
        lr: float = 1e-3,
        weight_decay: float = 0.01,
        warmup: float = 0.05,
        schedule: Literal["cosine", "linear"] | None = "cosine",
        levels: Sequence[float] | None = (0.05, 0.5, 0.95),
        target_key: str = "target",
    ):
        super().__init__()
        if objective not in OBJECTIVES:
            raise ValueError(f"objective must be one of {', '.join(OBJECTIVES)}, got {objective!r}")
        if schedule not in ("cosine", "linear", None):
            raise ValueError(f"schedule must be 'cosine', 'linear' or None, got {schedule!r}")
        if not callable(getattr(head, "density", None)):
            raise TypeError(f"head must be one of ours, such as FourierHead, got {type(head).__name__}")
        if levels is not None and not all(0 <= level <= 1 for level in levels):
            raise ValueError(f"levels must lie in [0, 1], got {list(levels)}")
        self.save_hyperparameters(ignore=["body", "head"])
        self.body, self.head = body, head
        self.objective, self.target_key = objective, target_key
        self.lr, self.weight_decay, self.warmup, self.schedule = lr, weight_decay, warmup, schedule
        self.levels = None if levels is None else tuple(levels)
        for stage in ("val", "test"):
            setattr(self, f"{stage}_metrics", self._metrics(stage))

    # --- what goes through

    def forward(self, *inputs: Any, **named: Any) -> Any:
        """Return the predictive distribution of inputs."""
        return self.head.density(self.body(*inputs, **named))

    def features(self, batch: Any) -> tuple[Tensor, Tensor | None]:
        """Return the features of a batch and its target, if it has one; override it for batches of another make."""
        if isinstance(batch, Mapping):
            inputs = {key: value for key, value in batch.items() if key != self.target_key}
            return self.body(**inputs), batch.get(self.target_key)
        if isinstance(batch, (tuple, list)):
            if len(batch) > 2:
                raise ValueError(f"a batch must be inputs and target, or a mapping; got {len(batch)} things")
            return self.body(batch[0]), batch[1] if len(batch) == 2 else None
        return self.body(batch), None

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        """Return the loss of a batch."""
        x, target = self._pair(batch)
        loss: Tensor = getattr(self.head, "loss" if self.objective == "bins" else self.objective)(x, target)
        self.log("train_loss", loss.detach(), prog_bar=True, batch_size=len(x))
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        """Take a batch into the metrics."""
        self._watch(batch, "val")

    def test_step(self, batch: Any, batch_idx: int) -> None:
        """Take a batch into the metrics."""
        self._watch(batch, "test")

    def predict_step(self, batch: Any, batch_idx: int) -> Any:
        """Return means and quantiles, levels first, or the distributions themselves; a target does not matter."""
        density = self.head.density(self.features(batch)[0])
        if self.levels is None:
            return density
        quantile: Any = density.quantile  # type: ignore[attr-defined]
        return {"mean": density.mean, "quantiles": quantile(self.levels)}

    # --- the rest

    def configure_optimizers(self) -> Any:
        """Return AdamW and the schedule of its rate, step by step."""
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.lr, weight_decay=self.weight_decay)
        if self.schedule is None:
            return optimizer
        total, schedule = max(1, int(self.trainer.estimated_stepping_batches)), self.schedule
        scheduler = torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda step: rate((step + 1) / (total + 1), self.warmup, schedule)
        )
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    def _metrics(self, stage: str) -> MetricCollection:
        chosen: dict[str, Any] = {"nll": NegativeLogLikelihood(), "crps": CRPS(), "calibration": CalibrationError()}
        if self.objective == "bins":
            chosen = {"loss": MeanMetric(), "accuracy": MeanMetric(), "smoothness": Smoothness()}
        return MetricCollection(chosen, prefix=f"{stage}_", compute_groups=False)

    def _pair(self, batch: Any) -> tuple[Tensor, Tensor]:
        x, target = self.features(batch)
        if target is None:
            raise ValueError(
                f"a batch to train or score on must hold a target: a pair, or a mapping with {self.target_key!r}"
            )
        if self.objective == "bins" and target.is_floating_point():
            raise ValueError("objective='bins' needs bin ids, whole numbers; for values take 'nll' or 'crps'")
        return x, target if self.objective == "bins" else target.float()

    def _watch(self, batch: Any, stage: str) -> None:
        x, target = self._pair(batch)
        found: MetricCollection = getattr(self, f"{stage}_metrics")
        if self.objective == "bins":
            target = check_target(target, self.head.out_features, -100)
            kept = target != -100
            if bool(kept.any()):
                ids, log_probs = target[kept], self.head(x)[kept]
                found["loss"].update(-log_probs.gather(-1, ids.unsqueeze(-1)))
                found["accuracy"].update((log_probs.argmax(-1) == ids).float())
                atoms = self.head.out_features - (self.head.num_bins or 0)
                found["smoothness"].update(log_probs[..., atoms:])
        else:
            density = self.head.density(x)
            for name, one in found.items(keep_base=True):
                # Likelihoods are those that training sees: one value outside the domain would make the mean infinite.
                one.update(density, self.head.domain.nearest(target) if name == "nll" else target)
        self.log_dict(found, prog_bar=stage == "val", batch_size=len(x))
