"""Series to train on as they are read, kept and packed, and the seasons of their frequencies."""

import math

import numpy as np
import pytest
import torch

from fourier_head.errors import UserError
from fourier_head.forecasting.corpora.__main__ import main
from fourier_head.forecasting.corpora.readers import LEFT_OUT, join, read_store
from fourier_head.forecasting.corpora.store import SeriesStore
from fourier_head.forecasting.frequency import natural_period, season_length
from tests.forecasting.test_corpora import NAN, counting_store, same

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

# Frequencies


@pytest.mark.parametrize(
    ("freq", "season", "natural"),
    [
        ("M", 12, 12), ("ME", 12, 12), ("MS", 12, 12), ("1M", 12, 12), ("3M", 4, 4), ("Q", 4, 4), ("QE-DEC", 4, 4),
        ("QS-OCT", 4, 4), ("A", 1, 1), ("Y", 1, 1), ("YE-DEC", 1, 1), ("AS-JAN", 1, 1), ("W", 1, 52), ("W-MON", 1, 52),
        ("2W", 1, 26), ("D", 1, 7), ("1D", 1, 7), ("B", 5, 5), ("H", 24, 24), ("h", 24, 24), ("6H", 4, 4),
        ("5h", 1, 1), ("30min", 48, 48), ("30T", 48, 48), ("0.5H", 1, 1), ("15min", 96, 96), ("10min", 144, 144),
        ("5T", 288, 288), ("60min", 24, 24), ("s", 3600, 3600), ("ms", 1, 1), ("", 1, 1), (None, 1, 1), ("???", 1, 1),
    ],
)  # fmt: skip
def test_seasons_by_frequency(freq, season, natural):
    assert season_length(freq) == season
    assert natural_period(freq) == natural


def test_seasons_equal_those_of_gluonts():
    seasonality = pytest.importorskip("gluonts.time_feature.seasonality")
    for freq in ("ME", "QE", "YE", "W", "D", "B", "h", "2h", "min", "15min", "30min", "s", "3ME", "W-SUN"):
        assert season_length(freq) == seasonality.get_seasonality(freq), freq


# The store


def test_store_round_trip_and_selection(tmp_path):
    store = join(
        [
            SeriesStore.from_series([[1.5, NAN, math.inf], [2.0]], "a", period=[7, 12]),
            SeriesStore.from_series([[], [3.0, -0.0, 1e-30]], "b"),
        ]
    )
    assert len(store) == 3
    assert store.names == ("a", "b")
    assert same(store.series(0), torch.tensor([1.5, NAN, NAN]))
    assert store.period.tolist() == [7, 12, 1]
    again = SeriesStore.load(store.save(tmp_path / "deep" / "corpus.safetensors"))
    for name in ("values", "offsets", "lengths", "set_index", "period"):
        assert same(getattr(again, name).double(), getattr(store, name).double()), name
    assert again.names == store.names
    assert list((tmp_path / "deep").iterdir()) == [tmp_path / "deep" / "corpus.safetensors"]
    picked = store.select(torch.tensor([2, 0]))
    assert same(picked.series(0), store.series(2))
    assert same(picked.series(1), store.series(0))


def test_split_holds_out_whole_series_of_every_set():
    store = join([SeriesStore.from_series([[n, n] for n in range(40)], "many"), counting_store((9, 9))])
    kept, held = store.split(0.1, seed=3)
    assert len(kept) + len(held) == len(store)
    assert (held.set_index == 0).sum() == 4
    assert (held.set_index == 1).sum() == 1
    assert not set(kept.values.tolist()) & set(held.values.tolist()) - {0.0, 1.0}
    again = store.split(0.1, seed=3)[1]
    assert torch.equal(again.values, held.values)
    assert not torch.equal(store.split(0.1, seed=4)[1].values, held.values)


def test_store_says_what_is_wrong(tmp_path):
    with pytest.raises(ValueError, match=r"one-dimensional, got one of shape \(1, 2\)"):
        SeriesStore.from_series([[[1.0, 2.0]]])
    with pytest.raises(ValueError, match="no finite value"):
        SeriesStore.from_series([[NAN]])
    with pytest.raises(ValueError, match=r"fraction must .*got 2"):
        counting_store().split(2)
    with pytest.raises(ValueError, match="one series only"):
        counting_store((9,)).split(0.5)
    with pytest.raises(UserError, match="there is no file"):
        SeriesStore.load(tmp_path / "no.safetensors")
    (tmp_path / "bad.safetensors").write_bytes(b"nonsense")
    with pytest.raises(UserError, match="cannot be read as a safetensors file"):
        SeriesStore.load(tmp_path / "bad.safetensors")
    path = counting_store().save(tmp_path / "cut.safetensors")
    content = path.read_bytes()
    start = content.index(b"\x78\x9c")  # where the deflated values begin
    path.write_bytes(content[: start + 20] + bytes(40) + content[start + 60 :])
    with pytest.raises(UserError, match="damaged"):
        SeriesStore.load(path)


# Readers


def write(path, **columns):
    pq.write_table(pa.table(columns), path)


def test_readers_of_every_layout(tmp_path):
    pandas = pytest.importorskip("pandas")
    write(tmp_path / "ours.parquet", id=["a", "b"], freq=["ME", ""], target=[[1.0, None, 3.0], [4.0, 5.0]])
    folder = tmp_path / "hourly"
    folder.mkdir()
    stamps = pandas.date_range("2020", periods=3, freq="h").to_numpy()
    for shard in range(2):
        write(folder / f"train-0000{shard}-of-00002.parquet", timestamp=[stamps], target=[[shard, 1, 2]])
    table = pa.table({"start": ["2020-01-01"], "target": pa.array([[7.0, 8.0]], pa.large_list(pa.float64()))})
    with pa.OSFile(str(tmp_path / "file.arrow"), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    with pa.OSFile(str(tmp_path / "stream.arrow"), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    write(tmp_path / "wide.parquet", freq=["D"], target=[[[1.0, 2.0], [3.0, 4.0, 5.0]]])
    store = read_store(tmp_path)
    assert set(store.names) == {"ours", "hourly", "file", "stream", "wide"}

    def of_set(name):
        return store.select((store.set_index == store.names.index(name)).nonzero().flatten())

    ours = of_set("ours")
    assert same(ours.series(0), torch.tensor([1.0, NAN, 3.0]))
    assert ours.period.tolist() == [12, 1]
    hourly = of_set("hourly")
    assert hourly.period.tolist() == [24, 24]
    assert hourly.values.tolist() == [0, 1, 2, 1, 1, 2]
    assert of_set("stream").values.tolist() == [7, 8]
    wide = of_set("wide")
    assert wide.lengths.tolist() == [2, 3]
    assert wide.period.tolist() == [7, 7]
    assert read_store(tmp_path / "file.arrow", freq="15min").period.tolist() == [96]


def test_reads_what_gluonts_writes(tmp_path):
    arrow = pytest.importorskip("gluonts.dataset.arrow")
    rows = [{"start": np.datetime64("2020-01-01", "s"), "target": np.arange(n, dtype=np.float32)} for n in (3, 5)]
    arrow.ArrowWriter(compression="lz4").write_to_file(rows, tmp_path / "series.arrow")
    assert read_store(tmp_path).lengths.tolist() == [3, 5]
    rows = [{"start": np.datetime64("2020-01-01", "s"), "target": np.arange(6, dtype=np.float32).reshape(2, 3)}]
    arrow.ArrowWriter().write_to_file(rows, tmp_path / "series.arrow")
    store = read_store(tmp_path)
    assert store.lengths.tolist() == [3, 3]
    assert store.series(1).tolist() == [3, 4, 5]


def test_readers_say_what_is_wrong(tmp_path):
    with pytest.raises(UserError, match="no file or folder"):
        read_store(tmp_path / "nothing")
    with pytest.raises(UserError, match=r"holds no \.parquet"):
        read_store(tmp_path)
    (tmp_path / "x.csv").write_text("a,b")
    with pytest.raises(UserError, match=r"must end in one of \.parquet"):
        read_store(tmp_path / "x.csv")
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(UserError, match="cannot be read"):
        read_store(tmp_path / "broken.parquet")
    cases = {
        "no column 'target': did you mean Target": {"Target": [[1.0]]},
        "must be lists of numbers, one series per row, got double": {"target": [1.0, 2.0]},
        "must be lists of numbers, got string": {"target": [["a", "b"]]},
        "holds no rows": {"target": pa.array([], pa.list_(pa.float32()))},
        "holds no finite value": {"target": [[NAN, NAN], None]},
        "no series has 2 values or more": {"target": [[1.0]]},
    }
    for message, columns in cases.items():
        write(tmp_path / "case.parquet", **columns)
        with pytest.raises(UserError, match=message):
            read_store(tmp_path / "case.parquet")


def test_packing_from_the_command_line(tmp_path, capsys):
    write(tmp_path / "one.parquet", freq=["ME"], target=[[1.0, 2.0, 3.0]])
    assert main([str(tmp_path), "--output", str(tmp_path / "packed.safetensors")]) == 0
    assert "1 series of 1 sets, 3 values" in capsys.readouterr().out
    assert read_store(tmp_path / "packed.safetensors").period.tolist() == [12]
    assert main([str(tmp_path / "none")]) == 2
    with pytest.raises(SystemExit):
        main([])
    write(tmp_path / "other.parquet", power_mw=[[1.0, 2.0]])
    words = [str(tmp_path / "other.parquet"), "--target", "power_mw", "--freq", "h", "--output", str(tmp_path / "h")]
    assert main(words) == 0
    assert SeriesStore.load(tmp_path / "h").period.tolist() == [24]


def test_reads_the_training_series(shared):
    folder = shared / "data" / "train"
    store = read_store(
        [folder / "m3_other.parquet", folder / "aus_production.parquet", folder / "favorita_daily.parquet"]
    )
    assert store.names == ("m3_other", "aus_production", "favorita_daily")
    assert torch.bincount(store.set_index).tolist() == [174, 6, 1000]
    assert [store.period[store.set_index == n].unique().tolist() for n in range(3)] == [[1], [4], [7]]
    first = pq.read_table(folder / "m3_other.parquet")["target"][0].as_py()
    assert store.series(0).tolist() == pytest.approx(first)


def test_series_that_are_test_data_are_not_read(tmp_path):
    table = pa.table({"id": ["soi", "unemp"], "target": [[1.0, 2.0], [3.0, 4.0]]})
    for name, kept in (("astsa_monthly", 1), ("another", 2)):
        pq.write_table(table, tmp_path / f"{name}.parquet")
        assert len(read_store(tmp_path / f"{name}.parquet")) == kept


def test_packing_leaves_out_every_series_that_holds_test_values(tmp_path):
    for name, ids in LEFT_OUT.items():
        ids = [*ids, "kept"]
        table = pa.table({"id": ids, "target": [[1.0, 2.0]] * (len(ids) - 1) + [[3.0, 4.0]]})
        pq.write_table(table, tmp_path / f"{name}.parquet")
    assert main([str(tmp_path), "--output", str(tmp_path / "corpus.safetensors")]) == 0
    packed = SeriesStore.load(tmp_path / "corpus.safetensors")
    assert sorted(packed.names) == sorted(LEFT_OUT)
    assert packed.values.tolist() == [3.0, 4.0] * len(LEFT_OUT)


def test_series_left_out_are_in_the_data(shared):
    for name, ids in LEFT_OUT.items():
        known = pq.read_table(shared / "data" / "train" / f"{name}.parquet", columns=["id"])["id"].to_pylist()
        assert set(ids) <= set(known)
