"""What a comparison shows in a terminal: progress while it trains, a table when it is done."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from fourier_head.compare.results import Result, table
from fourier_head.pages.style import HEADS


@contextmanager
def progress_bars(console: Console, heads: tuple[str, ...]) -> Iterator[Callable[[str, int, int, float], None]]:
    """Yield what advances a bar for each head; they appear when training begins, so that errors stand alone."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=28),
        TextColumn("{task.percentage:>3.0f}%"),
        TextColumn("{task.fields[score]}", justify="right"),
        TimeElapsedColumn(),
        TimeRemainingColumn(compact=True),
    )
    # Lines printed meanwhile go above the bars in a terminal, and to the file or pipe that stdout is otherwise.
    redirect = sys.stdout.isatty()
    bars = Progress(*columns, console=console, transient=console.is_terminal, redirect_stdout=redirect)
    width = max(len(HEADS[name].label) for name in heads)
    tasks: dict[str, TaskID] = {}

    def advance(head: str, done: int, total: int, score: float) -> None:
        if not tasks:
            for name in heads:
                tasks[name] = bars.add_task(HEADS[name].label.ljust(width), total=total, start=False, score="")
            bars.start()
        if bars.tasks[tasks[head]].start_time is None:
            bars.start_task(tasks[head])
        text = f"validation NLL {score:.3f}" if math.isfinite(score) else ""
        bars.update(tasks[head], completed=done, score=text)

    try:
        yield advance
    finally:
        if tasks:
            bars.stop()


def show_table(console: Console, result: Result) -> None:
    """Print the table, the best scores in bold."""
    headings, lines = table(result)
    grid = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    grid.add_column("Head", no_wrap=True)
    for heading in headings:
        grid.add_column(heading, justify="right", no_wrap=True)
    for line in lines:
        style = HEADS[line.name].light if line.name else "dim italic"
        texts = [Text(text, style="bold" if bold else "") for text, bold in zip(line.texts, line.bold, strict=True)]
        grid.add_row(Text(line.label, style=style), *texts, style="" if line.name else "dim italic")
    console.print(grid)
