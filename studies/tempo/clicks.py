"""Metronome-like audio made of formulas: many clips at once, on any device, the same ones for the same seed.

Modelled on the tempo set of SynTheory (Wei et al., Do Music Generation Models Encode Music Theory?, ISMIR 2024): whole
tempos from 50 to 210 BPM, five sounds, clips of four seconds cut at a random place. Ours vary more: each clip has its
own pitch, decay, metre, loudness of the weak beats and level of background noise. What a network hears of them are
log-mel filterbanks as the Audio Spectrogram Transformer has them.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

SAMPLE_RATE = 16_000
SECONDS = 4.0
SLOWEST, FASTEST = 50, 210
TIMBRES = ("woodblock", "ping", "noise", "cowbell", "drum")
METRES = (0, 2, 3, 4)
"""Beats in a bar, of which the first is accented; 0 for clicks that are all alike."""

CLICK_SECONDS = 0.2
BASE_PITCH = torch.tensor([900.0, 1000.0, 2500.0, 560.0, 170.0])
BASE_DECAY = torch.tensor([0.012, 0.045, 0.018, 0.050, 0.050])


@dataclass(frozen=True)
class Clips:
    """What there is to know about clips before they sound; one number each per clip.

    Attributes:
        bpm: beats per minute.
        timbre: index into ``TIMBRES``.
        metre: beats in a bar, 0 for no accents.
        phase: where in a bar of ``max(metre, 1)`` beats the clip begins, in beats.
        pitch: factor of the sound's own pitch.
        decay: factor of the sound's own decay.
        weak: amplitude of beats that are not accented.
        gain: amplitude of the loudest click.
        noise: amplitude of the background noise.
    """

    bpm: Tensor
    timbre: Tensor
    metre: Tensor
    phase: Tensor
    pitch: Tensor
    decay: Tensor
    weak: Tensor
    gain: Tensor
    noise: Tensor

    def __len__(self) -> int:
        return len(self.bpm)

    def __getitem__(self, index: slice) -> Clips:
        return Clips(**{name: value[index] for name, value in vars(self).items()})

    def to(self, device: torch.device | str) -> Clips:
        """Return the same clips with their numbers on a device."""
        return Clips(**{name: value.to(device) for name, value in vars(self).items()})


def draw_clips(bpm: Tensor, generator: torch.Generator, timbre: Tensor | None = None) -> Clips:
    """Draw everything but the tempo of clips at random.

    Args:
        bpm: one tempo per clip.
        generator: a generator of the CPU, so that a seed means the same clips on every device.
        timbre: indices into ``TIMBRES``; drawn too where there are none.

    >>> clips = draw_clips(torch.tensor([60.0, 120.0]), torch.Generator().manual_seed(0))
    >>> len(clips), clips[:1].bpm
    (2, tensor([60.]))
    """
    bpm = bpm.float()
    if bpm.ndim != 1 or not bool(((bpm >= 20) & (bpm <= 400)).all()):
        raise ValueError("bpm must be a row of tempos between 20 and 400")
    count = len(bpm)

    def uniform(low: float, high: float) -> Tensor:
        return low + (high - low) * torch.rand(count, generator=generator)

    def decibels(low: float, high: float) -> Tensor:
        return 10 ** (uniform(low, high) / 20)

    if timbre is None:
        timbre = torch.randint(len(TIMBRES), (count,), generator=generator)
    metre = torch.tensor(METRES)[torch.randint(len(METRES), (count,), generator=generator)]
    gain = decibels(-12, 0)
    return Clips(
        bpm=bpm,
        timbre=timbre,
        metre=metre,
        phase=metre.clamp_min(1) * torch.rand(count, generator=generator),
        pitch=2 ** uniform(-0.4, 0.4),
        decay=2 ** uniform(-0.5, 0.5),
        weak=uniform(0.45, 0.8),
        gain=gain,
        noise=gain * decibels(-60, -20),
    )


def render(clips: Clips, generator: torch.Generator, seconds: float = SECONDS) -> Tensor:
    """Return waveforms (clips, samples) in [-1, 1]; clicks fall between samples where the tempo says so.

    Args:
        clips: what ``draw_clips`` returns, on the device where the sound is to be made.
        generator: of that device, for the noise.

    >>> generator = torch.Generator().manual_seed(0)
    >>> render(draw_clips(torch.tensor([60.0, 120.0]), generator), generator, seconds=0.5).shape
    torch.Size([2, 8000])
    """
    device = clips.bpm.device
    samples, length = round(seconds * SAMPLE_RATE), round(CLICK_SECONDS * SAMPLE_RATE)
    period = 60 / clips.bpm.double() * SAMPLE_RATE
    # From the click before the clip, whose tail may still sound, to the last one inside.
    beats = math.ceil(seconds * float(clips.bpm.max()) / 60) + 2
    beat = clips.phase.double().floor()[:, None] + torch.arange(beats, device=device)
    onset = (beat - clips.phase.double()[:, None]) * period[:, None]
    strong = (clips.metre[:, None] > 0) & (beat.long() % clips.metre.clamp_min(1)[:, None] == 0)
    first = onset.ceil()
    elapsed = ((first - onset).float()[..., None] + torch.arange(length, device=device)) / SAMPLE_RATE
    click = _click(clips, elapsed, strong, generator)
    place = first.long()[..., None] + torch.arange(length, device=device) + length
    place = place.clamp(0, samples + 2 * length - 1).flatten(1)
    # One length of margin on both sides takes what sounds before the clip and after it.
    wave = torch.zeros(len(clips), samples + 2 * length, device=device)
    wave.scatter_add_(1, place, click.flatten(1))
    wave = wave[:, length : length + samples] * clips.gain[:, None]
    noise = torch.randn(wave.shape, generator=generator, device=device)
    return (wave + clips.noise[:, None] * noise).clamp(-1, 1)


def _click(clips: Clips, t: Tensor, strong: Tensor, generator: torch.Generator) -> Tensor:
    """Return the sound of each click (clips, beats, length) at times t after its onset; strong beats are higher."""
    device = t.device
    wide = (slice(None), None, None)
    # A fourth higher, as the accents of many metronomes are.
    raised = torch.where(strong, 4 / 3, 1.0)[..., None]
    pitch = (BASE_PITCH.to(device)[clips.timbre] * clips.pitch)[wide] * raised
    decay = (BASE_DECAY.to(device)[clips.timbre] * clips.decay)[wide]
    kind = clips.timbre[wide]
    turn = 2 * math.pi * pitch * t
    # A soft beginning, and an end without a second click where the sound is cut.
    envelope = torch.exp(-t / decay) * (1 - torch.exp(-t / 0.0005)) * (1 - t / CLICK_SECONDS).clamp_min(0)
    hiss = torch.randn((len(clips), 1, t.shape[-1]), generator=generator, device=device)
    # Each sound is computed for all clips and one of them kept: cheaper than to gather and scatter rows.
    sounds = (
        0.7 * torch.sin(turn) + 0.3 * torch.sin(2.57 * turn),
        torch.sin(turn),
        0.35 * hiss.expand_as(t),
        0.6 * torch.sin(turn + 1.8 * envelope * torch.sin(1.504 * turn)) + 0.4 * torch.sin(1.48 * turn),
        # The phase of a pitch that falls by half: the integral of f (1/2 + 1/2 exp(-t / s)).
        torch.sin(math.pi * pitch * (t + 0.03 * (1 - torch.exp(-t / 0.03)))) + 0.1 * hiss * torch.exp(-t / 0.004),
    )
    sound = sounds[-1]
    for index, one in enumerate(sounds[:-1]):
        sound = torch.where(kind == index, one, sound)
    amplitude = torch.where(strong | (clips.metre[:, None] == 0), 1.0, clips.weak[:, None])
    return sound * envelope * amplitude[..., None]


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
