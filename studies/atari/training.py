"""One arm: a Decision Transformer with one head, trained for some epochs and played after each."""

from __future__ import annotations

import functools
import json
import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fourier_head._files import recover_folder, write_atomically
from fourier_head.errors import UserError
from fourier_head.metrics import smoothness
from fourier_head.training.data import RandomStream
from fourier_head.training.loop import STATE, WEIGHTS, Training
from fourier_head.training.settings import TrainingSettings
from studies.atari.games import find_game
from studies.atari.model import DecisionTransformer, ModelSettings, action_head
from studies.atari.recording import Recording
from studies.atari.rollouts import OutOfTime, Played, describe_agent, play
from studies.atari.trajectories import Trajectories

EVALUATIONS, CLOCK = "evaluations.json", "seconds.json"
LINES = 10
"""Lines of the log per epoch."""


@dataclass(frozen=True)
class ArmSettings:
    """What one arm is.

    Args:
        head, frequencies, gamma: the head on the action.
        seed: of weights, data, dropout and rollouts.
        epochs: each is followed by rollouts.
        samples: contexts of an epoch; by default one for every recorded transition, as in the paper.
        batch, learning_rate: of AdamW with a cosine to zero. The original has 128 and 6e-4.
        layers, heads, width, context: of the model.
        share: part of the training episodes used.
        episodes, max_steps: rollouts after each epoch.
        target: return to condition on: "data" (that which one in twenty recorded episodes reaches), "paper" (what the
            released code asks for), or a number.
        held_out: contexts on which held-out loss and smoothness are measured.
    """

    head: str = "linear"
    frequencies: int | None = None
    gamma: float = 0.0
    seed: int = 0
    epochs: int = 5
    samples: int | None = None
    batch: int = 512
    learning_rate: float = 1e-3
    layers: int = 6
    heads: int = 8
    width: int = 128
    context: int = 30
    share: float = 1.0
    episodes: int = 64
    max_steps: int = 4500
    target: str = "data"
    held_out: int = 512

    @property
    def label(self) -> str:
        """The arm in a few words."""
        name = f"{self.head}-{self.frequencies}" if self.frequencies is not None else self.head
        words = [name, f"gamma {self.gamma:g}" if self.head == "fourier" else ""]
        words.append(f"{self.layers}x{self.width}" if (self.layers, self.width) != (6, 128) else "")
        words.append(f"{self.share:.0%} of the data" if self.share < 1 else "")
        return ", ".join([word for word in words if word] + [f"seed {self.seed}"])


def target_return(settings: ArmSettings, recording: Recording, data: Trajectories) -> float:
    """Return the score to condition on."""
    if settings.target == "data":
        return float(np.quantile(data.episode_returns, 0.95))
    if settings.target == "paper":
        return find_game(recording.about.game).target
    try:
        return float(settings.target)
    except ValueError:
        raise UserError(f"target must be data, paper or a number, got {settings.target}.") from None


def epoch_steps(contexts: int, batch: int) -> tuple[int, int]:
    """Return the steps of an epoch and of a line of its log; rollouts follow a line, so the last one is made whole.

    >>> epoch_steps(500_000, 512)
    (980, 98)
    """
    steps = math.ceil(contexts / batch)
    every = math.ceil(steps / LINES)
    return every * math.ceil(steps / every), every


def heldout_scores(
    model: DecisionTransformer, data: Trajectories, count: int, bfloat16: bool = False
) -> dict[str, Any]:
    """Return cross-entropy and mean smoothness of next-action distributions on held-out episodes, and a few of them."""
    was_training = model.training
    model.eval()
    losses, measured, shown = [], [], []
    window = data.held_out_windows(count)
    with torch.no_grad(), torch.autocast(data.device.type, torch.bfloat16, enabled=bfloat16):
        for part in zip(*(x.split(64) for x in window), strict=True):
            features = model.read(*part[:4])
            pmf = model.pmf(features)
            kept = part[4] >= 0
            target = part[4].clamp_min(0)
            losses.append(-pmf.gather(-1, target[..., None]).squeeze(-1).clamp_min(1e-12).log()[kept])
            # With all the past there is; after the end of a short episode comes nothing that was ever played.
            each, last = torch.arange(len(kept), device=kept.device), kept.sum(-1) - 1
            latest = pmf[each, last].float().cpu()
            measured.append(smoothness(latest))
            shown.append(torch.cat([latest, part[1][each, last].cpu().float()[:, None]], -1))
    model.train(was_training)
    every = torch.cat(shown)
    few = every[:: max(1, len(every) // 12)][:12]
    return {
        "heldout_loss": float(torch.cat(losses).mean()),
        "smoothness": float(torch.cat(measured).mean()),
        "examples": [{"pmf": [round(p, 5) for p in row[:-1].tolist()], "action": int(row[-1])} for row in few],
    }


def contexts(data: Trajectories, batch: int, seed: int, process: int) -> RandomStream:
    """Return batches of contexts for one process of a training."""
    from accelerate import PartialState

    processes = PartialState().num_processes
    draw = functools.partial(data.sample, batch // processes)
    return RandomStream(draw, seed * processes + process, data.device)


def own_device(device: str) -> torch.device:
    """Return the device of this process: under accelerate, each of many has its own card."""
    if device != "cuda":
        return torch.device(device)
    from accelerate import PartialState

    return PartialState().device


def train_arm(
    recording: Recording,
    settings: ArmSettings,
    folder: Path,
    *,
    data: Trajectories | None = None,
    device: str = "cpu",
    compile: bool = False,
    deadline: float | None = None,
    report: Callable[[float, str], None] | None = None,
) -> dict[str, Any] | None:
    """Train and play; return what was measured, or None where the deadline came first and a checkpoint was left.

    Args:
        recording: what to learn from.
        settings: the arm.
        folder: of checkpoints and logs; the same call continues from them.
        data: the recording on the device, where the caller has it there already.
        device: cpu or cuda, where bfloat16 is used.
        compile: whether to compile the model.
        deadline: value of ``time.monotonic`` at which to stop.
        report: told the fraction done and a few words.
    """
    from safetensors.torch import load_model

    cuda = device.startswith("cuda")
    if cuda:
        torch.backends.cudnn.benchmark = True  # shapes stay, so a search for the fastest convolutions pays
    if data is None:
        data = Trajectories(recording, settings.context, own_device(device), settings.share)
    torch.manual_seed(settings.seed)
    game = find_game(recording.about.game)
    goal = target_return(settings, recording, data)
    sizes = ModelSettings(
        settings.layers,
        settings.heads,
        settings.width,
        settings.context,
        timesteps=min(4096, data.longest),
        return_mean=data.return_mean,
        return_std=data.return_std,
    )
    kind: dict[str, Any] = {"kind": settings.head, "frequencies": settings.frequencies, "gamma": settings.gamma}
    head = action_head(width=settings.width, **kind)
    model = DecisionTransformer(sizes, head, compile=compile)
    steps, every = epoch_steps(settings.samples or len(data), settings.batch)
    training = Training(
        model,
        lambda process: contexts(data, settings.batch, settings.seed, process),
        TrainingSettings(
            folder,
            batch=settings.batch,
            steps=steps * settings.epochs,
            learning_rate=settings.learning_rate,
            schedule="cosine",
            betas=(0.9, 0.95),
            decay=0.1,
            precision="bf16" if cuda else "no",
            checkpoint_every=60.0,
            log_every=every,
            graph=cuda,
        ),
        device,
    )
    path = folder / EVALUATIONS
    evaluations: dict[str, dict[str, Any]] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    if training.accelerator.is_main_process:
        describe_agent(folder, sizes, kind, recording.about, goal)
    alone = training.accelerator.num_processes == 1  # of many processes only the first plays, and must not leave them

    def evaluate(epoch: int) -> None:
        played = play(
            model,
            recording.about,
            target=goal,
            episodes=settings.episodes,
            seed=settings.seed,
            max_steps=settings.max_steps,
            bfloat16=cuda,
            deadline=deadline if alone else None,
        )
        scores = _scores(played, epoch, settings.epochs)
        evaluations[str(epoch)] = scores | heldout_scores(model, data, settings.held_out, cuda)
        write_atomically(path, json.dumps(evaluations))

    def line(entry: dict[str, float]) -> None:
        epoch, rest = divmod(int(entry["step"]), steps)
        if rest == 0:
            evaluate(epoch)
        if report is not None:
            done = max((int(e) for e in evaluations), default=0)
            score = f"return {evaluations[str(done)]['return']:.1f}" if done else f"loss {entry['loss']:.3f}"
            report(entry["progress"], f"{entry['samples_per_second']:.0f} contexts/s, {score}")

    begin = time.monotonic()
    unplayed, spent = _left_behind(folder, training.folder, steps)
    try:
        if unplayed and str(unplayed) not in evaluations and training.accelerator.is_main_process:
            load_model(model, str(training.folder / WEIGHTS))
            evaluate(unplayed)
        if deadline is not None:  # only now: catching up on an epoch takes a while
            training.settings = replace(training.settings, limit=max(0.01, deadline - time.monotonic()))
        finished = training.run(line)
    except OutOfTime:
        finished = False
        if training.step:  # it is at the end of an epoch, which the next call plays; else the old checkpoint stays
            training.save()
    spent = round(spent + time.monotonic() - begin, 1)
    if training.accelerator.is_main_process:
        write_atomically(folder / CLOCK, json.dumps(spent))
    if not finished:
        return None
    training.accelerator.wait_for_everyone()
    evaluations = json.loads(path.read_text(encoding="utf-8"))  # only the first process plays
    rates = [entry["samples_per_second"] for entry in training.history]
    return {
        "game": game.name,
        "target_return": goal,
        "parameters": sum(p.numel() for p in model.parameters()),
        "transitions": len(data),
        "steps_per_epoch": steps,
        "contexts_per_second": statistics.median(rates) if rates else None,
        "seconds": spent,
        "evaluations": [evaluations[key] for key in sorted(evaluations, key=int)],
    }


def _left_behind(folder: Path, checkpoint: Path, steps: int) -> tuple[int, float]:
    """Return the epoch at whose end an earlier call stopped, 0 for none, and the seconds that all of them took."""
    recover_folder(checkpoint)
    if not (checkpoint / STATE).exists():
        return 0, 0.0
    epoch, rest = divmod(torch.load(checkpoint / STATE, map_location="cpu", weights_only=True)["step"], steps)
    clock = folder / CLOCK
    return (0 if rest else epoch), json.loads(clock.read_text(encoding="utf-8")) if clock.exists() else 0.0


def _scores(played: Played, epoch: int, epochs: int) -> dict[str, Any]:
    seed, actions = played.best()
    return {
        "epoch": epoch,
        "return": float(played.returns.mean()),
        "returns": [float(r) for r in played.returns],
        "made": float(played.made.mean()),
        "length": float(played.lengths.mean()),
        "cut": played.cut,
        "rollout_steps_per_second": round(played.steps_per_second, 1),
        "rollout_seconds": round(played.seconds, 2),
        "replay": {"seed": seed, "actions": actions} if epoch == epochs else None,
    }
