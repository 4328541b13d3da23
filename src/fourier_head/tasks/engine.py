"""Run the independent tasks of a study here or on a Ray cluster; what is finished is kept and never run twice."""

from __future__ import annotations

import importlib
import logging
import os
import re
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from fourier_head.errors import UserError, needing
from fourier_head.tasks.runs import RunStore

if TYPE_CHECKING:
    from rich.console import Console

Engine = Literal["local", "ray"]
ENGINES: tuple[Engine, ...] = ("local", "ray")

Report = Callable[[float, str], None]
"""What a task may call with the fraction done and a few words."""


class TimeUp(Exception):
    """Raised where the time limit of a study is reached; what was finished before stays."""


@dataclass(frozen=True)
class Task:
    """A call `function(**settings)` whose result is JSON; the settings, JSON too, are how a finished task is known.

    Args:
        function: defined at the top of a module, so that a cluster can import it.
        settings: its keyword arguments.
        label: what the progress bar says.
        reports: whether the function takes `report=`, to tell how far it is; on a cluster it is given None.
        resources: further keyword arguments that do not change the result, such as the device.
        cpus, gpus: what a Ray worker reserves for it.
    """

    function: Callable[..., Any]
    settings: Mapping[str, Any]
    label: str
    reports: bool = False
    resources: Mapping[str, Any] = field(default_factory=dict)
    cpus: float = 1.0
    gpus: float = 0.0

    def call(self, report: Report | None = None, deadline: float | None = None) -> Any:
        """Run the task in this process, unless it is too late."""
        if is_over(deadline):
            raise TimeUp
        more = {"report": report} if self.reports else {}
        return self.function(**self.settings, **self.resources, **more)


def deadline_after(seconds: float | None) -> float | None:
    """Return the moment so many seconds from now, as ``run_tasks`` takes it; none without a limit."""
    return None if seconds is None else time.time() + seconds


def is_over(deadline: float | None) -> bool:
    """Tell whether a moment that ``deadline_after`` gave has passed."""
    return deadline is not None and time.time() > deadline


def run_tasks(
    tasks: Sequence[Task],
    store: RunStore,
    *,
    engine: Engine = "local",
    console: Console | None = None,
    title: str = "runs",
    workers: int | None = 1,
    deadline: float | None = None,
) -> list[Any]:
    """Return the results of all tasks in their order, running those that the store does not hold yet.

    After the ``deadline``, a value of ``time.time``, none is started; those left out have None for a result.

    Each result is stored as soon as it is there, so an interruption, a failure or a crash loses only what was under
    way; the same call goes on from there. The local engine runs tasks in this process or, with more than one worker
    (None: one per core), in that many processes.
    """
    if engine not in ENGINES:
        raise UserError(f"--engine must be one of {', '.join(ENGINES)}, got {engine}.")
    results: dict[int, Any] = {}
    for i, task in enumerate(tasks):
        kept = store.get(task.label, task.settings)
        if kept is not None:
            results[i] = kept
    left = [(i, task) for i, task in enumerate(tasks) if i not in results]
    count = min(len(left), workers or os.cpu_count() or 1)
    run = _ray if engine == "ray" else _processes if count > 1 else _local
    with _Bar(console, title, len(tasks), len(results)) as bar:
        for i, result in run(left, bar, count, deadline):
            if result is not None:
                results[i] = store.put(tasks[i].label, tasks[i].settings, result)
            # A store need not keep the result of a task that ran out of time; such a one is not finished.
            bar.ended(kept=result is not None and store.get(tasks[i].label, tasks[i].settings) is not None)
    return [results.get(i) for i in range(len(tasks))]


class _Bar:
    """The progress of all tasks and of the one under way; nothing is shown without a console."""

    def __init__(self, console: Console | None, title: str, total: int, finished: int):
        with needing():
            from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
        if console is not None and finished > 0:
            console.print(f"{finished} of {total} {title} were finished before and are not run again.", markup=False)
        columns = (TextColumn("{task.description}"), BarColumn(bar_width=28), TextColumn("{task.fields[words]}"))
        silent = console is None
        shown = console is not None and console.is_terminal
        self._bars = Progress(*columns, TimeElapsedColumn(), console=console, transient=shown, disable=silent)
        self._count, self._total = finished, total
        self._every = self._bars.add_task(title, total=total, completed=finished, words=f"{finished} of {total}")
        self._single = self._bars.add_task("", total=1.0, words="", visible=False)

    def __enter__(self) -> _Bar:
        self._bars.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bars.stop()

    def start(self, label: str) -> None:
        """Say that a task begins."""
        self._bars.reset(self._single, description=label, words="", visible=True)

    def report(self, fraction: float, text: str) -> None:
        """Say how far the task under way is."""
        self._bars.update(self._single, completed=fraction, words=text)

    def ended(self, kept: bool) -> None:
        """Say that a task has ended, and whether it is finished and kept."""
        self._count += kept
        self._bars.update(self._every, completed=self._count, words=f"{self._count} of {self._total}")
        self._bars.update(self._single, visible=False)


Numbered = list[tuple[int, Task]]
Results = Iterator[tuple[int, Any]]


def _attempt(number: int, task: Task, deadline: float | None, report: Report | None = None) -> tuple[int, Any]:
    """Return the number and the result of a task, None where time was up."""
    with suppress(TimeUp):
        return number, task.call(report, deadline)
    return number, None


def _local(tasks: Numbered, bar: _Bar, count: int, deadline: float | None) -> Results:
    """Yield results one after the other, made in this process."""
    for i, task in tasks:
        bar.start(task.label)
        yield _attempt(i, task, deadline, bar.report)


def _processes(tasks: Numbered, bar: _Bar, count: int, deadline: float | None) -> Results:
    """Yield results as processes of this machine finish them; together they have as many threads as it has cores."""
    with needing():
        from joblib import Parallel, delayed
    bar.start(f"{count} processes")
    work = (delayed(_attempt)(i, task, deadline) for i, task in tasks)
    yield from Parallel(count, return_as="generator_unordered")(work)


def _ray(tasks: Numbered, bar: _Bar, count: int, deadline: float | None) -> Results:
    """Yield results as a Ray cluster finishes them; without RAY_ADDRESS, Ray runs on this machine alone."""
    if not tasks:
        return
    try:
        ray: Any = importlib.import_module("ray")
    except ModuleNotFoundError:
        raise UserError('--engine ray needs ray: install it with pip install "fourier-head[ray]".') from None
    started = not ray.is_initialized()
    if started:
        address = os.environ.get("RAY_ADDRESS")
        _check_answers(address)
        try:
            ray.init(address=address, log_to_driver=False, logging_level=logging.WARNING)
        except (ConnectionError, RuntimeError, ValueError) as error:  # by kind of address and version of Ray
            raise UserError(f"RAY_ADDRESS names no Ray cluster that answers: {str(error).splitlines()[0]}") from None
    waiting: list[Any] = []
    try:
        remote = ray.remote(_attempt)
        for i, task in tasks:
            options = {"num_cpus": task.cpus, "num_gpus": task.gpus, "name": task.label}
            waiting.append(remote.options(**options).remote(i, task, deadline))
        while waiting:
            ready, waiting = ray.wait(waiting, num_returns=1)
            # A failure raises here; what other workers finished in the meantime is lost, what came before is kept.
            yield ray.get(ready[0])
    finally:
        for reference in waiting:
            ray.cancel(reference, force=True)
        if started:
            ray.shutdown()


def _check_answers(address: str | None) -> None:
    """Raise at once where nothing listens at host:port; Ray itself would retry for many minutes."""
    place = re.fullmatch(r"(?:\w+://)?\[?([^\]/]+?)\]?:(\d+)/?", address or "")
    if place is None:  # none, or a word such as auto
        return
    try:
        socket.create_connection((place[1], int(place[2])), timeout=10).close()
    except (OSError, OverflowError) as error:
        raise UserError(f"RAY_ADDRESS must name a Ray cluster, but {address} does not answer: {error}.") from None
