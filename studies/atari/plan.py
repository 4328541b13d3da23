"""Which arms the study trains, and in which order: what is left when time is up should be whole comparisons."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fourier_head.errors import UserError
from studies.atari.agent import AgentSettings
from studies.atari.collection import CollectSettings
from studies.atari.games import find_game
from studies.atari.training import ArmSettings
from studies.common.results import command_line

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
class Settings:
    """What the command line sets.

    Args:
        games: separated by commas, or "all".
        frequencies: N of the Fourier arms: numbers, "paper" for its grid, "auto" for a part of it on Seaquest and a
            smaller one on the other games.
        seeds: how many, None for four on Seaquest and two on the others.
        samples: contexts of an epoch, None for one per transition as in the paper.
        epochs, batch, episodes, target: as in ``ArmSettings``.
        transitions, steps: what to collect where there is no recording yet, and from how many steps of an agent.
        ablations: whether to train without regulariser, smaller models and on less data, too, on the first game.
        ablated: N of the Fourier heads of the ablations: numbers, or "auto" for 14 where it is among the others.
        packets: whether to train Fourier heads with packets, too, which are not the paper's.
        data: folder of recordings, checkpoints and finished runs.
        output: folder of results.
        device: cpu or cuda.
        compile: whether to compile the model, None for on a GPU.
        workers: arms trained at once, each in its own process.
        time_limit: seconds after which to stop at a checkpoint; the same command goes on.
        summarise: train nothing, write the results of the runs that are there.
        quick: a toy size.
    """

    games: str = "all"
    frequencies: str = "auto"
    seeds: int | None = None
    samples: int | None = None
    epochs: int = 5
    batch: int = 512
    episodes: int = 64
    target: str = "data"
    transitions: int = 500_000
    steps: int = 5_000_000
    ablations: bool = True
    ablated: str = "auto"
    packets: bool = False
    data: Path = Path("scratch/atari")
    output: Path = Path("results/atari")
    device: str = "cpu"
    compile: bool | None = None
    workers: int = 1
    time_limit: float | None = None
    summarise: bool = False
    quick: bool = False

    @property
    def command(self) -> str:
        """The command that repeats this study."""
        shown = vars(self) | {"time_limit": None, "summarise": False, "workers": None}
        words = command_line("atari", shown, vars(Settings()))
        return words if self.ablations else f"{words} --no-ablations".replace(" --ablations False", "")

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
        return _numbers(self.frequencies, "--frequencies must be auto, paper or numbers from 1 up")

    def middles(self, game: str) -> tuple[int, ...]:
        """Return N of the ablations."""
        if self.ablated != "auto":
            return _numbers(self.ablated, "--ablated must be auto or numbers from 1 up")
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
            game, self.data / game, self.transitions, self.steps, device=self.device, limit=limit
        )
        if not self.quick:
            return settings
        agent = AgentSettings(rollout=16, epochs=1, minibatches=2)
        toy: dict[str, Any] = {"transitions": 900, "steps": 1800, "environments": 8, "shard": 300, "max_frames": 600}
        return dataclasses.replace(settings, agent=agent, **toy)

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


def _numbers(text: str, expected: str) -> tuple[int, ...]:
    """Return the numbers of a list; raise what was expected instead."""
    try:
        numbers = tuple(int(word) for word in text.split(","))
    except ValueError:
        numbers = ()
    if not numbers or min(numbers) < 1:
        raise UserError(f"{expected}, got {text!r}.")
    return numbers


def arms(settings: Settings, game: str) -> list[ArmSettings]:
    """Return the arms of a game in the order in which to train them."""
    base, chosen = settings.base, settings.chosen_frequencies(game)
    first = game == settings.chosen_games[0]
    middles = settings.middles(game)

    def fourier(n: int, gamma: float, **more: Any) -> ArmSettings:
        return dataclasses.replace(base, head="fourier", frequencies=n, gamma=gamma, **more)

    found = []
    for seed in range(settings.chosen_seeds(game)):
        found.append(dataclasses.replace(base, seed=seed))
        found += [fourier(n, GAMMA, seed=seed) for n in chosen]
        if settings.packets:
            found.append(dataclasses.replace(base, head="fourier_packets", frequencies=middles[-1], seed=seed))
        if first and settings.ablations:
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
