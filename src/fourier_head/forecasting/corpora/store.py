"""Many ragged series as one flat tensor, so that a batch of windows is one gather on whatever device trains."""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fourier_head._files import write_atomically
from fourier_head.errors import UserError, needing

FORMAT = "fourier-head series 1"


@dataclass(frozen=True, eq=False)
class SeriesStore:
    """Hold series of any lengths as one flat float32 tensor; read-only, on any device.

    `values[offsets[i] : offsets[i] + lengths[i]]` is series i, NaN where a value is missing; it belongs to the data
    set `names[set_index[i]]`, and `period[i]` is the season length a model may be told (1: unknown).

    >>> store = SeriesStore.from_series([[1, 2, 3], [5, 6]], period=12)
    >>> len(store), store.series(1)
    (2, tensor([5., 6.]))
    """

    values: Tensor
    offsets: Tensor
    lengths: Tensor
    set_index: Tensor
    period: Tensor
    names: tuple[str, ...]

    @classmethod
    def from_series(
        cls,
        series: Sequence[Sequence[float] | np.ndarray | Tensor],
        name: str = "series",
        period: int | Sequence[int] = 1,
    ) -> SeriesStore:
        """Store a list of one-dimensional arrays as one data set."""
        arrays = [np.asarray(s, dtype=np.float32) for s in series]
        if bad := [a.shape for a in arrays if a.ndim != 1]:
            raise ValueError(f"series must be one-dimensional, got one of shape {tuple(bad[0])}.")
        lengths = np.array([a.size for a in arrays], dtype=np.int64)
        flat = np.concatenate(arrays) if arrays else np.zeros(0, np.float32)
        return cls.from_flat(flat, lengths, np.zeros(len(arrays), np.int64), np.asarray(period), (name,))

    @classmethod
    def from_flat(
        cls, values: np.ndarray, lengths: np.ndarray, set_index: np.ndarray, period: np.ndarray, names: Sequence[str]
    ) -> SeriesStore:
        """Build a store from values laid end to end; infinite values count as missing, empty series are dropped."""
        lengths = np.asarray(lengths, dtype=np.int64)
        period = np.broadcast_to(np.asarray(period, dtype=np.int64), lengths.shape)
        if lengths.sum() != len(values):
            raise ValueError(f"lengths add up to {lengths.sum()}, but there are {len(values)} values.")
        if not np.isfinite(values).any():
            raise ValueError("there is no finite value in any series.")
        keep = lengths > 0
        flat = torch.from_numpy(np.array(values, dtype=np.float32))
        ends = np.cumsum(lengths)
        return cls(
            values=torch.where(flat.isfinite(), flat, math.nan),
            offsets=torch.from_numpy((ends - lengths)[keep]),
            lengths=torch.from_numpy(lengths[keep]),
            set_index=torch.from_numpy(np.asarray(set_index, dtype=np.int64)[keep]),
            period=torch.from_numpy(np.maximum(period, 1)[keep]),
            names=tuple(names),
        )

    def __len__(self) -> int:
        return len(self.lengths)

    def __repr__(self) -> str:
        return (
            f"SeriesStore({len(self):,} series, {self.values.numel():,} values, {len(self.names)} sets, "
            f"{self.values.device})"
        )

    @property
    def device(self) -> torch.device:
        """Where the values lie."""
        return self.values.device

    def series(self, index: int) -> Tensor:
        """Return one series (a view; not for hot paths)."""
        start = int(self.offsets[index])
        return self.values[start : start + int(self.lengths[index])]

    def to(self, device: torch.device | str) -> SeriesStore:
        """Return the store with every tensor on `device`."""
        names = ("values", "offsets", "lengths", "set_index", "period")
        return replace(self, **{name: getattr(self, name).to(device) for name in names})

    def select(self, index: Tensor) -> SeriesStore:
        """Return a store of the series with these numbers, in this order; set names stay."""
        index = index.to(self.device)
        if index.numel() == 0:
            raise ValueError("no series was selected.")
        lengths = self.lengths[index]
        offsets = lengths.cumsum(0) - lengths
        # The place of every kept value in the old flat tensor: its new place, moved by what its series moved.
        moved = torch.repeat_interleave(self.offsets[index] - offsets, lengths)
        taken = self.values[torch.arange(len(moved), device=self.device) + moved]
        return SeriesStore(taken, offsets, lengths, self.set_index[index], self.period[index], self.names)

    def split(self, fraction: float, seed: int = 0) -> tuple[SeriesStore, SeriesStore]:
        """Return (kept, held out): about `fraction` of the series of every data set held out whole.

        A set keeps at least one series to train on, so sets of one series hold none out; a set of several holds out
        at least one.
        """
        if not 0 < fraction < 1:
            raise ValueError(f"fraction must be between 0 and 1, got {fraction}.")
        generator = torch.Generator().manual_seed(seed)
        set_index = self.set_index.cpu()
        held = torch.zeros(len(self), dtype=torch.bool)
        for number in range(len(self.names)):
            members = (set_index == number).nonzero().flatten()
            if len(members) > 1:
                count = min(max(round(fraction * len(members)), 1), len(members) - 1)
                held[members[torch.randperm(len(members), generator=generator)[:count]]] = True
        if not held.any():
            raise ValueError("every data set has one series only: none can be held out whole.")
        return self.select((~held).nonzero().flatten()), self.select(held.nonzero().flatten())

    def save(self, path: str | Path) -> Path:
        """Write everything into one safetensors file, packed without loss: about 1.6 bytes per value.

        The bytes of the floats are sorted by significance before they are deflated: signs and exponents of
        neighbouring values are alike, and values with few digits end in zeros.
        """
        with needing("forecasting"):
            from safetensors.numpy import save_file
        planes = self.values.cpu().numpy().view(np.uint8).reshape(-1, 4).T
        tensors: dict[str, np.ndarray] = {
            "values": np.frombuffer(zlib.compress(planes.tobytes(), 6), dtype=np.uint8),
            "lengths": self.lengths.cpu().numpy().astype(np.int32),
            "set_index": self.set_index.cpu().numpy().astype(np.int32),
            "period": self.period.cpu().numpy().astype(np.int32),
        }
        meta = {"format": FORMAT, "names": json.dumps(self.names), "count": str(self.values.numel())}
        path = Path(path)
        write_atomically(path, lambda beside: save_file(tensors, beside, metadata=meta))
        return path

    @classmethod
    def load(cls, path: str | Path, device: torch.device | str = "cpu") -> SeriesStore:
        """Read a file that `save` wrote."""
        with needing("forecasting"):
            from safetensors import SafetensorError, safe_open
        if not Path(path).is_file():
            raise UserError(f"there is no file {path}.")
        try:
            with safe_open(path, framework="numpy") as file:
                meta: Mapping[str, str] = file.metadata() or {}
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
        except (SafetensorError, OSError) as error:
            raise UserError(f"{path} cannot be read as a safetensors file ({error}).") from None
        if meta.get("format") != FORMAT:
            raise UserError(f"{path} does not hold packed series: write one with SeriesStore.save.")
        count = int(meta.get("count", 0))
        # The size is known, so a damaged or hostile file cannot unpack to more than it says.
        try:
            raw = zlib.decompressobj().decompress(tensors["values"].tobytes(), max(4 * count, 1))
            lengths, index, period = (tensors[k] for k in ("lengths", "set_index", "period"))
            names = json.loads(meta["names"])
            whole = len(raw) == 4 * count == 4 * int(lengths.sum(dtype=np.int64)) and lengths.min() > 0
            whole = whole and len(lengths) == len(index) == len(period) and 0 <= index.min() <= index.max() < len(names)
        except (zlib.error, KeyError, ValueError):
            whole = False
        if not whole:
            raise UserError(f"{path} is damaged: its parts do not fit together.")
        values = np.frombuffer(raw, np.uint8).reshape(4, count).T.copy().view(np.float32).ravel()
        return cls.from_flat(values, lengths, index, period, names).to(device)
