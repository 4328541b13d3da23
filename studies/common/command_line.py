"""What the commands of all studies share: options, errors in one sentence, and the table at the end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fourier_head.command_errors import clear_errors
from studies.common.folders import study_folder

if TYPE_CHECKING:
    from rich.console import Console

    from studies.common.report.summary import Summary

Quick = Annotated[bool, typer.Option("--quick", help="Measure less, for a first look, into results-quick/.")]
EngineName = Annotated[
    str, typer.Option("--engine", help="Where runs go: local, or ray (cluster named by RAY_ADDRESS).")
]
TimeLimit = Annotated[
    float | None, typer.Option(help="Stop after so many seconds; the same command goes on.", show_default="none")
]

Device = Annotated[str, typer.Option(help="cpu, cuda, or auto: cuda where there is one.")]
Summarise = Annotated[bool, typer.Option("--summarise", help="Train nothing; write what finished runs say.")]


def folder_option(study: str) -> Any:
    """Return the option that names the folder of a study; its default depends on ``--quick``."""
    full, quick = (study_folder(study, quick=quick).as_posix() for quick in (False, True))
    return typer.Option("--output", "-o", help="Folder to write.", show_default=f"{full}; with --quick, {quick}")


@contextmanager
def study_errors(output: Path, runs: Path | None = None) -> Iterator[tuple[Console, Console]]:
    """Yield consoles for results and for progress; turn errors into one sentence, and say what an interrupt keeps.

    Args:
        output: folder of the results; that it cannot be written is said before anything runs.
        runs: folder beside which finished runs are kept, that of the results unless given.
    """
    with clear_errors():
        from rich.console import Console

        from fourier_head._files import check_writable
        from fourier_head.tasks.runs import PARTIAL

        check_writable(output)
        try:
            yield Console(highlight=False), Console(stderr=True, highlight=False)
        except KeyboardInterrupt:
            kept = len(list(((runs or output) / PARTIAL).glob("*.json")))
            what = f"{kept} finished runs are kept; the same command goes on from there" if kept else "nothing was kept"
            typer.echo(f"studies: interrupted; {what}.", err=True)
            raise typer.Exit(130) from None


def tell(console: Console, summary: Summary, output: Path) -> None:
    """Print the rows that have a value of the paper beside ours, the notes, and where everything was written."""
    from rich.table import Table

    from studies.common.report.tables import describe, number_text

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
    whose = summary.extra.get("seconds_of")  # earlier calls count there, so that this one took less
    took = f"; {whose} added up took" if whose else " in"
    console.print(f"\nWrote {output}/{took} {summary.seconds:.1f} s.", markup=False)
