"""Which arms the study trains, and in which order: what is left when time is up should be whole comparisons."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fourier_head.errors import UserError
from studies.atari.collection import CollectSettings
from studies.atari.games import find_game
from studies.atari.training import ArmSettings
from studies.common import options
from studies.common.options import option, parse_counts

PAPER_FREQUENCIES = tuple(range(2, 33, 2))
SOME_FREQUENCIES = (4, 8, 14, 20, 32)
"""The part of the paper's grid that is run on Seaquest where nothing else is asked for."""
FEW_FREQUENCIES = (8, 14, 20, 32)
"""And on the other games."""
MIDDLE = 14
"""The frequencies of the ablations; the paper does not say how many its own had."""
GAMMA = 1e-6
SIZES = ((2, 2, 32), (3, 4, 64), (4, 4, 96))
"""Layers, heads and width of the smaller models in the ablation."""
SHARES = (0.1, 0.25, 0.5)
"""Parts of the data in the ablation."""


@dataclass(frozen=True)
class Settings(options.Study):
    """What to record, train and play; ``quick`` is a toy size."""

    study = "atari"
    # A quick look must not leave short recordings where a full run would take them for its own.
    data: Path = option(
        Path("scratch/atari"),
        "Folder of recordings (made where missing), checkpoints and finished runs.",
        quick=Path("scratch/atari-quick"),
        told=False,
    )
    games: str = option("all", "Games separated by commas, or all.")
    frequencies: str = option("auto", "N separated by commas, paper for its grid, or auto for a part of it.")
    seeds: int | None = option(None, "Of every arm.", shown="4 on Seaquest, 2 on the others", low=1)
    samples: int | None = option(None, "Contexts of an epoch.", shown="one per transition", low=1)
    epochs: int = option(5, "Each is followed by rollouts.", low=1)
    batch: int = option(512, "Contexts of a step.", low=1)
    episodes: int = option(64, "Rollouts after each epoch.", low=1, high=128)
    target: str = option("data", "Return to condition on: data, paper or a number.")
    transitions: int = option(500_000, "To record where there is no recording.", low=1)
    steps: int = option(5_000_000, "Of the recorded agent's training.", low=1)
    ablations: bool = option(True, "Train without regulariser, smaller models and on less data, too.")
    ablated: str = option(
        "auto", "N of smaller models and of those on less data, such as 20,32; auto for 14, and with gamma 0."
    )
    reuse: Path | None = option(None, "runs.json of earlier results, whose runs of planned arms are not trained again.")
    packets: str = option("none", "N of Fourier heads with packets, which are not the paper's, or none.")
    device: str = options.device("cpu", told=True)
    compile: bool | None = option(None, "Compile the model.", shown="on a GPU")
    workers: int = options.workers(1, "Arms trained at once, each in a process.")
    time_limit: float | None = options.time_limit()
    summarise: bool = options.summarise()

    @property
    def chosen_games(self) -> list[str]:
        """Names of the games to study."""
        if self.games == "all":
            names = ["seaquest", "gravitar"] if self.quick else ["seaquest", "bank_heist", "gravitar", "double_dunk"]
        else:
            names = [find_game(name).name for name in self.games.split(",") if name.strip()]
        if not names:
            raise UserError(f"--games must name games separated by commas, got {self.games!r}.")
        return list(dict.fromkeys(names))

    def chosen_frequencies(self, game: str) -> tuple[int, ...]:
        """Return N of the Fourier arms on a game."""
        if self.frequencies == "paper":
            return PAPER_FREQUENCIES
        if self.frequencies == "auto":
            if self.quick:
                return (4, 8) if game == "seaquest" else (8,)
            return SOME_FREQUENCIES if game == "seaquest" else FEW_FREQUENCIES
        return parse_counts(self.frequencies, "--frequencies")

    def middles(self, game: str) -> tuple[int, ...]:
        """Return N of the ablations."""
        if self.ablated != "auto":
            return parse_counts(self.ablated, "--ablated")
        chosen = self.chosen_frequencies(game)
        return (MIDDLE if MIDDLE in chosen else chosen[-1],)

    def chosen_seeds(self, game: str) -> int:
        """Return the number of seeds on a game."""
        if self.seeds is not None:
            return self.seeds
        few, many = (1, 2) if self.quick else (2, 4)
        return many if game == "seaquest" else few

    def collection(self, game: str, limit: float | None) -> CollectSettings:
        """Return what to collect of a game."""
        settings = CollectSettings(
            game=game,
            output=self.data / game,
            transitions=self.transitions,
            steps=self.steps,
            device=self.device,
            limit=limit,
        )
        if not self.quick:
            return settings
        toy: dict[str, Any] = {"transitions": 900, "steps": 1800, "environments": 8, "shard": 300, "max_frames": 600}
        return dataclasses.replace(settings, rollout=16, epochs=1, minibatches=2, **toy)

    @property
    def base(self) -> ArmSettings:
        """What all arms have in common."""
        arm = ArmSettings(
            epochs=self.epochs, samples=self.samples, batch=self.batch, episodes=self.episodes, target=self.target
        )
        if not self.quick:
            return arm
        toy: dict[str, Any] = {"epochs": 2, "samples": 64, "batch": 16, "episodes": 4, "max_steps": 100}
        return dataclasses.replace(arm, layers=2, heads=2, width=32, context=5, held_out=32, **toy)


def arms(settings: Settings, game: str) -> list[ArmSettings]:
    """Return the arms of a game in the order in which to train them."""
    base, chosen = settings.base, settings.chosen_frequencies(game)
    first = game == settings.chosen_games[0]
    middles = settings.middles(game)
    packets = () if settings.packets == "none" else parse_counts(settings.packets, "--packets")

    def fourier(n: int, gamma: float, **more: Any) -> ArmSettings:
        return dataclasses.replace(base, head="fourier", frequencies=n, gamma=gamma, **more)

    found = []
    for seed in range(settings.chosen_seeds(game)):
        found.append(dataclasses.replace(base, seed=seed))
        found += [fourier(n, GAMMA, seed=seed) for n in chosen]
        found += [dataclasses.replace(base, head="fourier_packets", frequencies=n, seed=seed) for n in packets]
        if first and settings.ablations and settings.ablated == "auto":
            found += [fourier(n, 0.0, seed=seed) for n in middles]
    if first and settings.ablations:
        sizes = [{"layers": a, "heads": b, "width": c} for a, b, c in SIZES]
        shares: list[dict[str, Any]] = [{"share": share} for share in SHARES]
        if settings.quick:
            sizes, shares = [{"layers": 1, "heads": 1, "width": 16}], shares[2:]
        for change in [*sizes, *shares]:
            found.append(dataclasses.replace(base, **change))
            found += [fourier(n, GAMMA, **change) for n in middles]
    return found


def rank(arm: ArmSettings, settings: Settings) -> tuple[int, int]:
    """Return the place of an arm among those of all games, less is earlier: main arms seed by seed, then the others."""
    base = settings.base
    if (arm.layers, arm.width, arm.share) != (base.layers, base.width, base.share):
        return 2, arm.seed
    return int(arm.head == "fourier" and not arm.gamma), arm.seed
