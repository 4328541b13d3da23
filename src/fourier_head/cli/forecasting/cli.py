"""What ``fourier-head forecast`` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fourier_head.cli.forecasting.settings import Settings

if TYPE_CHECKING:
    from rich.console import Console


def forecast(settings: Settings) -> None:
    """Forecast series without training: quantiles as a table, fan charts, and a page with both."""
    from rich.console import Console

    from fourier_head.cli.forecasting.job import forecast_one

    out, err = Console(highlight=False, soft_wrap=True), Console(stderr=True, highlight=False, soft_wrap=True)
    if settings.data is not None and settings.data.is_dir():
        _folder(settings, out, err)
        return
    with err.status("forecasting"):
        result = forecast_one(settings)
    for note in filter(None, [result["guessed"], *result["notes"]]):
        err.print(f"fourier-head: {note}", markup=False)
    steps = "1 step" if settings.horizon == 1 else f"{settings.horizon} steps"
    out.print(
        f"{result['series']:,} series ({result['timing']}), {steps} in {result['seconds']:.1f} s.\n"
        + (f"{result['backtest']}\n" if result["backtest"] else "")
        + f"Wrote {settings.folder / 'index.html'}.",
        markup=False,
    )


def _folder(settings: Settings, out: Console, err: Console) -> None:
    import typer

    from fourier_head.cli.forecasting.job import forecast_folder, guesses_of_files
    from fourier_head.cli.forecasting.page import count_files

    try:
        rows = forecast_folder(settings, err)
    except KeyboardInterrupt:
        typer.echo("fourier-head: interrupted; the same command goes on after the last finished file.", err=True)
        raise typer.Exit(130) from None
    bad = [row for row in rows if row.get("error")]
    lines = guesses_of_files(rows)
    for row in rows:
        lines += [row["error"]] if row.get("error") else [f"{row['name']}: {note}" for note in row["notes"]]
    for line in lines:
        err.print(f"fourier-head: {line}", markup=False)
    if len(bad) < len(rows):
        failed = f"; {count_files(len(bad))} failed" if bad else ""
        done = count_files(len(rows) - len(bad))
        out.print(f"Wrote {settings.folder / 'index.html'}: {done}{failed}.", markup=False)
    if bad:
        raise typer.Exit(2)
