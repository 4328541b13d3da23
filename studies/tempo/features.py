"""Log-mel filterbanks as the Audio Spectrogram Transformer hears them, for whole batches on any device."""

from __future__ import annotations

import math
import warnings
from functools import cache

import torch
from torch import Tensor

from studies.tempo.clicks import SAMPLE_RATE

FRAME, HOP, FFT = 400, 160, 512
"""Samples of a frame, between frames, and of the transform: 25 ms, 10 ms and the next power of two at 16 kHz."""
LOWEST_HERTZ = 20.0
FLOOR = 1.192092955078125e-07
PREEMPHASIS = 0.97
AUDIOSET_MEAN, AUDIOSET_STD = -4.2677393, 4.5689974
"""Of the log-mel features of AudioSet, to which the published weights are used."""


@cache
def mel_filters(num_mels: int) -> Tensor:
    """Return triangles in mel space, (FFT/2 + 1, num_mels), as Kaldi lays them out; the highest frequency has none."""
    from transformers.audio_utils import mel_filter_bank

    span = (LOWEST_HERTZ, SAMPLE_RATE / 2, SAMPLE_RATE)
    with (
        warnings.catch_warnings()
    ):  # the lowest of 128 triangles lie between two frequencies, as in the published network
        warnings.simplefilter("ignore")
        bank = mel_filter_bank(FFT // 2 + 1, num_mels, *span, mel_scale="kaldi", triangularize_in_mel_space=True)
    return torch.from_numpy(bank)


def log_mel(wave: Tensor, num_mels: int = 128) -> Tensor:
    """Return log-mel features (..., frames, num_mels) of waveforms (..., samples).

    Frames of 25 ms every 10 ms, their mean removed, pre-emphasis 0.97, symmetric Hann window, power spectrum, triangles
    on the mel scale from 20 Hz up, logarithm: what ``ASTFeatureExtractor`` of transformers computes for one clip at a
    time, before it pads and normalises.

    References:
        Gong, Chung and Glass, AST: Audio Spectrogram Transformer, Interspeech 2021.

    >>> log_mel(torch.zeros(2, 16_000)).shape
    torch.Size([2, 98, 128])
    """
    if wave.shape[-1] < FRAME:
        raise ValueError(f"wave must have at least {FRAME} samples, got {wave.shape[-1]}")
    frames = wave.float().unfold(-1, FRAME, HOP)
    frames = frames - frames.mean(-1, keepdim=True)
    # The first sample has no neighbour before it and is taken against itself.
    before = torch.cat([frames[..., :1], frames[..., :-1]], dim=-1)
    window = torch.hann_window(FRAME, periodic=False, device=wave.device)
    spectrum = torch.fft.rfft((frames - PREEMPHASIS * before) * window, n=FFT)
    power = spectrum.real**2 + spectrum.imag**2
    filters = mel_filters(num_mels).to(power)
    return (power @ filters).clamp_min(FLOOR).log()


def fit_length(features: Tensor, length: int, mean: float, std: float) -> Tensor:
    """Return features of ``length`` frames normalised as the extractor does: ``(x - mean) / (2 std)``.

    Shorter clips get frames of log-energy 0 at their end before that, longer ones are cut.
    """
    if std <= 0 or not math.isfinite(std):
        raise ValueError(f"std must be positive, got {std}")
    missing = length - features.shape[-2]
    if missing > 0:
        features = torch.nn.functional.pad(features, (0, 0, 0, missing))
    return (features[..., :length, :] - mean) / (2 * std)
