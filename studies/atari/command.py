"""The command `study atari`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from studies.common.command_line import Device, Quick, Summarise, TimeLimit, folder_option, study_errors, tell
from studies.common.folders import study_folder


def atari(
    output: Annotated[Path | None, folder_option("atari")] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            help="Folder of recordings (made where missing), checkpoints and finished runs.",
            show_default="scratch/atari, or scratch/atari-quick",
        ),
    ] = None,
    games: Annotated[str, typer.Option(help="Games separated by commas, or all.")] = "all",
    frequencies: Annotated[str, typer.Option(help="N separated by commas, paper for its grid, or auto.")] = "auto",
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Of every arm.", show_default="4 on Seaquest, 2 on the others")
    ] = None,
    samples: Annotated[
        int | None, typer.Option(min=1, help="Contexts of an epoch.", show_default="one per transition")
    ] = None,
    epochs: Annotated[int, typer.Option(min=1, help="Each is followed by rollouts.")] = 5,
    batch: Annotated[int, typer.Option(min=1, help="Contexts of a step.")] = 512,
    episodes: Annotated[int, typer.Option(min=1, max=128, help="Rollouts after each epoch.")] = 64,
    target: Annotated[str, typer.Option(help="Return to condition on: data, paper or a number.")] = "data",
    transitions: Annotated[int, typer.Option(min=1, help="To record where there is no recording.")] = 500_000,
    steps: Annotated[int, typer.Option(min=1, help="Of the recorded agent's training.")] = 5_000_000,
    ablations: Annotated[
        bool, typer.Option(help="Train without regulariser, smaller models and on less data, too.")
    ] = True,
    ablated: Annotated[str, typer.Option(help="N of the ablations' Fourier heads, such as 20,32, or auto.")] = "auto",
    packets: Annotated[bool, typer.Option("--packets", help="Train Fourier heads with packets, too.")] = False,
    device: Device = "cpu",
    compile: Annotated[bool | None, typer.Option(help="Compile the model.", show_default="on a GPU")] = None,
    workers: Annotated[int, typer.Option(min=1, help="Arms trained at once, each in a process.")] = 1,
    time_limit: TimeLimit = None,
    summarise: Summarise = False,
    quick: Quick = False,
) -> None:
    """Section 5: Decision Transformers on Atari games, linear and Fourier heads on data we collect."""
    output = study_folder("atari", quick, output)
    # A quick look must not leave short recordings where a full run would take them for its own.
    data = data or Path("scratch/atari-quick" if quick else "scratch/atari")
    given = dict(locals())  # the options, by the names that Settings has for them
    with study_errors(output) as (out, progress):
        from studies.atari.plan import Settings
        from studies.atari.study import run

        settings = Settings(**given)
        summary = run(settings, progress)
        if summary is not None:
            tell(out, summary, output)
