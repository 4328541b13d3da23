"""Read the tempo set of SynTheory, as its generator writes it or as the Hugging Face hub hands it out.

The generator leaves a folder with `info.csv` (columns `bpm`, `offset_file_path`, `is_silent` among others) and the WAV
files it names: 44.1 kHz, four seconds. The hub has the same clips in Parquet files whose column `audio` holds `bytes`,
a whole WAV file, beside `bpm`.

References:
    Wei, Freeman, Donahue and Sun, Do Music Generation Models Encode Music Theory?, ISMIR 2024.
    https://github.com/brown-palm/syntheory and https://huggingface.co/datasets/meganwei/syntheory
"""

from __future__ import annotations

import csv
import io
import wave
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fourier_head.errors import UserError, needs_extra
from studies.tempo.clicks import FASTEST, SAMPLE_RATE, SECONDS, SLOWEST

INFO = "info.csv"
FULL_SCALE = {1: 128.0, 2: 32768.0, 3: 8388608.0, 4: 2147483648.0}


def read_tempos(folder: Path) -> tuple[Tensor, Tensor]:
    """Return waveforms (clips, samples) at 16 kHz and their tempos, ordered as the set is; silent clips are left out.

    Args:
        folder: of the set itself, or one that holds it as `tempos`.
    """
    if not folder.is_dir():
        raise UserError(f"--data must name a folder with SynTheory's tempos, {folder} is none.")
    waves, tempos = [], []
    for name, content, bpm in _clips(folder):
        if not SLOWEST <= bpm <= FASTEST:
            raise UserError(f"{name}: bpm must lie between {SLOWEST} and {FASTEST}, got {bpm}.")
        waves.append(_fit(resample(*read_wave(content, name))))
        tempos.append(bpm)
    if not waves:
        raise UserError(f"--data must name a folder with SynTheory's tempos, {folder} has no clips that sound.")
    return torch.stack(waves), torch.tensor(tempos)


def _clips(folder: Path) -> Iterator[tuple[str, bytes, int]]:
    """Yield a name for messages, the bytes of a WAV file, and the tempo."""
    for place in (folder, folder / "tempos"):
        if (place / INFO).is_file():
            yield from _from_table(place)
            return
        parts = sorted(place.glob("*.parquet"))
        if parts:
            yield from _from_parquet(parts)
            return
    raise UserError(f"--data must name a folder with {INFO} or Parquet files of SynTheory's tempos, {folder} has none.")


def _from_table(folder: Path) -> Iterator[tuple[str, bytes, int]]:
    home = folder.resolve()
    with open(folder / INFO, newline="", encoding="utf-8") as file:
        rows = csv.DictReader(file)
        missing = {"bpm", "offset_file_path"} - set(rows.fieldnames or ())
        if missing:
            raise UserError(f"{folder / INFO} must have the columns bpm and offset_file_path, {missing} is missing.")
        for row in rows:
            if row.get("is_silent") == "True":
                continue
            path = (home / (row["offset_file_path"] or "")).resolve()  # a row may end early
            if not path.is_relative_to(home) or not path.is_file():
                raise UserError(f"{folder / INFO} names {row['offset_file_path']}, which is no file of that folder.")
            yield path.name, path.read_bytes(), _whole(row["bpm"], path.name)


def _from_parquet(parts: list[Path]) -> Iterator[tuple[str, bytes, int]]:
    try:
        from pyarrow import parquet
    except ImportError as error:
        raise needs_extra(error) from None
    for part in parts:
        names = set(parquet.read_schema(part).names)
        if not {"audio", "bpm"} <= names:
            raise UserError(f"{part} must have the columns audio and bpm, got {', '.join(sorted(names))}.")
        for batch in parquet.ParquetFile(part).iter_batches(64, columns=["audio", "bpm"]):
            for row in batch.to_pylist():
                name = (row["audio"] or {}).get("path") or part.name
                content = (row["audio"] or {}).get("bytes")
                if not content:
                    raise UserError(f"{part}: the column audio must hold the bytes of WAV files, {name} has none.")
                yield name, content, _whole(row["bpm"], name)


def _whole(value: object, name: str) -> int:
    try:
        number = float(str(value))  # tables with gaps write whole numbers as 120.0
    except ValueError:
        number = float("nan")
    if not number.is_integer():
        raise UserError(f"{name}: bpm must be a whole number, got {value}.")
    return int(number)


def read_wave(content: bytes, name: str = "the clip") -> tuple[Tensor, int]:
    """Return the samples of a PCM WAV file in [-1, 1], its channels averaged, and their rate."""
    try:
        with wave.open(io.BytesIO(content)) as file:
            width, channels, rate = file.getsampwidth(), file.getnchannels(), file.getframerate()
            raw = np.frombuffer(file.readframes(file.getnframes()), dtype=np.uint8)
    except (wave.Error, EOFError) as error:
        raise UserError(f"{name} must be a WAV file of whole numbers (PCM): {error}.") from None
    whole = raw[: len(raw) // (width * channels) * width * channels].reshape(-1, width)
    if width == 1:  # the only width whose samples have no sign
        samples = whole[:, 0].astype(np.float64) - 128
    else:
        # Little-endian bytes go to the upper end of 32 bits, which gives every width its sign.
        wide = np.zeros((len(whole), 4), dtype=np.uint8)
        wide[:, 4 - width :] = whole
        samples = wide.view("<i4")[:, 0].astype(np.float64) / 2.0 ** (8 * (4 - width))
    samples = samples.reshape(-1, channels).mean(axis=1) / FULL_SCALE[width]
    return torch.from_numpy(samples).float(), rate


def resample(samples: Tensor, rate: int, target: int = SAMPLE_RATE) -> Tensor:
    """Return the signal at another rate, by cutting or extending its spectrum.

    >>> resample(torch.ones(441), 44_100, 16_000).shape
    torch.Size([160])
    """
    if rate == target or not len(samples):
        return samples
    count = max(1, round(len(samples) * target / rate))
    spectrum = torch.fft.rfft(samples.double())
    return (torch.fft.irfft(spectrum, n=count) * (count / len(samples))).float()


def _fit(samples: Tensor) -> Tensor:
    """Return exactly four seconds: cut, or silence at the end."""
    length = round(SECONDS * SAMPLE_RATE)
    return torch.nn.functional.pad(samples[:length], (0, max(0, length - len(samples))))
