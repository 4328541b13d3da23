"""Options of a study, declared once: a field of its `Settings` is an option of its command and a word of the command
that repeats it."""

from __future__ import annotations

import dataclasses
import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from rich.console import Console

from fourier_head import commands
from fourier_head.errors import UserError
from fourier_head.tasks.engine import Engine, Task, deadline_after, run_tasks
from fourier_head.tasks.runs import RunStore
from studies.common.report.summary import Row, Summary
from studies.common.results import write_results

RESULTS, QUICK_RESULTS = Path("results"), Path("results-quick")
SILENT = Console(quiet=True)
"""Where a study tells how far it is when nobody asked."""


def study_folder(study: str, quick: bool) -> Path:
    """Return the folder that a study writes unless told otherwise.

    >>> study_folder("tempo", quick=False).as_posix(), study_folder("tempo", quick=True).as_posix()
    ('results/tempo', 'results-quick/tempo')
    """
    return (QUICK_RESULTS if quick else RESULTS) / study


def option(
    default: Any = dataclasses.MISSING,
    help: str = "",
    *flags: str,
    shown: str | None = None,
    quick: Any = None,
    told: bool = True,
    file: bool = False,
    **allowed: Any,
) -> Any:
    """Return a field of `Settings`.

    Args:
        default: its value unless given; an option without one must be given.
        help: what the command says about it.
        flags: how it is written, `--name` unless given.
        shown: what the command says is its default, where that is not the value itself.
        quick: its default with `--quick`.
        told: whether the command that repeats a study names it; where it runs and for how long is the reader's affair.
        file: whether it may name a file or folder, which the command names by its last part.
        allowed: what it may be, `low` and `high` of numbers or `choices`.
    """
    shown = shown if quick is None else f"{default}; with --quick, {quick}"
    return commands.option(default, help, *flags, shown=shown, told=told, quick=quick, file=file, **allowed)


def device(default: str = "auto", told: bool = False, choices: Sequence[str] = ()) -> Any:
    return option(default, "cpu, cuda, or auto: cuda where there is one.", told=told, choices=choices)


def time_limit() -> Any:
    return option(None, "Stop after so many seconds; the same command goes on.", shown="none", told=False)


def workers(default: int | None, help: str, shown: str | None = None) -> Any:
    return option(default, help, low=1, shown=shown, told=False)


def summarise() -> Any:
    return option(False, "Train nothing; write what finished runs say.", told=False)


@dataclass(frozen=True)
class Study(commands.Options):
    """What every study can be told: where to write, and to measure less; its `Settings` add fields made by `option`."""

    study: ClassVar[str]
    output: Path = option(None, "Folder to write.", "--output", "-o")
    quick: bool = option(False, "Measure less, for a first look, into results-quick/.", by_name=True)
    begun: float = field(init=False, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.output is None:  # a quick look never replaces full results
            object.__setattr__(self, "output", study_folder(self.study, self.quick))
        object.__setattr__(self, "begun", time.monotonic())

    @classmethod
    def options(cls) -> list[dataclasses.Field[Any]]:
        """Return the fields, those that studies share last but for the folder."""
        shared = {one.name for one in dataclasses.fields(TaskStudy)} - {"output"}
        return sorted((one for one in dataclasses.fields(cls) if one.init), key=lambda one: one.name in shared)

    @property
    def elapsed(self) -> float:
        """Seconds since these settings were made."""
        return time.monotonic() - self.begun

    def write(self, rows: Sequence[Row], *, quick: str, **more: Any) -> Summary:
        """Write the folder of this study, see `write_results`.

        Args:
            rows: what was measured.
            quick: what a quick look has less of.
            more: runs, charts, notes and the like; `seconds` unless it is the time since these settings were made.
        """
        seconds = more.pop("seconds", self.elapsed)
        quick_look = quick if self.quick else None
        return write_results(self.output, rows, command=self.command, seconds=seconds, quick=quick_look, **more)

    @property
    def command(self) -> str:
        """The command that anyone can type: options at their defaults are left out, and where files are.

        The folder to write is named where it is not the study's own: results that vary a study must not replace it. One
        outside of the working directory goes by its last part, as nobody else has what lies above.
        """
        words = ["python -m studies", self.study]
        for one in self.options():
            value, flag = getattr(self, one.name), one.name.replace("_", "-")
            if one.name == "output" or not one.metadata["told"] or value is None:
                continue
            if isinstance(value, Path):
                value = one.name.upper()
            elif one.metadata["file"] and Path(value).exists():
                value = Path(value).name
            if isinstance(value, bool) and value != one.default:
                words.append(f"--{flag}" if value else f"--no-{flag}")
            elif value != one.default:
                words.append(f"--{flag} {shlex.quote(str(value))}")
        place, here = self.output.resolve(), Path.cwd().resolve()
        if place != study_folder(self.study, self.quick).resolve():
            name = place.relative_to(here).as_posix() if place.is_relative_to(here) else place.name
            words.append(f"-o {shlex.quote(name)}")
        return " ".join(words)


@dataclass(frozen=True, kw_only=True)
class TaskStudy(Study):
    """A study of independent tasks, which run here or on a cluster, are kept, and stop at a time limit."""

    time_limit: float | None = time_limit()
    engine: Engine = option("local", "Where runs go: local, or ray (cluster named by RAY_ADDRESS).", told=False)

    @cached_property
    def deadline(self) -> float | None:
        """When to begin no more tasks, counted from the first time it is asked."""
        return deadline_after(self.time_limit)

    @property
    def store(self) -> RunStore:
        """Where finished tasks are kept until all are."""
        return RunStore(self.output)

    def finish(
        self, tasks: Sequence[Task], console: Console, title: str = "runs", *, all_of_them: bool = False
    ) -> list[tuple[Task, Any]]:
        """Return the tasks that are finished, now or before, with their results.

        Args:
            tasks: to run as far as the time limit allows; what is under way then is finished.
            console: told how far they are.
            title: what they are called.
            all_of_them: whether nothing can be said before all are finished.
        """
        found = run_tasks(
            tasks,
            self.store,
            engine=self.engine,
            console=console,
            title=title,
            workers=getattr(self, "workers", 1),
            deadline=self.deadline,
        )
        kept = [(task, result) for task, result in zip(tasks, found, strict=True) if result is not None]
        if not kept or (all_of_them and len(kept) < len(tasks)):
            which = f"all {title} are" if all_of_them else f"the first of the {title} is"
            raise UserError(
                f"--time-limit {self.time_limit:g} is over before {which} finished; the same command goes on with them."
            )
        return kept


def parse_counts(text: str, name: str, least: int = 1, most: int | None = None) -> tuple[int, ...]:
    """Return the whole numbers of a list with ranges, in order and each once.

    >>> parse_counts("0,2,4-6", "--in-context", 0)
    (0, 2, 4, 5, 6)
    """
    found: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        try:
            found += range(int(first), int(last if dash else first) + 1)
        except ValueError:
            raise UserError(f"{name} must be numbers and ranges such as 2,4,8 or 1-12, got {text!r}.") from None
    if not found or min(found) < least or (most is not None and max(found) > most):
        upper = "on" if most is None else f"to {most}"
        raise UserError(f"{name} must be numbers from {least} {upper}, got {text!r}.")
    return tuple(sorted(set(found)))
