"""The command ``fourier-head``; what its commands do lives in their packages."""

from __future__ import annotations

import sys
from typing import Annotated

from fourier_head.errors import needs_extra
from fourier_head.version import __version__

try:
    import typer
except ModuleNotFoundError as error:
    # Only the core is installed; nothing below can be defined without typer.
    print(f"fourier-head: {needs_extra(error)}", file=sys.stderr)
    raise SystemExit(2) from None

from fourier_head.cli.forecasting.cli import forecast
from fourier_head.cli.forecasting.settings import Settings as ForecastSettings
from fourier_head.commands import command
from fourier_head.compare import Settings as CompareSettings

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


app.command("compare")(command(CompareSettings, compare))
app.command("forecast")(command(ForecastSettings, forecast))


def main() -> None:
    """Run the command."""
    app()
