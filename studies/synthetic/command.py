"""The commands `study synthetic` and `study likelihood`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from studies.common.command_line import Device, EngineName, Quick, TimeLimit, folder_option, study_errors, tell
from studies.common.folders import study_folder

Seeds = Annotated[int, typer.Option(min=1, help="Seeds of data and networks, the paper's four first.")]


def synthetic(
    output: Annotated[Path | None, folder_option("synthetic")] = None,
    protocol: Annotated[str, typer.Option(help="released, recommended or both.")] = "both",
    arms: Annotated[
        str, typer.Option(help="paper: the 276 runs of the paper; all: ours beside them; choice: how ours was chosen.")
    ] = "all",
    seeds: Seeds = 4,
    device: Device = "cpu",
    workers: Annotated[int | None, typer.Option(min=1, help="Processes.", show_default="one per core")] = None,
    quick: Quick = False,
    engine: EngineName = "local",
    time_limit: TimeLimit = None,
) -> None:
    """Section 4.1: three known conditional densities, learned with every head and number of frequencies."""
    output = study_folder("synthetic", quick, output)
    with study_errors(output) as (out, progress):
        from studies.synthetic.study import Settings, run

        settings = Settings(output, protocol, arms, seeds, quick, engine, device, workers, time_limit)  # type: ignore[arg-type]
        tell(out, run(settings, progress), output)


def likelihood(
    output: Annotated[Path | None, folder_option("likelihood")] = None,
    seeds: Seeds = 4,
    device: Device = "cpu",
    workers: Annotated[int | None, typer.Option(min=1, help="Processes.", show_default="one per core")] = None,
    quick: Quick = False,
    engine: EngineName = "local",
    time_limit: TimeLimit = None,
) -> None:
    """Appendix C.3: the synthetic densities again, by maximum likelihood on continuous values."""
    output = study_folder("likelihood", quick, output)
    with study_errors(output) as (out, progress):
        from studies.synthetic.likelihood import Settings, run

        settings = Settings(output, seeds, quick, engine, device, workers, time_limit)  # type: ignore[arg-type]
        tell(out, run(settings, progress), output)
