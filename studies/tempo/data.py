"""Clips as a network gets them: features and tempos, odd tempos to learn from and even ones to be tested on."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import torch
from torch import Tensor

from fourier_head.domains import Interval
from fourier_head.errors import UserError
from studies.tempo.clicks import FASTEST, SLOWEST, TIMBRES, draw_clips, log_mel, render

BIN_WIDTH = 5
NUM_BINS = (FASTEST - SLOWEST) // BIN_WIDTH + 1
"""[50, 54], [55, 59], ..., [205, 209], [210]: the last bin has one tempo, an even one, which nothing is trained on."""
DOMAIN = Interval(SLOWEST - 0.5, SLOWEST + BIN_WIDTH * NUM_BINS - 0.5)
CHUNK = 128


def bin_of(bpm: Tensor) -> Tensor:
    """Return the bins of tempos.

    >>> bin_of(torch.tensor([50, 54, 55, 210]))
    tensor([ 0,  0,  1, 32])
    """
    return (bpm.long() - SLOWEST) // BIN_WIDTH


def bin_centre(index: Tensor) -> Tensor:
    """Return the middle tempo of bins.

    >>> bin_centre(torch.tensor([0, 1]))
    tensor([52., 57.])
    """
    return SLOWEST + BIN_WIDTH * index + (BIN_WIDTH - 1) / 2


@dataclass(frozen=True)
class Heard:
    """Log-mel features (clips, frames, mels) and the tempo of each clip, in BPM."""

    features: Tensor
    bpm: Tensor

    @property
    def label(self) -> Tensor:
        """The bin of each clip."""
        return bin_of(self.bpm)

    def __len__(self) -> int:
        return len(self.bpm)


@dataclass(frozen=True)
class Split:
    """Clips to train on, to watch training with and to test on: those of even tempos, or any, at random."""

    train: Heard
    validation: Heard
    test: Heard


def tempos(odd: bool) -> Tensor:
    """Return the odd or the even tempos."""
    every = torch.arange(SLOWEST, FASTEST + 1)
    return every[every % 2 == int(odd)]


def generated(bpm: Tensor, per_tempo: int, num_mels: int, seed: int, device: str) -> Heard:
    """Return clips of each tempo in turn; each timbre comes as often as the others."""
    bpm = bpm.repeat_interleave(per_tempo)
    # Beginning at another timbre for each tempo, so that timbre and tempo are not linked where few clips are made.
    timbre = (torch.arange(len(bpm)) + bpm) % len(TIMBRES)
    drawn = draw_clips(bpm, torch.Generator().manual_seed(seed), timbre).to(device)
    noise = torch.Generator(device).manual_seed(seed)
    parts = [log_mel(render(drawn[first : first + CHUNK], noise), num_mels) for first in range(0, len(drawn), CHUNK)]
    return Heard(torch.cat(parts), bpm.to(device))


@lru_cache(maxsize=2)
def random_split(seed: int, per_tempo: int, num_mels: int, device: str) -> Split:
    """Return clips of all tempos, dealt out at random as the paper does, as many to train and watch as elsewhere."""
    heard = generated(torch.arange(SLOWEST, FASTEST + 1), per_tempo, num_mels, 3 * seed, device)
    train, watch = (count * len(tempos(odd=True)) for count in (per_tempo, max(1, per_tempo // 5)))
    order = torch.randperm(len(heard), generator=torch.Generator().manual_seed(seed)).to(device)
    parts = order.split([train, watch, len(heard) - train - watch])
    return Split(*(Heard(heard.features[index], heard.bpm[index]) for index in parts))


@lru_cache(maxsize=2)
def generated_split(seed: int, per_tempo: int, num_mels: int, device: str) -> Split:
    """Return the split of one seed; another seed has other clips in all three parts.

    With 25 clips of each tempo, 2000 to train on and 2025 to test on, as many as SynTheory has.
    """
    watch = max(1, per_tempo // 5)
    return Split(
        generated(tempos(odd=True), per_tempo, num_mels, 3 * seed, device),
        generated(tempos(odd=True), watch, num_mels, 3 * seed + 1, device),
        generated(tempos(odd=False), per_tempo, num_mels, 3 * seed + 2, device),
    )


@lru_cache(maxsize=1)
def syntheory_split(folder: str, num_mels: int, device: str) -> Split:
    """Return SynTheory's tempo set: of the clips of odd tempos every fifth is kept from training to watch it."""
    from studies.tempo.syntheory import read_tempos

    wave, bpm = read_tempos(Path(folder))
    odd, even = (bpm % 2 == 1).nonzero().flatten(), (bpm % 2 == 0).nonzero().flatten()
    if len(odd) < 5 or not len(even):
        raise UserError(f"--data must hold clips of odd and of even tempos, {folder} has {len(odd)} and {len(even)}.")
    watched = torch.arange(len(odd)) % 5 == 4
    features = torch.cat([log_mel(part.to(device), num_mels) for part in wave.split(CHUNK)])
    bpm = bpm.to(device)
    parts = [Heard(features[index.to(device)], bpm[index.to(device)]) for index in (odd[~watched], odd[watched], even)]
    return Split(*parts)
