"""Running tasks: each once, whatever interrupts; here and on Ray."""

import io
import os
import time

import pytest
import torch

from fourier_head.errors import UserError
from fourier_head.tasks.engine import Task, deadline_after, run_tasks
from fourier_head.tasks.runs import RunStore

CALLS = []


def square(x, report=None, fail_at=None, error=RuntimeError):
    CALLS.append(x)
    if report is not None:
        report(0.5, "half way")
    if x == fail_at:
        raise error("stopped")
    return {"x": x, "square": x * x}


def tasks(**resources):
    return [Task(square, {"x": x}, f"square {x}", resources=resources) for x in range(6)]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_a_stopped_study_goes_on_where_it_was(tmp_path, error):
    CALLS.clear()
    store = RunStore(tmp_path)
    with pytest.raises(error, match="stopped"):
        run_tasks(tasks(fail_at=3, error=error), store)
    assert CALLS == [0, 1, 2, 3]
    assert len(list(store.folder.iterdir())) == 3
    got = run_tasks(tasks(), store)
    assert CALLS == [0, 1, 2, 3, 3, 4, 5]  # the three that were finished did not run again
    assert got == [{"x": x, "square": x * x} for x in range(6)]
    assert run_tasks(tasks(), store) == got
    assert len(CALLS) == 7


def test_results_keep_the_order_of_tasks_when_some_were_done_before(tmp_path):
    store = RunStore(tmp_path)
    run_tasks(tasks()[4:5], store)
    assert [r["x"] for r in run_tasks(tasks(), store)] == list(range(6))


def test_progress_tells_what_was_finished_before(tmp_path):
    console = pytest.importorskip("rich.console").Console(file=io.StringIO(), width=100)
    store = RunStore(tmp_path)
    run_tasks(tasks()[:2], store)
    several = [Task(square, {"x": 7}, "seven", reports=True), *tasks()]
    run_tasks(several, store, console=console, title="squares")
    told = console.file.getvalue()
    assert "2 of 7 squares were finished before" in told
    assert "7 of 7" in told


class WithoutUnfinished(RunStore):
    """Keeps no result that says it is unfinished."""

    def put(self, label, settings, result):
        return result if result["square"] > 4 else super().put(label, settings, result)


def test_progress_counts_what_is_finished(tmp_path):
    console = pytest.importorskip("rich.console").Console(file=io.StringIO(), width=100)
    run_tasks(tasks(), WithoutUnfinished(tmp_path), console=console)
    told = console.file.getvalue()
    assert "3 of 6" in told
    assert "6 of 6" not in told


def threads(x):
    return {"x": x, "process": os.getpid(), "threads": torch.get_num_threads()}


def test_processes_share_the_tasks_and_the_cores(tmp_path):
    several = [Task(threads, {"x": x}, f"task {x}") for x in range(4)]
    got = run_tasks(several, RunStore(tmp_path), workers=2)
    assert [r["x"] for r in got] == [0, 1, 2, 3]
    assert {r["threads"] for r in got} == {max(1, os.cpu_count() // 2)}
    assert os.getpid() not in {r["process"] for r in got}


@pytest.mark.parametrize("workers", [1, 2])
def test_nothing_is_begun_after_the_deadline_and_what_is_finished_stays(tmp_path, workers):
    store = RunStore(tmp_path)
    run_tasks(tasks()[:2], store)
    late = run_tasks(tasks(), store, workers=workers, deadline=deadline_after(-1.0))
    assert [r and r["x"] for r in late] == [0, 1, None, None, None, None]
    assert [r["x"] for r in run_tasks(tasks(), store, deadline=deadline_after(600.0))] == list(range(6))


def test_unknown_engines_are_refused(tmp_path):
    with pytest.raises(UserError, match=r"--engine must .*got slurm"):
        run_tasks(tasks(), RunStore(tmp_path), engine="slurm")


def test_ray_missing_names_the_extra(tmp_path, monkeypatch):
    import importlib

    real = importlib.import_module

    def without_ray(name, *rest):
        if name == "ray":
            raise ModuleNotFoundError("No module named 'ray'", name="ray")
        return real(name, *rest)

    monkeypatch.setattr(importlib, "import_module", without_ray)
    with pytest.raises(UserError, match=r"fourier-head\[ray\]"):
        run_tasks(tasks(), RunStore(tmp_path), engine="ray")


def test_ray_address_that_does_not_answer_is_told_at_once(tmp_path, monkeypatch):
    pytest.importorskip("ray", reason="ray is not installed")
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    with pytest.raises(UserError, match="does not answer"):
        run_tasks(tasks(), RunStore(tmp_path), engine="ray")


def power(base, exponent):
    return {"value": base**exponent}


def fails_for_three(base, exponent):
    if base == 3:
        raise ValueError("three is not wanted")
    return {"value": base**exponent}


@pytest.mark.slow
def test_ray_gives_what_local_gives_and_resumes(tmp_path):
    ray = pytest.importorskip("ray", reason="ray is not installed")
    some = [Task(power, {"base": b, "exponent": 2}, f"power {b}", cpus=0.5) for b in range(4)]
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)
    try:
        got = run_tasks(some, RunStore(tmp_path / "ray"), engine="ray")
        assert got == run_tasks(some, RunStore(tmp_path / "local"))
        broken = [Task(fails_for_three, {"base": b, "exponent": 2}, f"broken {b}", cpus=1) for b in range(4)]
        store = RunStore(tmp_path / "broken")
        with pytest.raises(ValueError, match="three is not wanted"):
            run_tasks(broken, store, engine="ray")
        assert [store.get(t.label, t.settings) for t in broken[:3]] == [{"value": b * b} for b in range(3)]
    finally:
        ray.shutdown()


@pytest.mark.parametrize("workers", [1, 2])
def test_after_the_deadline_nothing_is_started_and_what_is_there_counts(tmp_path, workers):
    store = RunStore(tmp_path)
    run_tasks(tasks()[1:2], store)
    got = run_tasks(tasks()[:3], store, workers=workers, deadline=time.time() - 1)
    assert got == [None, {"x": 1, "square": 1}, None]
    assert None not in run_tasks(tasks()[:3], store, deadline=time.time() + 60)
