"""The command `study first-user`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from studies.common.command_line import Device, Quick, folder_option, study_errors, tell
from studies.common.folders import study_folder


def first_user(
    output: Annotated[Path | None, folder_option("first-user")] = None,
    model: Annotated[str, typer.Option(help="Forecaster of the package, or a folder.")] = "small",
    series: Annotated[int, typer.Option(min=1, help="Series of each case.")] = 5,
    device: Device = "auto",
    quick: Quick = False,
) -> None:
    """Beyond the paper: what a first user tries on a forecaster: outliers, rare demand, long seasons, three values."""
    output = study_folder("first-user", quick, output)
    given = dict(locals())  # the options, by the names that Settings has for them
    with study_errors(output) as (out, progress):
        from studies.first_user.study import Settings, run

        tell(out, run(Settings(**given), progress), output)
