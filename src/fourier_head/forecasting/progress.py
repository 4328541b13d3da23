"""How far a forecast is: a bar in a terminal, or a function that is told."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

SOON = 2.0
"""Seconds after which a bar is shown in a terminal unless said otherwise."""

Progress = Callable[[int, int], None]
"""Called with series done and series in all."""


@contextmanager
def counting(progress: bool | Progress | None, total: int) -> Iterator[Callable[[int], None]]:
    """Yield what counts series done: a bar, a callback, or nothing."""
    done = 0
    if callable(progress):

        def count(more: int) -> None:
            nonlocal done
            done += more
            progress(done, total)

        yield count
        return
    wanted = sys.stderr.isatty() if progress is None else progress
    try:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bars
    except ImportError:
        wanted = False
    if not wanted:
        yield lambda more: None
        return
    columns = (
        TextColumn("forecasting"),
        BarColumn(bar_width=28),
        MofNCompleteColumn(),
        TimeRemainingColumn(compact=True),
    )
    bars = Bars(*columns, console=Console(stderr=True), transient=True)
    task = bars.add_task("", total=total)
    begin, shown = time.monotonic(), False
    with ExitStack() as stack:

        def advance(more: int) -> None:
            nonlocal shown
            bars.advance(task, more)
            if not shown and (progress or time.monotonic() - begin > SOON):
                stack.enter_context(bars)
                shown = True

        advance(0)
        yield advance
