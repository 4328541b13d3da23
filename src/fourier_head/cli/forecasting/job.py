"""The job behind ``fourier-head forecast``: one file into one folder, or every file of a folder into one each."""

from __future__ import annotations

import csv
import functools
import re
import time
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fourier_head._files import RESULTS, check_replaceable, replacing
from fourier_head.cli.forecasting.settings import Settings
from fourier_head.errors import UserError
from fourier_head.forecasting.dates import DateWarning
from fourier_head.forecasting.inputs import read_series
from fourier_head.forecasting.series_set import SeriesSet
from fourier_head.pages.words import listed
from fourier_head.table_files import SUFFIXES, kind_of, read_frame

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console

    from fourier_head.forecasting.backtest import Backtest
    from fourier_head.forecasting.forecaster import Forecaster
    from fourier_head.forecasting.results import Forecasts

TOOL = "fourier-head forecast"
BACKTEST = "backtest.csv"


@functools.lru_cache(maxsize=2)
def _forecaster(model: str, device: str | None) -> Forecaster:
    from fourier_head._devices import chosen_device
    from fourier_head.forecasting.forecaster import Forecaster

    # Chosen here, so that a device that is not there is told by the name of the option.
    return Forecaster.from_pretrained(model, None if device is None else chosen_device(device))


def forecast_one(settings: Settings) -> dict[str, Any]:
    """Forecast one file and write its folder, whole or not at all; return what the index and the terminal say."""
    frame, name = _table(settings.data)
    check_replaceable(settings.folder.resolve(), TOOL, "forecast")
    forecaster = _forecaster(settings.model, settings.device)
    begin = time.perf_counter()
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", UserWarning)
            series = read_series(
                frame,
                freq=settings.freq,
                id=_columns(settings.id, frame),
                time=settings.time,
                target=settings.target,
                aggregate=settings.aggregate,
                fill=settings.fill,
            )
            forecasts = forecaster.predict(series, settings.horizon)
            backtest = forecaster.backtest(series, settings.horizon, settings.backtest) if settings.backtest else None
        table = forecasts.to_frame(settings.levels)
    except ValueError as error:
        raise UserError(f"{name}: {in_flags(str(error))}") from None
    seconds = time.perf_counter() - begin
    notes = [*frame.attrs.get("notes", ()), *map(in_flags, series.notes)]
    notes += [str(one.message) for one in caught if _is_for_users(one)]
    if not series.timed and settings.time is None:
        season = "" if settings.freq else " and no season is assumed"
        notes.append(f"no dates were found, so steps are numbered{season}; name the column of dates with --time.")
    guessed = None if settings.data is None else guesses(series)
    kinds = Counter("unknown" if c is None else c.freq for c in forecasts.series.calendars)
    summary = {
        "tool": TOOL,
        "command": settings.command,
        "name": name,
        "series": len(forecasts),
        "horizon": settings.horizon,
        "frequency": ", ".join(kinds) if len(kinds) < 5 else f"{len(kinds)} kinds",
        "timing": forecasts.series.timing,
        "model": settings.model,
        "seconds": seconds,
        "guessed": guessed,
        "notes": notes,
        "rules": forecasts.rules.used if forecasts.rules else {},
        "backtest": None if backtest is None else backtest.words,
        "columns": list(table.columns),
    }
    with replacing(settings.folder, TOOL, "forecast") as stage:
        _write(stage, forecasts, forecaster, table, settings, summary, backtest)
    return summary


def guesses(series: SeriesSet) -> str | None:
    """Return in a sentence what was made of a table without being told, None where nothing was.

    >>> import pandas as pd
    >>> table = pd.DataFrame({"day": ["2024-01-01", "2024-01-02"], "sold": [3, 4]})
    >>> guesses(read_series(table))
    "guessed target 'sold', time 'day', frequency D; name others with --target, --time, --freq."
    >>> guesses(read_series(table, freq="D", target="sold"))
    "guessed time 'day'; name others with --time."
    """
    parts = []
    for option, found in series.guessed.items():
        some = [found] if isinstance(found, str) else found
        # As the options take them: several names are one id.
        some = [_as_option(some)] if option == "id" else some
        parts.append(
            f"frequency {listed(some, 5)}" if option == "freq" else f"{option} {listed(list(map(repr, some)), 5)}"
        )
    if not parts:
        return None
    return f"guessed {', '.join(parts)}; name others with {', '.join(f'--{option}' for option in series.guessed)}."


def _columns(text: str | None, frame: pd.DataFrame) -> list[str] | None:
    """Return the columns that an option names: one, or several with commas, those with a comma of their own quoted."""
    if text is None or text in frame.columns:
        return None if text is None else [text]
    return [part.strip() for part in next(csv.reader([text], skipinitialspace=True), [])]


def _as_option(columns: Sequence[str]) -> str:
    """Return columns as `_columns` reads them.

    >>> _as_option(["store", "City, State"]), _as_option(["City, State"])
    ('store,"City, State"', 'City, State')
    """
    quoted = ['"' + column.replace('"', '""') + '"' if re.search('[,"]', column) else column for column in columns]
    return columns[0] if len(columns) == 1 else ",".join(quoted)


def in_flags(sentence: str) -> str:
    """Return a sentence of the library as the command says it.

    >>> in_flags("give fill=0, or aggregate='sum', or name them as id.")
    'give --fill 0, or --aggregate sum, or name them as --id.'
    """
    sentence = re.sub(r"\b(id|time|target|freq|fill|aggregate)=('?)([^'=]+?)\2(?=[ ,.;)]|$)", r"--\1 \3", sentence)
    return re.sub(r"\b(as|its|another) (id|target|freq)\b", r"\1 --\2", sentence)


def guesses_of_files(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return what was guessed of several files, each guess once with the file it was first made of.

    >>> guesses_of_files([{"name": n, "guessed": "guessed target 'y'."} for n in ("a.csv", "b.csv", "c.csv")])
    ["a.csv and 2 more: guessed target 'y'."]
    """
    files: dict[str, list[str]] = {}
    for row in rows:
        if row.get("guessed"):
            files.setdefault(row["guessed"], []).append(row["name"])
    return [f"{listed(names, most=1)}: {guess}" for guess, names in files.items()]


def _is_for_users(warning: warnings.WarningMessage) -> bool:
    said = str(warning.message)
    return issubclass(warning.category, DateWarning) or "hold no value" in said or said.startswith("the network reads")


def _table(path: Path | None) -> tuple[pd.DataFrame, str]:
    if path is None:
        from fourier_head.cli.forecasting.example import example

        return example(), "the built-in example"
    return read_frame(path), path.name


def _write(
    stage: Path,
    forecasts: Forecasts,
    forecaster: Forecaster,
    table: pd.DataFrame,
    settings: Settings,
    summary: dict[str, Any],
    backtest: Backtest | None,
) -> None:
    """Write table, charts, page and the list of files."""
    from fourier_head.cli.forecasting import fan, page
    from fourier_head.pages.drawing import save_png
    from fourier_head.tasks.runs import hardware, to_json

    target = forecasts.series.target
    label = "" if target is None or target.casefold() in ("value", "target", "y") else target
    fans = fan.panels(forecasts, settings.charts, label)
    file = f"forecasts.{settings.format}"
    if settings.format == "csv":
        table.to_csv(stage / file, index=False, float_format="%.10g")
    else:
        table.to_parquet(stage / file, index=False)
    (stage / "charts").mkdir()
    for name, chart in fan.charts(fans):
        save_png(chart, stage / "charts" / f"{name}.png")
    count = sum(p.numel() for p in forecaster.model.parameters())
    about = {
        "title": f"Forecast of {summary['name']}",
        "table": file,
        "model": f"A patch transformer of {count / 1e6:.1f} million parameters with a Fourier head",
        "seconds": summary["seconds"],
        "hardware": hardware(forecaster.device.type == "cuda"),
        "command": settings.command,
        "backtest": None if backtest is None else page.section(backtest, BACKTEST),
    }
    (stage / "index.html").write_text(page.build(forecasts, fans, about), encoding="utf-8")
    files = [RESULTS, file, "charts", "index.html"]
    if backtest is not None:
        backtest.to_frame().to_csv(stage / BACKTEST, index=False, float_format="%.6g")
        files.append(BACKTEST)
    (stage / RESULTS).write_text(to_json({**summary, "files": files}, indent=1), encoding="utf-8")


# --- folders of files


def files_of(folder: Path) -> list[Path]:
    """Return the tables of a folder, by name."""
    found = sorted(
        path
        for path in folder.iterdir()
        if path.is_file() and not path.name.startswith(".") and kind_of(path) in SUFFIXES
    )
    if not found:
        raise UserError(f"{folder} holds no file that ends in {', '.join(SUFFIXES)}.")
    return found


def forecast_file(source: str, output: str, options: dict[str, Any], stamp: Sequence[float]) -> dict[str, Any]:
    """Forecast one file of a folder, here or on a cluster; a bad file gives its sentence instead of a result.

    ``stamp`` is the size and date of the file: it makes a changed file a new task.
    """
    options = {**options, "levels": tuple(options["levels"])}
    settings = Settings(data=Path(source), output=Path(output), **options)
    try:
        return {**forecast_one(settings), "folder": settings.folder.name}
    except UserError as error:
        return {"name": Path(source).name, "error": str(error)}


def forecast_folder(settings: Settings, console: Console | None = None) -> list[dict[str, Any]]:
    """Forecast every file of a folder into a folder of its own, and write a page over all; finished files are kept."""
    from fourier_head._files import write_atomically
    from fourier_head.cli.forecasting import page
    from fourier_head.tasks.engine import Task, run_tasks
    from fourier_head.tasks.runs import PARTIAL, RunStore, to_json

    assert settings.data is not None
    output, data = settings.folder.resolve(), settings.data.resolve()
    if output == data or output in data.parents:
        raise UserError(f"--output must name a folder of its own, got {settings.folder}, which holds the data.")
    if not (output / PARTIAL).exists():
        check_replaceable(output, TOOL, "forecast")
    sources = files_of(settings.data)
    # A model that is not there is one sentence, not one for every file.
    _forecaster(settings.model, settings.device)
    stems = Counter(path.name.split(".")[0] for path in sources)
    left_out = ("data", "output", "engine")  # none of them changes what is written
    options = {one.name: getattr(settings, one.name) for one in fields(settings) if one.name not in left_out}
    options["levels"] = list(settings.levels)
    if Path(settings.model).exists():
        options["model"] = str(Path(settings.model).resolve())
    tasks, names = [], []
    for path in sources:
        stem = path.name.split(".")[0]
        names.append(stem if stems[stem] == 1 else path.name)
        state = path.stat()
        task = {
            "source": str(path.resolve()),
            "output": str(output / names[-1]),
            "options": options,
            "stamp": [state.st_size, state.st_mtime],
        }
        tasks.append(Task(forecast_file, task, path.name))
    store = RunStore(output)
    rows = run_tasks(tasks, store, engine=settings.engine, console=console, title="files")
    good = [name for name, row in zip(names, rows, strict=True) if not row.get("error")]
    store.clear()
    if not good:
        if output.is_dir() and not any(output.iterdir()):
            output.rmdir()
        return rows
    write_atomically(output / "index.html", page.index(f"Forecasts of {settings.data.name}", rows, settings.command))
    listed = {"tool": TOOL, "command": settings.command, "rows": rows, "files": [RESULTS, "index.html", *good]}
    write_atomically(output / RESULTS, to_json(listed, indent=1))
    return rows
