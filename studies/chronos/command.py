"""The command `study forecasting`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from studies.common.command_line import Device, Quick, Summarise, TimeLimit, folder_option, study_errors, tell
from studies.common.folders import study_folder


def forecasting(
    output: Annotated[Path | None, folder_option("forecasting")] = None,
    arms: Annotated[
        str | None,
        typer.Option(
            help="Groups (paper, ablations, ours, sizes, data) and arms such as linear, fourier-550, fourier-64-free, "
            "fourier-550@size=tiny, linear@data=0.1; separated by commas.",
            show_default="paper; with --quick, linear,fourier-16",
        ),
    ] = None,
    corpus: Annotated[
        Path | None,
        typer.Option(
            help="Packed series, or a folder of parquet and arrow files.", show_default="artificial series only"
        ),
    ] = None,
    evaluation: Annotated[Path | None, typer.Option(help="Folder of evaluation sets.")] = None,
    horizon: Annotated[
        int | None,
        typer.Option(min=1, help="Values held out of sets that are none of the benchmark.", show_default="none"),
    ] = None,
    published: Annotated[
        Path | None, typer.Option(help="Table of published scores to stand beside ours.", show_default="none")
    ] = None,
    checkpoints: Annotated[Path, typer.Option(help="Folder of models and finished runs, to go on from.")] = Path(
        "scratch/forecasting"
    ),
    seconds: Annotated[float, typer.Option(min=1, help="Of training, for each arm.")] = 480.0,
    steps: Annotated[
        int | None, typer.Option(min=1, help="Of training, for each arm, in place of seconds.", show_default="none")
    ] = None,
    limit: TimeLimit = None,
    size: Annotated[str, typer.Option(help="Of the models: 1m, 3m, 5m, tiny, mini, small or base.")] = "mini",
    context: Annotated[int, typer.Option(min=2, max=8192, help="Tokens that a model reads: values and EOS.")] = 512,
    batch: Annotated[int, typer.Option(min=2, help="Windows of a step.")] = 512,
    learning_rate: Annotated[float, typer.Option(help="At its peak.")] = 1e-3,
    recipe: Annotated[str, typer.Option(help="Mixture of the corpus: standard, chronos or plain.")] = "standard",
    average: Annotated[
        float,
        typer.Option(
            help="Score an average of the weights that forgets half in this share of the steps; 0 for the last ones."
        ),
    ] = 0.0,
    embedding: Annotated[
        str, typer.Option(help="How embeddings of tokens start: smooth along the bins, or noise as in T5.")
    ] = "smooth",
    positions: Annotated[
        str, typer.Option(help="Where attention looks at the start: near by, or anywhere (noise) as in T5.")
    ] = "near",
    init: Annotated[
        float,
        typer.Option(help="Factor of the deviations of all weights at the start, 1 in T5 and 0.05 in Chronos."),
    ] = 0.15,
    sampling: Annotated[
        str,
        typer.Option(
            help="How sample paths are drawn: spread over what may happen, trimmed (the same without the outermost "
            "percent on either side), plain, or chronos (the 50 likeliest ids)."
        ),
    ] = "trimmed",
    seeds: Annotated[int, typer.Option(min=1, help="Repetitions of every arm.")] = 1,
    max_series: Annotated[
        int | None, typer.Option(min=1, help="Series of each evaluation set.", show_default="all")
    ] = None,
    device: Device = "auto",
    summarise: Summarise = False,
    quick: Quick = False,
) -> None:
    """Section 6: forecasters after Chronos, linear and Fourier heads at equal budget."""
    output = study_folder("forecasting", quick, output)
    given = dict(locals())  # the options, by the names that Settings has for them
    with study_errors(output, checkpoints) as (out, progress):
        from studies.chronos.study import Settings, run

        settings = Settings(**given)
        summary = run(settings, progress)
        if summary is not None:
            tell(out, summary, output)
