"""Read the tempo set of SynTheory, as its generator writes it or as the Hugging Face hub hands it out.

The generator leaves a folder with `info.csv` (columns `bpm`, `offset_file_path`, `is_silent` among others) and the WAV
files it names: 44.1 kHz, four seconds. The hub has the same clips in Parquet files whose column `audio` holds `bytes`,
a whole WAV file, beside `bpm`.

References:
    Wei, Freeman, Donahue and Sun, Do Music Generation Models Encode Music Theory?, ISMIR 2024.
    https://github.com/brown-palm/syntheory and https://huggingface.co/datasets/meganwei/syntheory
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import signal
from scipy.io import wavfile
from torch import Tensor

from fourier_head.errors import UserError, needing
from studies.tempo.clicks import FASTEST, SAMPLE_RATE, SECONDS, SLOWEST

INFO = "info.csv"


def read_tempos(folder: Path) -> tuple[Tensor, Tensor]:
    """Return waveforms (clips, samples) at 16 kHz and their tempos, ordered as the set is; silent clips are left out.

    Args:
        folder: of the set itself, or one that holds it as `tempos`.
    """
    if not folder.is_dir():
        raise UserError(f"--data must name a folder with SynTheory's tempos, {folder} is none.")
    length = round(SECONDS * SAMPLE_RATE)
    waves, tempos = [], []
    for name, content, bpm in _clips(folder):
        if not str(bpm).replace(".", "", 1).isdigit() or not float(bpm).is_integer():  # with gaps, 120 is 120.0
            raise UserError(f"{name}: bpm must be a whole number, got {bpm}.")
        if not SLOWEST <= float(bpm) <= FASTEST:
            raise UserError(f"{name}: bpm must lie between {SLOWEST} and {FASTEST}, got {bpm}.")
        samples = resample(*read_wave(content, name))[:length]
        waves.append(torch.nn.functional.pad(samples, (0, length - len(samples))))
        tempos.append(int(float(bpm)))
    if not waves:
        raise UserError(f"--data must name a folder with SynTheory's tempos, {folder} has no clips that sound.")
    return torch.stack(waves), torch.tensor(tempos)


def _clips(folder: Path) -> Iterator[tuple[str, bytes, Any]]:
    """Yield a name for messages, the bytes of a WAV file, and the tempo."""
    with needing():
        import pandas as pd
        import pyarrow  # noqa: F401
    place = folder / "tempos" if (folder / "tempos").is_dir() else folder
    parts = sorted(place.glob("*.parquet"))
    if (place / INFO).is_file():
        table = pd.read_csv(place / INFO, dtype=str).fillna("")
        _check_columns(place / INFO, table, "bpm", "offset_file_path")
        for row in table.to_dict("records"):
            path = (place / row["offset_file_path"]).resolve()
            if row.get("is_silent") == "True":
                continue
            if not path.is_relative_to(place.resolve()) or not path.is_file():
                raise UserError(f"{place / INFO} names {row['offset_file_path']}, which is no file of that folder.")
            yield path.name, path.read_bytes(), row["bpm"]
    elif not parts:
        wanted = f"{INFO} or Parquet files of SynTheory's tempos"
        raise UserError(f"--data must name a folder with {wanted}, {folder} has none.")
    for part in parts:
        table = pd.read_parquet(part)
        _check_columns(part, table, "audio", "bpm")
        for audio, bpm in zip(table["audio"], table["bpm"], strict=True):
            name, content = ((audio or {}).get(key) for key in ("path", "bytes"))
            if not content:
                raise UserError(f"{part}: the column audio must hold the bytes of WAV files, {name} has none.")
            yield name or part.name, content, bpm


def _check_columns(path: Path, table: Any, *names: str) -> None:
    if missing := set(names) - set(table.columns):
        raise UserError(f"{path} must have the columns {' and '.join(names)}, {', '.join(missing)} is missing.")


def read_wave(content: bytes, name: str = "the clip") -> tuple[Tensor, int]:
    """Return the samples of a WAV file in [-1, 1], its channels averaged, and their rate."""
    try:
        rate, samples = wavfile.read(io.BytesIO(content))
    except (ValueError, EOFError) as error:
        raise UserError(f"{name} must be a WAV file: {error}.") from None
    kind = samples.dtype
    samples = samples.reshape(len(samples), -1).mean(axis=1, dtype=np.float64)
    if kind == np.uint8:  # the only width whose samples have no sign
        samples = samples / 128 - 1
    elif kind.kind == "i":
        samples = samples / 2.0 ** (8 * kind.itemsize - 1)
    return torch.from_numpy(samples).float(), rate


def resample(samples: Tensor, rate: int) -> Tensor:
    """Return the signal at the rate of all clips, by cutting or extending its spectrum.

    >>> resample(torch.ones(441), 44_100).shape
    torch.Size([160])
    """
    if rate == SAMPLE_RATE or not len(samples):
        return samples
    count = max(1, round(len(samples) * SAMPLE_RATE / rate))
    return torch.from_numpy(signal.resample(samples.double().numpy(), count)).float()
