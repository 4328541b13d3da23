"""The command ``fourier-head forecast``: parse, call, print."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fourier_head.command_errors import clear_errors
from fourier_head.errors import UserError


def forecast(
    data: Annotated[
        Path | None, typer.Argument(help="CSV, parquet or xlsx file, or a folder of them.", show_default=False)
    ] = None,
    horizon: Annotated[int, typer.Option(help="Steps ahead.")] = 24,
    freq: Annotated[
        str | None, typer.Option(help="Frequency, such as h, D, W, ME, QE.", show_default="from the timestamps")
    ] = None,
    id: Annotated[
        str | None, typer.Option(help="Column that names the series; several with commas.", show_default="guessed")
    ] = None,
    time: Annotated[str | None, typer.Option(help="Column of timestamps.", show_default="guessed")] = None,
    target: Annotated[
        str | None, typer.Option("--target", "-t", help="Column to forecast.", show_default="guessed")
    ] = None,
    fill: Annotated[
        float | None, typer.Option(help="Value of steps without a row, such as 0.", show_default="missing")
    ] = None,
    aggregate: Annotated[
        str | None, typer.Option(help="Of several rows for one step: sum or mean.", show_default="an error")
    ] = None,
    backtest: Annotated[
        int | None,
        typer.Option(min=1, help="Also forecast so many windows of the past, and say how good that was."),
    ] = None,
    levels: Annotated[str, typer.Option(help="Levels of the quantiles.")] = "0.025,0.1,0.25,0.5,0.75,0.9,0.975",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Folder to write.", show_default="forecast-<name of the data>")
    ] = None,
    model: Annotated[str, typer.Option(help="Forecaster of the package, or a folder with one.")] = "small",
    format: Annotated[str, typer.Option(help="Of the table: csv or parquet.")] = "csv",
    charts: Annotated[int, typer.Option(help="Fan charts at most.")] = 12,
    device: Annotated[str | None, typer.Option(help="cpu or cuda.", show_default="a GPU where there is one")] = None,
    engine: Annotated[
        str, typer.Option(help="Where files of a folder go: local, or ray (cluster named by RAY_ADDRESS).")
    ] = "local",
    example: Annotated[bool, typer.Option("--example", help="Forecast four made-up series.")] = False,
) -> None:
    """Forecast series without training: quantiles as a table, fan charts, and a page with both."""
    with clear_errors():
        from rich.console import Console

        from fourier_head.cli.forecasting.job import (
            Settings,
            forecast_folder,
            forecast_one,
            guesses_of_files,
            parse_levels,
        )
        from fourier_head.cli.forecasting.page import count_files

        if (data is None) != example:
            raise UserError("give one file or folder to forecast, or --example.")
        if device not in (None, "cpu", "cuda"):
            raise UserError(f"--device must be cpu or cuda, got {device}.")
        settings = Settings(
            data,
            output,
            horizon,
            freq,
            id,
            time,
            target,
            parse_levels(levels),
            model,
            format,
            charts,
            device,
            fill,
            aggregate,
            backtest,
        )
        out, err = Console(highlight=False), Console(stderr=True, highlight=False)
        if data is not None and data.is_dir():
            try:
                rows = forecast_folder(settings, engine, err)
            except KeyboardInterrupt:
                typer.echo(
                    "fourier-head: interrupted; the same command goes on after the last finished file.", err=True
                )
                raise typer.Exit(130) from None
            bad = [row for row in rows if row.get("error")]
            for line in guesses_of_files(rows):
                err.print(f"fourier-head: {line}", markup=False, soft_wrap=True)
            for row in rows:
                for line in [row["error"]] if row.get("error") else [f"{row['name']}: {n}" for n in row["notes"]]:
                    err.print(f"fourier-head: {line}", markup=False, soft_wrap=True)
            if len(bad) < len(rows):
                failed = f"; {count_files(len(bad))} failed" if bad else ""
                done = count_files(len(rows) - len(bad))
                out.print(f"Wrote {settings.folder / 'index.html'}: {done}{failed}.", markup=False, soft_wrap=True)
            if bad:
                raise typer.Exit(2)
            return
        if engine not in ("local", "ray"):
            raise UserError(f"--engine must be one of local, ray, got {engine}.")
        with err.status("forecasting"):
            result = forecast_one(settings)
        for note in filter(None, [result["guessed"], *result["notes"]]):
            err.print(f"fourier-head: {note}", markup=False, soft_wrap=True)
        steps = "1 step" if horizon == 1 else f"{horizon} steps"
        out.print(
            f"{result['series']:,} series ({result['timing']}), {steps} in {result['seconds']:.1f} s.\n"
            + (f"{result['backtest']}\n" if result["backtest"] else "")
            + f"Wrote {settings.folder / 'index.html'}.",
            markup=False,
            soft_wrap=True,
        )
