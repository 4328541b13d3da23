"""A corpus: sources of windows and how much of each goes into a batch; and an endless, resumable stream of batches."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from fourier_head.errors import did_you_mean, whole_number
from fourier_head.forecasting.corpora.aggregate import AggregatedSampler
from fourier_head.forecasting.corpora.augment import DEFAULT, Augmentation
from fourier_head.forecasting.corpora.fine import FineSynth
from fourier_head.forecasting.corpora.kernel_synth import SpectralSynth
from fourier_head.forecasting.corpora.store import SeriesStore
from fourier_head.forecasting.corpora.synthetic import PlainSynth, StructuralSynth
from fourier_head.forecasting.corpora.windows import Source, TSMixup, Windows, WindowSampler


class Part(NamedTuple):
    """A source and its share of a batch, relative to the other parts' shares."""

    source: Source
    share: float


class Corpus:
    """Draw batches from several sources in fixed proportions, rows in random order.

    Row counts are whole, so what a share lacks in one batch it gets in a later one: proportions hold exactly over many
    batches, and no random number has to reach the host to say how many rows a source makes. `steps` change the rows of
    all parts at once.

    >>> from fourier_head.forecasting.corpora.store import SeriesStore
    >>> from fourier_head.forecasting.corpora.synthetic import StructuralSynth
    >>> from fourier_head.forecasting.corpora.windows import WindowSampler
    >>> real = WindowSampler(SeriesStore.from_series([range(50)], period=12), context=16, horizon=4)
    >>> corpus = Corpus({"real": Part(real, 0.75), "synthetic": Part(StructuralSynth(16, 4), 0.25)})
    >>> corpus.sample(32, torch.Generator().manual_seed(0)).context.shape
    torch.Size([32, 16])
    """

    def __init__(self, parts: Mapping[str, Part | tuple[Source, float]], *, steps: Sequence[Augmentation] = ()) -> None:
        self.parts = {name: Part(*part) for name, part in parts.items()}
        if bad := [n for n, p in self.parts.items() if not (p.share >= 0 and math.isfinite(p.share))]:
            raise ValueError(
                f"the share of {bad[0]!r} must be finite and not negative, got {self.parts[bad[0]].share}."
            )
        total = sum(p.share for p in self.parts.values())
        if not total > 0:
            raise ValueError("a corpus needs at least one part with a positive share.")
        self.parts = {n: p._replace(share=p.share / total) for n, p in self.parts.items() if p.share > 0}
        devices = {p.source.device for p in self.parts.values()}
        if len(devices) > 1:
            raise ValueError(f"all parts must draw on one device, got {', '.join(sorted(map(str, devices)))}.")
        self.device = devices.pop()
        self.steps = tuple(steps)
        self._owed = dict.fromkeys(self.parts, 0.0)

    def counts(self, batch: int) -> dict[str, int]:
        """Return the rows each part makes of the next batch, and book what that leaves owed."""
        due = {n: self._owed[n] + p.share * batch for n, p in self.parts.items()}
        rows = {n: max(math.floor(d), 0) for n, d in due.items()}
        # The largest remainders get the rows that flooring lost; a debt never grows beyond a row or two.
        for name in sorted(due, key=lambda n: rows[n] - due[n])[: max(batch - sum(rows.values()), 0)]:
            rows[name] += 1
        while sum(rows.values()) > batch:
            rows[max(rows, key=lambda n: rows[n] - due[n] if rows[n] else -math.inf)] -= 1
        self._owed = {n: due[n] - rows[n] for n in due}
        return rows

    def sample(self, batch: int, generator: torch.Generator | None = None) -> Windows:
        """Draw a batch of windows."""
        whole_number("batch", batch, 1)
        made = [self.parts[n].source.sample(rows, generator) for n, rows in self.counts(batch).items() if rows]
        windows = Windows(*(torch.cat(columns) for columns in zip(*made, strict=True))) if len(made) > 1 else made[0]
        if len(made) > 1:
            windows = windows.rows(torch.randperm(batch, device=self.device, generator=generator))
        for step in self.steps:
            windows = step(windows, generator)
        return windows

    def state_dict(self) -> dict[str, Any]:
        """Return what a continued run needs beside its generator: the rows owed to each part."""
        return {"owed": dict(self._owed)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict`."""
        if set(state["owed"]) != set(self.parts):
            raise ValueError(f"the state is of parts {sorted(state['owed'])}, the corpus has {sorted(self.parts)}.")
        self._owed = dict(state["owed"])


class BatchStream:
    """Yield batches of a corpus for ever, from a seed; several are made at once and handed out one by one.

    Small kernels cost their launch, not their work: making `chunk` batches at once makes data nearly free. The state is
    that of the moment before the current chunk and how many of its batches are used, so a resumed stream goes on with
    the very next batch. `rank` gives every process of a distributed run its own data.
    """

    def __init__(self, corpus: Corpus, batch: int, seed: int = 0, *, chunk: int = 8, rank: int = 0) -> None:
        self.corpus = corpus
        self.batch, self.chunk = whole_number("batch", batch, 1), whole_number("chunk", chunk, 1)
        self.generator = torch.Generator(corpus.device).manual_seed((seed * 1_000_003 + rank * 7919) % 2**63)
        self._used = 0
        self._before: dict[str, Any] = {}
        self._ready: Windows | None = None

    def __iter__(self) -> Iterator[Windows]:
        return self

    def __next__(self) -> Windows:
        if self._ready is None or self._used == self.chunk:
            self._before = self._now()
            self._ready, self._used = self.corpus.sample(self.batch * self.chunk, self.generator), 0
        start = self._used * self.batch
        self._used += 1
        return self._ready.rows(slice(start, start + self.batch))

    def _now(self) -> dict[str, Any]:
        return {"generator": self.generator.get_state(), "corpus": self.corpus.state_dict()}

    def state_dict(self) -> dict[str, Any]:
        """Return what a continued run needs; reads the generator, so not for every step."""
        before = self._before if self._ready is not None else self._now()
        return {**before, "used": self._used, "batch": self.batch, "chunk": self.chunk}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue with the batch after the last one of the stream that gave `state`."""
        if (state["batch"], state["chunk"]) != (self.batch, self.chunk):
            raise ValueError(
                f"the state is of batches of {state['batch']} in chunks of {state['chunk']}, "
                f"the stream has {self.batch} and {self.chunk}."
            )
        self.generator.set_state(state["generator"].cpu())
        self.corpus.load_state_dict(state["corpus"])
        self._ready, self._used = None, 0
        for _ in range(int(state["used"])):
            next(self)


RECIPES: dict[str, dict[str, float]] = {
    "standard": {"real": 0.35, "coarse": 0.15, "mixup": 0.2, "kernels": 0.15, "structural": 0.15},
    "chronos": {"mixup": 0.9, "kernels": 0.1},
    "plain": {"real": 0.375, "mixup": 0.375, "kernels": 0.25},
}
PARTS = (*RECIPES["standard"], "fine", "simple")
"""Shares of real windows, real windows made coarser, TSMixup, KernelSynth and structural series; and, in ``PARTS``, of
series of seconds to hours and of the simplest ones.

`chronos` is the mixture of Ansari et al. (2024), `plain` a simpler mixture.
"""


SYNTHETIC: dict[str, type[Any]] = {
    "kernels": SpectralSynth,
    "structural": StructuralSynth,
    "fine": FineSynth,
    "simple": PlainSynth,
}


def standard_corpus(
    store: SeriesStore | None,
    context: int,
    horizon: int,
    *,
    shares: str | Mapping[str, float] = "standard",
    steps: Sequence[Augmentation] = DEFAULT,
    device: torch.device | str | None = None,
) -> Corpus:
    """Return a corpus of the parts in `shares`, by the name of a recipe or part by part, changed by `steps`.

    Without a store there are artificial parts only.
    """
    if isinstance(shares, str):
        if shares not in RECIPES:
            raise ValueError(f"shares name no recipe {shares!r}: {did_you_mean(shares, RECIPES)}")
        shares = RECIPES[shares]
    if unknown := sorted(set(shares) - set(PARTS)):
        raise ValueError(f"shares name no part {unknown[0]!r}: {did_you_mean(unknown[0], PARTS)}")
    place = torch.device(device) if device is not None else (store.device if store is not None else torch.device("cpu"))
    series = store if store is None else store.to(place)

    def source(name: str) -> Source:
        if name in SYNTHETIC:
            return SYNTHETIC[name](context, horizon, device=place)
        if series is None:
            raise ValueError(f"the part {name!r} needs a store of series.")
        if name == "coarse":
            return AggregatedSampler(series, context, horizon)
        # A mixture is cut to its shortest window, so the windows that are mixed are cut less often themselves.
        sampler = WindowSampler(series, context, horizon, cut_share=0.5 if name == "real" else 0.2)
        return TSMixup(sampler) if name == "mixup" else sampler

    return Corpus({name: Part(source(name), share) for name, share in shares.items() if share > 0}, steps=steps)
