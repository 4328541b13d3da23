"""The command `study zero-shot`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from studies.common.command_line import Device, EngineName, Quick, TimeLimit, folder_option, study_errors, tell
from studies.common.folders import study_folder


def zero_shot(
    evaluation: Annotated[Path, typer.Option(help="Folder of evaluation sets, parquet files in the Chronos format.")],
    output: Annotated[Path | None, folder_option("zero-shot")] = None,
    horizon: Annotated[
        int | None,
        typer.Option(min=1, help="Values held out of sets that are none of the benchmark.", show_default="none"),
    ] = None,
    published: Annotated[Path | None, typer.Option(help="CSV of published scores to set beside ours.")] = None,
    gift: Annotated[
        Path | None, typer.Option(help="Folder of GIFT-Eval: a download of it, or configurations rebuilt.")
    ] = None,
    model: Annotated[str, typer.Option(help="Forecaster of the package, or a folder.")] = "small",
    t5: Annotated[Path | None, typer.Option(help="Folder of a T5 forecaster, to compare scores and speed.")] = None,
    corpus: Annotated[
        Path | None, typer.Option(help="Training series, packed or a folder: trains variants of the recipe.")
    ] = None,
    variants: Annotated[
        str | None, typer.Option(help="Variants to train, separated by commas.", show_default="all")
    ] = None,
    steps: Annotated[int, typer.Option(min=1, help="Of each variant.")] = 3000,
    batch: Annotated[int, typer.Option(min=1, help="Windows per step of a variant.")] = 1024,
    seeds: Annotated[int, typer.Option(min=1, help="Of each variant.")] = 1,
    workers: Annotated[int, typer.Option(min=1, help="Variants trained at a time.")] = 1,
    device: Device = "auto",
    time_limit: TimeLimit = None,
    quick: Quick = False,
    engine: EngineName = "local",
) -> None:
    """Beyond the paper: a forecaster that gives a density per step in one pass, on series it never saw."""
    output = study_folder("zero-shot", quick, output)
    given = dict(locals())  # the options, by the names that Settings has for them
    with study_errors(output) as (out, progress):
        from studies.zero_shot.study import Settings, run

        settings = Settings(**given | {"variants": variants.split(",") if variants else None})
        tell(out, run(settings, progress), output)
