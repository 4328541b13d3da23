"""Forecast series by sampling paths token by token, many series and all their paths at once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fourier_head.forecasting.patch.predict import batches
from fourier_head.forecasting.scores import Forecast, central_levels
from fourier_head.metrics import smoothness
from studies.chronos.t5.build import load_forecaster
from studies.chronos.t5.model import T5Forecaster
from studies.chronos.tokenizer import NUM_SPECIAL, PAD, ChronosTokenizer

CELLS = {"cpu": 1 << 25, "cuda": 1 << 28}
"""Numbers that one batch may hold, of next-token probabilities or of keys and values: a gigabyte on a GPU."""


class T5Predictor:
    """Call a T5 forecaster as evaluation calls forecasters: contexts, horizon and frequency in, quantiles out.

    Args:
        model: the forecaster.
        tokenizer: of its ids.
        paths: sample paths of each series.
        top_k: ids to sample among, the likeliest; Chronos has 50, we take all.
        spread: whether the paths of a series share out what may happen at every step, see ``spread_levels``; each is
            as random as without, all together are closer to the distribution they are drawn from.
        tails: probability left out at either end of every distribution that is drawn from. What a model gives to values
            far off is little and hardly learned, but one such value leads the rest of its path astray.
        probes: series of each call, spread evenly, of whose first path every next-token distribution is measured by
            ``metrics.smoothness``; ``smoothness`` collects the values.

    Example:
        >>> from fourier_head import FourierHead
        >>> from studies.chronos.t5.config import T5Config
        >>> tokenizer = ChronosTokenizer(num_ids=66)
        >>> config = T5Config.named("test", vocabulary=66, context=16, horizon=4)
        >>> model = T5Forecaster(config, FourierHead(config.width, None, 8, num_atoms=2, domain=tokenizer.bins))
        >>> predictor = T5Predictor(model, tokenizer, paths=5)
        >>> predictor([np.arange(9.0), np.array([1.0, np.nan])], 6, "D").quantiles.shape
        (2, 6, 13)
    """

    def __init__(
        self,
        model: T5Forecaster,
        tokenizer: ChronosTokenizer,
        *,
        paths: int = 20,
        top_k: int | None = None,
        spread: bool = False,
        tails: float = 0.0,
        probes: int = 0,
    ):
        if not 0 <= tails < 0.5:
            raise ValueError(f"tails must be at least 0 and less than 0.5, got {tails}")
        self.model, self.tokenizer, self.paths, self.top_k = model, tokenizer, paths, top_k
        self.spread, self.tails, self.probes = spread, tails, probes
        self._measured: list[Tensor] = []

    def __call__(self, contexts: Sequence[np.ndarray], horizon: int, freq: str | None = None) -> Forecast:
        """Return quantiles (series, horizon, levels) of sample paths."""
        return Forecast.from_samples(self.samples(contexts, horizon), central_levels())

    @property
    def smoothness(self) -> np.ndarray:
        """The smoothness of every next-token distribution measured so far; special ids are left out."""
        return torch.cat(self._measured).cpu().numpy() if self._measured else np.empty(0)

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return self.model.embedding.weight.device

    @torch.inference_mode()
    def samples(self, contexts: Sequence[np.ndarray], horizon: int) -> np.ndarray:
        """Return sample paths (series, paths, horizon) of values, the same ones in every call.

        Beyond the horizon of the model its median forecast becomes part of the context, as in Chronos.
        """
        self.model.eval()
        generator = torch.Generator(self.device).manual_seed(0)
        past = [np.asarray(context, dtype=np.float64) for context in contexts]
        parts: list[np.ndarray] = []
        done = 0
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda"):
            while done < horizon:
                if parts:
                    past = [np.append(old, new) for old, new in zip(past, np.median(parts[-1], axis=1), strict=True)]
                steps = min(self.model.config.horizon, horizon - done)
                parts.append(self._round(past, steps, generator, 0 if parts else self.probes))
                done += steps
        return np.concatenate(parts, axis=-1)

    @torch.inference_mode()
    def next_probabilities(self, context: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the scaled values of all bins and the probability of each to come next."""
        self.model.eval()
        values = torch.as_tensor(np.asarray(context, dtype=np.float64), device=self.device)[None]
        tokens = self.tokenizer.encode_context(values, self.model.config.context - 1)
        states = self.model(tokens.ids, tokens.mask, tokens.ids.new_full((1, 1), PAD))
        probabilities = torch.softmax(self.model.head(states)[0, 0, NUM_SPECIAL:].double(), dim=-1)
        return self.tokenizer.values[NUM_SPECIAL:].numpy(), probabilities.cpu().numpy()

    def _round(self, contexts: Sequence[np.ndarray], steps: int, generator: torch.Generator, probes: int) -> np.ndarray:
        """Return one round of sample paths, at most the horizon of the model."""
        config = self.model.config
        numbers = max(config.vocabulary, 2 * steps * config.layers * config.attention_width)
        cells = CELLS["cuda" if self.device.type == "cuda" else "cpu"]
        rows = max(1, cells // (self.paths * numbers))
        out = np.empty((len(contexts), self.paths, steps), dtype=np.float64)
        probed = np.zeros(len(contexts), dtype=bool)
        probed[np.linspace(0, len(contexts) - 1, min(probes, len(contexts))).astype(int)] = probes > 0
        longest = config.context - 1
        # A series costs one of the rows, however long; widths are multiples of 8, so that there are few shapes.
        for chosen, block in batches(contexts, longest, 8, rows, np.ones_like, np.float64, self.device):
            tokens = self.tokenizer.encode_context(block, longest)
            probe = torch.from_numpy(np.flatnonzero(probed[chosen])).to(self.device)
            ids = self._decode(tokens.ids, tokens.mask, steps, generator, probe)
            out[chosen] = self.tokenizer.decode(ids, tokens.scale).cpu().numpy()
        return out

    def _decode(self, ids: Tensor, mask: Tensor, steps: int, generator: torch.Generator, probe: Tensor) -> Tensor:
        """Return sampled ids (series, paths, steps)."""
        model = self.model
        states, hide = model.encode(ids, mask)
        memory = model.decoder.remember(states, hide, self.paths, steps)
        token = ids.new_full((len(ids), self.paths), PAD)
        out = ids.new_empty((len(ids), self.paths, steps))
        for step in range(steps):
            log_probs = model.head(model.next_state(token, memory, step))
            if len(probe):
                bins = torch.softmax(log_probs[probe, 0, NUM_SPECIAL:].double(), dim=-1)
                self._measured.append(smoothness(bins))
            token = self._draw(log_probs, token, generator)
            out[..., step] = token
        return out

    def _draw(self, log_probs: Tensor, before: Tensor, generator: torch.Generator) -> Tensor:
        """Draw one id from each row; special ids are no values, so they are never drawn."""
        logs = log_probs[..., NUM_SPECIAL:].float()
        if self.top_k is not None and self.top_k < logs.shape[-1]:
            least = logs.topk(self.top_k, dim=-1).values[..., -1:]
            logs = torch.where(logs < least, -torch.inf, logs)
        mass = (logs - logs.amax(-1, keepdim=True)).exp_().cumsum(-1)
        # One uniform number per row finds its place among the sums.
        if self.spread:
            level = spread_levels(before, generator)
        else:
            level = torch.rand(mass.shape[:-1], device=mass.device, generator=generator)
        level = self.tails + (1 - 2 * self.tails) * level
        found = torch.searchsorted(mass, level[..., None] * mass[..., -1:], right=True).squeeze(-1)
        return found.clamp_max(mass.shape[-1] - 1) + NUM_SPECIAL


def spread_levels(before: Tensor, generator: torch.Generator) -> Tensor:
    """Return a level in [0, 1) for every path, shape (series, paths), from the ids drawn before.

    Levels of one path are independent and uniform from step to step, so a path is what it would be by itself. Those
    of all paths of a series lie one in each of as many equal parts, and so that paths with near values get levels far
    apart: a lattice in the plane of rank and level, shifted at random at every step.

    References:
        L'Ecuyer, Lecot and Tuffin, A Randomized Quasi-Monte Carlo Simulation Method for Markov Chains (2008).

    >>> levels = spread_levels(torch.tensor([[7, 5, 9, 5]]), torch.Generator().manual_seed(0))
    >>> (levels * 4).long().sort().values
    tensor([[0, 1, 2, 3]])
    """
    series, paths = before.shape
    rank = before.argsort(dim=-1).argsort(dim=-1)
    golden = next(n for n in range(round(0.618 * paths), 2 * paths) if math.gcd(n, paths) == 1)
    shift = torch.randint(paths, (series, 1), device=before.device, generator=generator)
    within = torch.rand(before.shape, device=before.device, generator=generator)
    return ((rank * golden + shift) % paths + within) / paths


def load_predictor(folder: str | Path, device: torch.device | str = "cpu", **options: Any) -> T5Predictor:
    """Return the forecaster that ``save_forecaster`` wrote to a folder, ready to be called."""
    return T5Predictor(*load_forecaster(Path(folder), device), **options)
