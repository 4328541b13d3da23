"""The command ``fourier-head`` and what it prints; what its commands do lives in their packages."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

from fourier_head.errors import needs_extra
from fourier_head.version import __version__

try:
    import typer
except ModuleNotFoundError as error:
    # Only the core is installed; nothing below can be defined without typer.
    print(f"fourier-head: {needs_extra(error)}", file=sys.stderr)
    raise SystemExit(2) from None

from fourier_head.cli.forecasting.settings import Settings as ForecastSettings
from fourier_head.commands import command
from fourier_head.compare import Settings as CompareSettings

if TYPE_CHECKING:
    from rich.console import Console

ABOUT = "Heads for networks that predict numbers, with exact predictive densities."
app = typer.Typer(
    name="fourier-head", help=ABOUT, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"fourier-head {__version__}")
        raise typer.Exit


@app.callback(help=ABOUT)
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Take the options of the program itself."""


def compare(settings: CompareSettings) -> None:
    """Train the same network with each head and write a report: table, figures, results.json, index.html."""
    from rich.console import Console

    from fourier_head.compare import compare as run
    from fourier_head.compare.terminal import progress_bars, show_table

    out, err = Console(highlight=False), Console(stderr=True, highlight=False)
    with progress_bars(err, settings.heads) as progress:
        result = run(settings, progress, lambda text: out.print(text, markup=False))
    out.print()
    show_table(out, result)
    out.print(f"\nWrote {settings.folder / 'index.html'} in {result.seconds:.0f} s.", markup=False)


def forecast(settings: ForecastSettings) -> None:
    """Forecast series without training: quantiles as a table, fan charts, and a page with both."""
    from rich.console import Console

    from fourier_head.cli.forecasting.job import forecast_one

    out, err = Console(highlight=False, soft_wrap=True), Console(stderr=True, highlight=False, soft_wrap=True)
    if settings.data is not None and settings.data.is_dir():
        _forecast_folder(settings, out, err)
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


def _forecast_folder(settings: ForecastSettings, out: Console, err: Console) -> None:
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


app.command("compare")(command(CompareSettings, compare))
app.command("forecast")(command(ForecastSettings, forecast))


def main() -> None:
    """Run the command."""
    app()
