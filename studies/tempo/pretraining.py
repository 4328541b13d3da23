"""Teach an encoder to hear before anyone tells it a tempo: fill in hidden stretches of clips, and sum clips up.

The paper starts from weights of AudioSet. Where those cannot be had, a network that starts from nothing spends much of
a short training on finding out that there are clicks. Clips without labels teach it that: half of each is hidden, in
stretches of half a second, and has to be guessed from the rest, which takes the beat; and the pooled output has to give
the mean of each mel band and of its changes, and how alike the clip's onsets are to themselves some time later.

References:
    Gong, Lai, Chung and Glass, SSAST: Self-Supervised Audio Spectrogram Transformer, AAAI 2022.
"""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fourier_head._files import write_atomically
from fourier_head.tasks.engine import TimeUp, is_over
from fourier_head.training.data import RandomStream
from fourier_head.training.loop import Training
from fourier_head.training.settings import TrainingSettings
from studies.tempo.clicks import draw_clips, fit_length, log_mel, render
from studies.tempo.data import CHUNK
from studies.tempo.model import build, configuration, grid

STRETCH = 48
"""Frames hidden together; at 210 BPM there are 29 from click to click, at 75 BPM 80."""
LAGS = (20, 160)
"""Frames between onsets that are compared; 60 / BPM seconds are 28.6 frames at 210 BPM and 120 at 50."""
SLOW, FAST = 40.0, 240.0
SEED = 987_654
BATCH, RATE, WARMUP = 64, 1e-3, 0.1


def unlabelled(count: int, num_mels: int, device: str, deadline: float | None) -> Tensor:
    """Return features of clips of any tempo between 40 and 240 BPM, whole or not, in pieces that fit into memory."""
    generator = torch.Generator().manual_seed(SEED)
    bpm = SLOW + (FAST - SLOW) * torch.rand(count, generator=generator)
    drawn, noise = draw_clips(bpm, generator).to(device), torch.Generator(device).manual_seed(SEED)
    parts = []
    for first in range(0, count, CHUNK):
        if is_over(deadline):
            raise TimeUp
        parts.append(log_mel(render(drawn[first : first + CHUNK], noise), num_mels))
    return torch.cat(parts)


def hide(features: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return features (clips, frames, mels) with half of their stretches at zero, and which frames those are."""
    clips, frames, _ = features.shape
    stretches = math.ceil(frames / STRETCH) + 1
    drawn = torch.rand(clips, stretches, generator=generator, device=features.device)
    hidden = (drawn.argsort(-1) < stretches // 2).repeat_interleave(STRETCH, dim=-1)
    # Stretches begin anywhere, so that no place of the clip is always hidden together with its neighbour.
    first = torch.randint(STRETCH, (clips, 1), generator=generator, device=features.device)
    hidden = hidden.gather(1, first + torch.arange(frames, device=features.device))
    return features.masked_fill(hidden[..., None], 0.0), hidden


def patches(features: Tensor, config: Any) -> Tensor:
    """Return what each token covers, (clips, tokens, patch * patch), in the encoder's order: frequency, then time."""
    size = config.patch_size
    cut = features.transpose(1, 2).unfold(1, size, config.frequency_stride).unfold(2, size, config.time_stride)
    return cut.flatten(3).flatten(1, 2)


def rhythm(features: Tensor) -> Tensor:
    """Return the autocorrelation of rises in level, (clips, lags), at lags from 0.2 to 1.6 s; 1 is a perfect repeat.

    >>> beat = torch.zeros(1, 398, 16)
    >>> beat[:, ::40] = 1.0
    >>> LAGS[0] + int(rhythm(beat)[0, :30].argmax())
    40
    """
    rises = features.diff(dim=1).clamp_min(0).mean(-1)
    rises = rises - rises.mean(-1, keepdim=True)
    power = torch.fft.rfft(rises, n=2 * rises.shape[-1]).abs() ** 2
    likeness = torch.fft.irfft(power)[:, : LAGS[1]]
    return likeness[:, LAGS[0] :] / likeness[:, :1].clamp_min(1e-6)


class Pretraining(nn.Module):
    """The loss of an encoder that guesses what was hidden of clips, and sums them up.

    Args:
        encoder, config: of an AST classifier.
    """

    def __init__(self, encoder: Any, config: Any):
        super().__init__()
        self.encoder, self.config = encoder, config
        self.guess = nn.Linear(config.hidden_size, config.patch_size**2)
        self.summary = nn.Linear(config.hidden_size, 2 * config.num_mel_bins + LAGS[1] - LAGS[0])

    def forward(self, whole: Tensor, seen: Tensor, hidden: Tensor) -> Tensor:
        rows, _ = grid(self.config)
        covered = hidden.float().unfold(1, self.config.patch_size, self.config.time_stride).amin(-1).repeat(1, rows)
        heard = self.encoder(seen)
        guessed, summed = self.guess(heard.last_hidden_state[:, 2:]), self.summary(heard.pooler_output)
        missed = ((guessed.float() - patches(whole, self.config)) ** 2).mean(-1)
        # Autocorrelations vary by about a quarter; four of them weigh as much as normalised features.
        means = torch.cat([whole.mean(1), whole.diff(dim=1).abs().mean(1), 4 * rhythm(whole)], dim=-1)
        return (missed * covered).sum() / covered.sum().clamp_min(1) + F.mse_loss(summed.float(), means)


def pretrain(
    network: Any,
    config: Any,
    features: Tensor,
    steps: int,
    device: str,
    say: Callable[[str], None] | None,
    kept: Path,
    deadline: float | None,
) -> None:
    """Train the encoder of an AST classifier on normalised features without labels.

    After the ``deadline``, a value of ``time.time``, raise `TimeUp` and leave in the folder ``kept`` what the next call
    goes on from, to the same weights as without a stop.
    """
    torch.manual_seed(SEED)
    module = Pretraining(network.audio_spectrogram_transformer, config)

    def draw(generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
        chosen = torch.randint(len(features), (BATCH,), generator=generator, device=features.device)
        whole = features[chosen].float()
        return whole, *hide(whole, generator)

    settings = TrainingSettings(
        kept,
        batch=BATCH,
        steps=steps,
        limit=None if deadline is None else max(1e-3, deadline - time.time()),
        learning_rate=RATE,
        warmup=WARMUP,
        betas=(0.9, 0.999),
        decay=0.05,
        precision="bf16" if device.startswith("cuda") else "no",
        log_every=max(1, steps // 10),
    )

    def tell(line: dict[str, float]) -> None:
        if say is not None:
            say(f"pretraining: step {line['step']:.0f} of {steps}, loss {line['loss']:.4f}")

    network.train()
    training = Training(module, lambda process: RandomStream(draw, SEED, device), settings, device)
    if not training.run(tell):
        raise TimeUp


def pretrained_file(
    model: str,
    steps: int,
    clips: int,
    path: Path,
    device: str,
    say: Callable[[str], None] | None = None,
    deadline: float | None = None,
) -> Path:
    """Pretrain the encoder of a size of ours and write its weights, unless they are there already.

    At the deadline raise `TimeUp`; what was learned is kept beside, and the next call goes on from it.
    """
    from safetensors.torch import save_file

    if path.is_file():
        return path
    config = configuration(model)
    network = build(model, "linear", None, SEED).to(device)
    features = unlabelled(clips, config.num_mel_bins, device, deadline)
    features = fit_length(features, config.max_length, float(features.mean()), float(features.std()))
    kept = unfinished(path, device)
    pretrain(network, config, features, steps, device, say, kept, deadline)
    state = network.audio_spectrogram_transformer.state_dict()
    tensors = {name: value.contiguous().cpu() for name, value in state.items()}
    write_atomically(path, lambda beside: save_file(tensors, beside))
    shutil.rmtree(kept, ignore_errors=True)
    return path


def unfinished(path: Path, device: str) -> Path:
    """Return where a pretraining is kept that has not come to its file yet; random numbers of devices differ."""
    return path.with_suffix(f".unfinished-{torch.device(device).type}")
