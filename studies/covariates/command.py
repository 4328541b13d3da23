"""The command `study covariates`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from studies.common.command_line import Device, Quick, folder_option, study_errors, tell
from studies.common.folders import study_folder


def covariates(
    data: Annotated[Path, typer.Option(help="Folder of training sets, parquet files in the Chronos format.")],
    output: Annotated[Path | None, folder_option("covariates")] = None,
    model: Annotated[str, typer.Option(help="Forecaster of the package, or a folder.")] = "small",
    windows: Annotated[int, typer.Option(min=1, help="Windows of each series.")] = 6,
    device: Device = "auto",
    quick: Quick = False,
) -> None:
    """Beyond the paper: weather and holidays beside the series, with and without them and by gradient boosting."""
    output = study_folder("covariates", quick, output)
    given = dict(locals())  # the options, by the names that Settings has for them
    with study_errors(output) as (out, progress):
        from studies.covariates.study import Settings, run

        tell(out, run(Settings(**given), progress), output)
