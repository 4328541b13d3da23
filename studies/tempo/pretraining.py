"""Teach an encoder to hear before anyone tells it a tempo: fill in hidden stretches of clips, and sum clips up.

The paper starts from weights of AudioSet. Where those cannot be had, a network that starts from nothing spends much of
a short training on finding out that there are clicks. Clips without labels teach it that: half of each is hidden, in
stretches of half a second, and has to be guessed from the rest, which takes the beat; and the pooled output has to give
the mean of each mel band and of its changes, and how alike the clip's onsets are to themselves some time later.

References:
    Gong, Lai, Chung and Glass, SSAST: Self-Supervised Audio Spectrogram Transformer, AAAI 2022.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fourier_head._files import write_atomically
from fourier_head.tasks.engine import TimeUp, is_over
from studies.tempo.clicks import draw_clips, render
from studies.tempo.data import CHUNK
from studies.tempo.features import fit_length, log_mel
from studies.tempo.model import grid

STRETCH = 48
"""Frames hidden together; at 210 BPM there are 29 from click to click, at 75 BPM 80."""
LAGS = (20, 160)
"""Frames between onsets that are compared; 60 / BPM seconds are 28.6 frames at 210 BPM and 120 at 50."""
SLOW, FAST = 40.0, 240.0
SEED = 987_654
BATCH, RATE, WARMUP = 64, 1e-3, 0.1


def unlabelled(count: int, num_mels: int, device: str, deadline: float | None = None) -> Tensor:
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


def pretrain(
    network: Any,
    config: Any,
    features: Tensor,
    steps: int,
    device: str,
    say: Callable[[str], None] | None = None,
    kept: Path | None = None,
    deadline: float | None = None,
) -> float:
    """Train the encoder of an AST classifier on normalised features without labels; return the last mean loss.

    After the ``deadline``, a value of ``time.time``, raise `TimeUp` and leave in the file ``kept`` what the next call
    goes on from, to the same weights as without a stop.
    """
    encoder = network.audio_spectrogram_transformer
    torch.manual_seed(SEED)
    guess = nn.Linear(config.hidden_size, config.patch_size**2).to(device)
    summary = nn.Linear(config.hidden_size, 2 * config.num_mel_bins + LAGS[1] - LAGS[0]).to(device)
    generator = torch.Generator(device).manual_seed(SEED)
    parameters = [*encoder.parameters(), *guess.parameters(), *summary.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=RATE, weight_decay=0.05, fused=device.startswith("cuda"))
    rise = max(1, round(WARMUP * steps))
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / rise, 1.0 - max(0, step - rise) / max(1, steps - rise))
    )
    rows, _ = grid(config)
    network.train()
    recent, last = torch.zeros((), device=device), math.nan
    shown = max(1, steps // 10)
    parts = {"encoder": encoder, "guess": guess, "summary": summary, "optimizer": optimizer, "schedule": schedule}
    done = 0
    if kept is not None and kept.is_file():
        state = torch.load(kept, map_location=device, weights_only=True)
        for name, part in parts.items():
            part.load_state_dict(state[name])
        generator.set_state(state["generator"].cpu())
        done, recent = state["step"], state["recent"]
    for step in range(done + 1, steps + 1):
        if is_over(deadline):
            if kept is not None and step > done + 1:
                state = {name: part.state_dict() for name, part in parts.items()}
                state |= {"generator": generator.get_state(), "step": step - 1, "recent": recent}
                write_atomically(kept, functools.partial(torch.save, state))
            raise TimeUp
        whole = features[torch.randint(len(features), (BATCH,), generator=generator, device=device)].float()
        seen, hidden = hide(whole, generator)
        covered = hidden.float().unfold(1, config.patch_size, config.time_stride).amin(-1).repeat(1, rows)
        with torch.autocast("cuda", torch.bfloat16, enabled=device.startswith("cuda")):
            heard = encoder(seen)
            guessed, summed = guess(heard.last_hidden_state[:, 2:]), summary(heard.pooler_output)
        missed = ((guessed.float() - patches(whole, config)) ** 2).mean(-1)
        # Autocorrelations vary by about a quarter; four of them weigh as much as normalised features.
        means = torch.cat([whole.mean(1), whole.diff(dim=1).abs().mean(1), 4 * rhythm(whole)], dim=-1)
        loss = (missed * covered).sum() / covered.sum().clamp_min(1) + F.mse_loss(summed.float(), means)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        schedule.step()
        recent = recent + loss.detach()
        if step % shown == 0:
            last = float(recent) / shown
            if say is not None:
                say(f"pretraining: step {step} of {steps}, loss {last:.4f}")
            recent = torch.zeros((), device=device)
    return last


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

    from studies.tempo.model import build, configuration

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
    kept.unlink(missing_ok=True)
    return path


def unfinished(path: Path, device: str) -> Path:
    """Return where a pretraining is kept that has not come to its file yet; random numbers of devices differ."""
    return path.with_suffix(f".unfinished-{torch.device(device).type}")
