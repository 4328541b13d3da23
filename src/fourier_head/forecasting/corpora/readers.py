"""Read series from parquet and arrow files and from folders of them."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fourier_head.errors import UserError, did_you_mean, needing
from fourier_head.forecasting.calendars import Calendar
from fourier_head.forecasting.corpora.store import SeriesStore
from fourier_head.forecasting.frequency import natural_period

if TYPE_CHECKING:
    import pyarrow as pa

LEFT_OUT: dict[str, dict[str, str]] = {
    "astsa_monthly": {"unemp": "M1 monthly MND32 and M3 monthly N2756, a tenth of it"},
    "aus_livestock": {
        "Bulls, bullocks and steers|Victoria": "M4 yearly Y12348, hundreds",
        "Cows and heifers|Victoria": "M4 yearly Y12349, hundreds",
        "Cattle (excl. calves)|Tasmania": "M4 yearly Y12350, hundreds",
        "Cattle (excl. calves)|Western Australia": "M4 yearly Y12352, hundreds",
        "Sheep|New South Wales": "M4 yearly Y12353, thousands",
        "Sheep|Tasmania": "M4 yearly Y12354, hundreds",
        "Lambs|Western Australia": "M4 yearly Y12355, thousands",
    },
    "aus_retail": {
        "A3349434X": "M4 quarterly Q2092, tenths",
        "A3349641R": "M4 quarterly Q8407, tenths",
        "A3349658K": "M4 quarterly Q1962, tenths",
    },
    "fred_monthly": {"EXCHUS": "M4 yearly Y21617, means of years in thousandths"},
    "tsdl_monthly": {
        "tsdl_17_1": "M1 yearly YAD14, means of years",
        "tsdl_62_1": "M1 quarterly QND30 and M3 quarterly N1394, means of quarters",
        "tsdl_102_1": "M1 monthly MNI91",
        "tsdl_151_1": "M1 monthly MNI91",
        "tsdl_361_1": "Saugeen by months, as in GIFT-Eval",
        "tsdl_434_1": "M1 monthly MRI4, thousands",
        "tsdl_455_1": "M3 monthly N1876, thirtieths",
    },
    "us_employment_monthly": {"CEU3000000001": "M4 yearly Y11766, an index of it"},
}
"""Series that are never read to train on, by data set and ``id``: each holds values of the test series named beside it,
in another unit, rounded or summed (``results/zero-shot/leaks-before.json``)."""

_SUFFIXES = (".parquet", ".arrow", ".feather")
_SHARD = re.compile(r"^(data|train|test|validation)?[-_]?\d+([-_]of[-_]\d+)?$")


def read_store(
    paths: str | Path | Iterable[str | Path], *, target: str = "target", freq: str | None = None
) -> SeriesStore:
    """Read parquet and arrow files, or folders of them, into one store; a file or folder of shards is one data set.

    One row is one series. Columns: `target` (list of numbers, oldest first, missing as null or NaN; a list of lists is
    one series per inner list), and what says the frequency: `freq` (pandas alias), or `timestamp` (list), whose spacing
    is looked at; else the argument `freq`, else it is unknown; and `id`, by which `LEFT_OUT` names series that are test
    data. Other columns are ignored. A file that `SeriesStore.save` wrote may be named too. Series of a single value are
    left out.
    """
    paths = [paths] if isinstance(paths, str | Path) else list(paths)
    parts: list[SeriesStore] = []
    for name, files in _data_sets(paths):
        if files[0].suffix == ".safetensors":
            parts.append(SeriesStore.load(files[0]))
            continue
        for file in files:
            rows = read_rows(file, target=target, freq=freq, without=LEFT_OUT.get(name, ()))
            if not np.isfinite(rows.values).any():
                raise UserError(f"the column {target!r} of {file} holds no finite value.")
            index = np.zeros(len(rows.lengths), np.int64)
            periods = np.array([natural_period(one) for one in rows.freqs])
            parts.append(SeriesStore.from_flat(rows.values, rows.lengths, index, periods, (name,)))
    store = join(parts)
    keep = (store.lengths > 1).nonzero().flatten()
    if len(keep) == 0:
        raise UserError("no series has 2 values or more.")
    return store if len(keep) == len(store) else store.select(keep)


class Rows(NamedTuple):
    """The series of a file, end to end, and what it says of each.

    Args:
        values: of all series, float32, NaN where missing.
        lengths: of the series.
        freqs: pandas alias of each, None where unknown.
        ids, starts: of each, empty where the file does not say.
        columns: series that one row holds at most.
    """

    values: np.ndarray
    lengths: np.ndarray
    freqs: list[str | None]
    ids: list[str]
    starts: list[str]
    columns: int

    def series(self) -> list[np.ndarray]:
        """Return them one by one (views)."""
        return np.split(self.values, np.cumsum(self.lengths)[:-1])


def read_rows(file: Path, *, target: str = "target", freq: str | None = None, without: Container[str] = ()) -> Rows:
    """Read one parquet or arrow file, see `read_store`; rows whose id is in `without` are left out."""
    table = _read_table(file, target)
    import pyarrow as pa

    if "id" in table.column_names and without:
        table = table.filter(pa.array([str(one) not in without for one in table.column("id").to_pylist()]))
    if table.num_rows == 0:
        raise UserError(f"{file} holds no rows.")
    parent, lengths, flat = _flatten(table.column(target), str(file), target)
    if (shape := f"{target}._np_shape") in table.column_names:
        # GluonTS writes an array of several dimensions flat, its shape in a second column.
        per_row = [int(np.prod(s.as_py()[:-1])) if s.is_valid else 1 for s in table.column(shape)]
        parent = np.repeat(parent, per_row)
        lengths = np.repeat(lengths // np.maximum(per_row, 1), per_row)
    try:
        values = flat.cast(pa.float64()).to_numpy(zero_copy_only=False)
    except pa.ArrowException:
        raise UserError(f"the column {target!r} of {file} must be lists of numbers, got {flat.type}.") from None
    with np.errstate(over="ignore"):
        values = values.astype(np.float32)
    values = np.where(np.isfinite(values), values, np.float32(np.nan))
    freqs = _frequencies(table, freq)

    def text(column: str) -> list[str]:
        each = table.column(column).to_pylist() if column in table.column_names else [""] * table.num_rows
        return ["" if each[row] is None else str(each[row]) for row in parent]

    columns = int(np.bincount(parent).max(initial=1))
    return Rows(values, lengths, [freqs[row] for row in parent], text("id"), text("start"), columns)


def join(stores: Sequence[SeriesStore]) -> SeriesStore:
    """Return one store of all series (on the CPU); data sets of the same name become one."""
    if not stores:
        raise UserError("no files with series were named.")
    names = list(dict.fromkeys(n for s in stores for n in s.names))
    place = {n: i for i, n in enumerate(names)}
    return SeriesStore.from_flat(
        np.concatenate([s.values.cpu().numpy() for s in stores]),
        np.concatenate([s.lengths.cpu().numpy() for s in stores]),
        np.concatenate([np.array([place[n] for n in s.names])[s.set_index.cpu().numpy()] for s in stores]),
        np.concatenate([s.period.cpu().numpy() for s in stores]),
        names,
    )


def _data_sets(paths: Sequence[str | Path]) -> Iterator[tuple[str, list[Path]]]:
    """Yield the name of each data set with its files."""
    for path in map(Path, paths):
        if path.is_file():
            if path.suffix not in (*_SUFFIXES, ".safetensors"):
                raise UserError(f"{path} must end in one of {', '.join(_SUFFIXES)} or .safetensors.")
            yield _set_name(path), [path]
        elif path.is_dir():
            files = sorted(f for f in path.rglob("*") if f.suffix in _SUFFIXES and f.is_file())
            if not files:
                raise UserError(f"the folder {path} holds no {' or '.join(_SUFFIXES)} file.")
            sets: dict[str, list[Path]] = {}
            for file in files:
                sets.setdefault(_set_name(file), []).append(file)
            yield from sets.items()
        else:
            raise UserError(f"there is no file or folder {path}.")


def _set_name(file: Path) -> str:
    """A file is named after its data set, a shard (train-00000-of-00004) lies in a folder that is."""
    return file.resolve().parent.name if _SHARD.match(file.stem) or file.stem in ("train", "data") else file.stem


def _read_table(file: Path, target: str) -> pa.Table:
    with needing("forecasting"):
        import pyarrow as pa
        from pyarrow import parquet
    wanted = ("id", "start", "freq", "timestamp", f"{target}._np_shape")
    try:
        if file.suffix == ".parquet":
            handle = parquet.ParquetFile(file)
            return handle.read(columns=_columns(handle.schema_arrow.names, target, wanted, file))
        with pa.memory_map(str(file)) as source:
            try:
                table = pa.ipc.open_file(source).read_all()
            except pa.ArrowInvalid:  # a stream has no footer
                source.seek(0)
                table = pa.ipc.open_stream(source).read_all()
        return table.select(_columns(table.column_names, target, wanted, file))
    except (pa.ArrowException, OSError) as error:
        raise UserError(f"{file} cannot be read ({str(error).splitlines()[0]}).") from None


def _columns(names: Sequence[str], target: str, wanted: Sequence[str], file: Path) -> list[str]:
    if target not in names:
        raise UserError(f"{file} has no column {target!r}: {did_you_mean(target, names)}")
    return [target, *(n for n in wanted if n in names)]


def _flatten(column: pa.ChunkedArray, source: str, target: str) -> tuple[np.ndarray, np.ndarray, pa.Array]:
    """Return the row of every series, its length and all values end to end; lists in lists are opened."""
    import pyarrow as pa
    import pyarrow.compute as pc

    def is_list(kind: pa.DataType) -> bool:
        return pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)

    array = column.combine_chunks()
    if isinstance(array, pa.ChunkedArray):  # more than one chunk can hold
        array = pa.concat_arrays(array.chunks)
    if not is_list(array.type):
        raise UserError(
            f"the column {target!r} of {source} must be lists of numbers, one series per row, got {array.type}."
        )
    parent = np.arange(len(array))
    while True:
        lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False).astype(np.int64)
        inner = array.flatten()
        if not is_list(inner.type):
            return parent, lengths, inner
        parent, array = np.repeat(parent, lengths), inner


def _frequencies(table: pa.Table, freq: str | None) -> list[str | None]:
    """Return the frequency of every row: the argument, the column, or what the timestamps say."""
    if freq is not None:
        return [freq] * table.num_rows
    if "freq" in table.column_names:
        return table.column("freq").to_pylist()
    if "timestamp" in table.column_names:
        return [_spacing(row) for row in table.column("timestamp")]
    return [None] * table.num_rows


def _spacing(row: Any) -> str | None:
    times = row.values
    if times is None or len(times) < 2:
        return None
    try:
        # A few dozen show the spacing; all would be as much work as reading the series.
        few = np.asarray(times.slice(0, 40).to_numpy(zero_copy_only=False), dtype="datetime64[ns]")
        calendar = Calendar.fitting(few)
        return None if calendar is None else calendar.freq
    except (ValueError, TypeError):
        return None
