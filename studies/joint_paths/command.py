"""The command `study joint-paths`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from studies.common.command_line import Device, Quick, folder_option, study_errors, tell
from studies.common.folders import study_folder


def joint_paths(
    evaluation: Annotated[
        Path | None, typer.Option(help="Folder of evaluation sets, parquet files in the Chronos format.")
    ] = None,
    corpus: Annotated[
        Path | None,
        typer.Option(help="Training series instead: those held out are scored, and show what dependence is usual."),
    ] = None,
    output: Annotated[Path | None, folder_option("joint-paths")] = None,
    model: Annotated[str, typer.Option(help="Forecaster of the package, or a folder.")] = "small",
    most: Annotated[int, typer.Option(min=1, help="Series of each set, spread over it.")] = 200,
    paths: Annotated[int, typer.Option(min=20, help="Drawn of each series.")] = 1000,
    device: Device = "auto",
    quick: Quick = False,
) -> None:
    """Beyond the paper: coverage of sums over the horizon, energy and variogram scores of whole paths."""
    output = study_folder("joint-paths", quick, output)
    given = dict(locals())  # the options, by the names that Settings has for them
    with study_errors(output) as (out, progress):
        from studies.joint_paths.study import Settings, run

        tell(out, run(Settings(**given), progress), output)
