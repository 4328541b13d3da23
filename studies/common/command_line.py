"""The command of a study, made from its `Settings`: options, errors in one sentence, and the table at the end."""

from __future__ import annotations

import dataclasses
import inspect
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

import typer

from fourier_head.commands import clear_errors, parameter
from fourier_head.errors import require
from fourier_head.tasks.engine import Report
from studies.common.options import study_folder

if TYPE_CHECKING:
    from rich.console import Console

    from studies.common.report.summary import Summary


def study_command(name: str, module: str, help: str, needs: tuple[str, ...] = ()) -> Any:
    """Return the command of a study: its options are the fields of the module's `Settings`, its work is `run`.

    Args:
        name, help: as the command has them.
        module: of the study.
        needs: packages of the extra `transformers` that must be there.
    """
    study = import_module(module)
    fields = study.Settings.options()

    def call(**given: Any) -> None:
        for one in fields:
            if one.metadata["quick"] is not None and given[one.name] is None:
                given[one.name] = one.metadata["quick"] if given["quick"] else one.default
        with clear_errors():
            settings = study.Settings(**given)
        with study_errors(settings.output, given.get("checkpoints")) as (out, progress):
            require("transformers", *needs)
            summary = study.run(settings, progress)
            if summary is not None:
                tell(out, summary, settings.output)

    hints = get_type_hints(study.Settings)
    call.__signature__ = inspect.Signature([_parameter(name, one, hints[one.name]) for one in fields])  # type: ignore[attr-defined]
    app = typer.Typer(add_completion=False)
    app.command(name, help=help)(call)
    return typer.main.get_command(app)


def _parameter(study: str, one: dataclasses.Field[Any], kind: Any) -> inspect.Parameter:
    """Return a field as a parameter of a function that typer reads; not given, --quick decides what it is."""
    if one.name == "output":
        own, quick = (study_folder(study, quick) for quick in (False, True))
        return parameter(one, Path | None, shown=f"{own}; with --quick, {quick}")
    return parameter(one, kind) if one.metadata["quick"] is None else parameter(one, kind | None).replace(default=None)


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


def in_lines(label: str, write: Callable[[str], object] | None = None, every: float = 10.0) -> Report:
    """Return a reporter that prints a line now and then, to stderr unless told how."""
    last = [-every]

    def tell(fraction: float, words: str) -> None:
        now = time.monotonic()
        if now - last[0] >= every or fraction >= 1:
            last[0] = now
            line = f"{label}, {fraction:.0%}: {words}"
            print(line, file=sys.stderr, flush=True) if write is None else write(line)

    return tell
