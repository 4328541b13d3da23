"""The command ``fourier-head``: parse, call, print. What the commands do lives in their packages."""

from __future__ import annotations

import sys
from pathlib import Path
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
from fourier_head.command_errors import clear_errors

app = typer.Typer(
    name="fourier-head",
    help="Heads for networks that predict numbers, with exact predictive densities.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"fourier-head {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Heads for networks that predict numbers, with exact predictive densities."""


@app.command()
def compare(
    data: Annotated[Path | None, typer.Argument(help="CSV, parquet or Excel file; built-in data if left out.")] = None,
    target: Annotated[str | None, typer.Option("--target", "-t", help="Column to predict.")] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Folder to write.", show_default="compare-<name of the data>")
    ] = None,
    bins: Annotated[int, typer.Option(help="Number of bins of the target.")] = 50,
    frequencies: Annotated[str, typer.Option(help="Frequencies of the Fourier heads, or 'auto'.")] = "auto",
    packets: Annotated[int, typer.Option(help="Wave packets of the head that has them.")] = 2,
    components: Annotated[int, typer.Option(help="Gaussians of the mixture head.")] = 2,
    epochs: Annotated[
        int | None, typer.Option(help="Passes over the training rows.", show_default="from the number of rows")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the split, the first weights and the order of rows.")] = 0,
    seeds: Annotated[int, typer.Option(help="Train this often and report mean and deviation.")] = 1,
    heads: Annotated[
        str, typer.Option(help="Heads to compare, separated by commas.")
    ] = "linear,gmm,hl-gauss,fourier,fourier-packets,fourier-adaptive",
    log: Annotated[bool, typer.Option("--log", help="Predict the logarithm of the target, for skewed ones.")] = False,
    example: Annotated[
        str, typer.Option(help="Built-in data: 'hills', real heights, or 'bimodal', whose true density is known.")
    ] = "hills",
    body: Annotated[
        str,
        typer.Option(help="What heads share: 'network', 'boosting' (trees before it) or 'auto' (tries both)."),
    ] = "network",
    quick: Annotated[bool, typer.Option("--quick", help="Train a tenth as long, for a first look.")] = False,
) -> None:
    """Train the same network with each head and write a report: table, figures, results.json, index.html."""
    with clear_errors():
        from rich.console import Console

        from fourier_head.compare import Settings
        from fourier_head.compare import compare as run
        from fourier_head.compare.settings import parse_frequencies, parse_heads
        from fourier_head.compare.terminal import progress_bars, show_table

        settings = Settings(
            data=data,
            target=target,
            output=output,
            bins=bins,
            frequencies=parse_frequencies(frequencies),
            packets=packets,
            components=components,
            epochs=epochs,
            seed=seed,
            seeds=seeds,
            heads=parse_heads(heads),
            log=log,
            example=example,
            body=body,
            quick=quick,
        )
        out, err = Console(highlight=False), Console(stderr=True, highlight=False)
        with progress_bars(err, settings.heads) as progress:
            result = run(settings, progress, lambda text: out.print(text, markup=False))
        out.print()
        show_table(out, result)
        out.print(f"\nWrote {settings.folder / 'index.html'} in {result.seconds:.0f} s.", markup=False)


app.command()(forecast)


def main() -> None:
    """Run the command."""
    app()
