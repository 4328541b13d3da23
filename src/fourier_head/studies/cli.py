"""The commands `fourier-head study ...`: parse, call, print. What the studies do lives in their modules."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from fourier_head.report.summary import Summary

app = typer.Typer(help="Repeat the experiments of the paper; each writes results/<study>/.", no_args_is_help=True)

Quick = Annotated[bool, typer.Option("--quick", help="Measure less, for a first look.")]
EngineName = Annotated[
    str, typer.Option("--engine", help="Where runs go: local, or ray (cluster named by RAY_ADDRESS).")
]


@contextmanager
def study_errors(output: Path) -> Iterator[tuple[Console, Console]]:
    """Yield consoles for results and for progress; turn errors into one sentence, and say what an interrupt keeps."""
    from fourier_head.cli import clear_errors

    with clear_errors():
        from rich.console import Console

        from fourier_head.studies.results import PARTIAL

        try:
            yield Console(highlight=False), Console(stderr=True, highlight=False)
        except KeyboardInterrupt:
            kept = len(list((output / PARTIAL).glob("*.json")))
            what = f"{kept} finished runs are kept; the same command goes on from there" if kept else "nothing was kept"
            typer.echo(f"fourier-head: interrupted; {what}.", err=True)
            raise typer.Exit(130) from None


def tell(console: Console, summary: Summary, output: Path) -> None:
    """Print the rows that have a value of the paper beside ours, the notes, and where everything was written."""
    from rich.table import Table

    from fourier_head.report.tables import describe, number_text

    grid = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for heading in ("", "metric"):
        grid.add_column(heading)
    for heading in ("ours", "paper"):
        grid.add_column(heading, justify="right")
    for row in summary.compared:
        grid.add_row(describe(row), str(row["metric"]), number_text(row["ours"], row["std"]), number_text(row["paper"]))
    if summary.compared:
        console.print(grid)
    for note in summary.extra.get("notes", ()):
        console.print(f"\n{note}", markup=False)
    console.print(f"\nWrote {output}/ in {summary.seconds:.1f} s.", markup=False)


def report(
    results: Annotated[Path, typer.Argument(help="Folder with the results of the studies.")] = Path("results"),
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Page to write.", show_default="report.html in that folder")
    ] = None,
) -> None:
    """Gather the results of all studies into one page of HTML that needs nothing else."""
    from fourier_head.cli import clear_errors

    with clear_errors():
        from fourier_head.report.page import write_report

        path = write_report(results, output)
        typer.echo(f"Wrote {path} ({path.stat().st_size / 1e6:.1f} MB).")


@app.command()
def smoothness(
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder to write.")] = Path("results/smoothness"),
    trials: Annotated[int, typer.Option(min=2, help="Signals of each colour of noise.")] = 1000,
    seed: Annotated[int, typer.Option(help="Of the noise.")] = 0,
    quick: Quick = False,
    engine: EngineName = "local",
) -> None:
    """Appendix B: square waves and noise from brown to blue under the smoothness metric."""
    with study_errors(output) as (out, progress):
        from fourier_head.studies.smoothness import Settings, run

        settings = Settings(output=output, trials=trials, seed=seed, quick=quick, engine=engine)  # type: ignore[arg-type]
        tell(out, run(settings, progress), output)


@app.command("scaling-law")
def scaling_law(
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder to write.")] = Path("results/scaling-law"),
    synthetic: Annotated[
        Path, typer.Option(help="Results of the study synthetic, whose heads are fitted where they exist.")
    ] = Path("results/synthetic"),
    quick: Quick = False,
    engine: EngineName = "local",
) -> None:
    """Theorem 3.3: smoothness of truncated densities against the number of frequencies, exponents fitted."""
    with study_errors(output) as (out, progress):
        from fourier_head.studies.scaling_law import Settings, run

        settings = Settings(output=output, synthetic=synthetic, quick=quick, engine=engine)  # type: ignore[arg-type]
        tell(out, run(settings, progress), output)


@app.command()
def synthetic(
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder to write.")] = Path("results/synthetic"),
    protocol: Annotated[str, typer.Option(help="released, recommended or both.")] = "both",
    arms: Annotated[str, typer.Option(help="paper: the 276 runs of the paper; all: ours beside them.")] = "all",
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    workers: Annotated[int | None, typer.Option(min=1, help="Processes.", show_default="one per core")] = None,
    quick: Quick = False,
    engine: EngineName = "local",
) -> None:
    """Section 4.1: three known conditional densities, learned with every head and number of frequencies."""
    with study_errors(output) as (out, progress):
        from fourier_head.studies.synthetic.study import Settings, run

        settings = Settings(output, protocol, arms, quick, engine, device, workers)  # type: ignore[arg-type]
        tell(out, run(settings, progress), output)


@app.command()
def likelihood(
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder to write.")] = Path("results/likelihood"),
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    workers: Annotated[int | None, typer.Option(min=1, help="Processes.", show_default="one per core")] = None,
    quick: Quick = False,
    engine: EngineName = "local",
) -> None:
    """Appendix C.3: the synthetic densities again, by maximum likelihood on continuous values."""
    with study_errors(output) as (out, progress):
        from fourier_head.studies.synthetic.likelihood import Settings, run

        settings = Settings(output, quick, engine, device, workers)  # type: ignore[arg-type]
        tell(out, run(settings, progress), output)
