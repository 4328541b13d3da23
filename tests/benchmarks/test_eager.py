"""The benchmark of steps one after the other, at a tiny size on a CPU: every contender is there and has been timed."""

import csv

import pytest

from benchmarks import eager, files


@pytest.mark.filterwarnings("ignore:.*lie outside")
def test_every_loss_is_timed_beside_a_linear_head(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(files, "RESULTS", tmp_path)
    eager.main(["--device", "cpu", "--steps", "1", "--turns", "2", "--shapes", "3", "--tokens", "8"])
    with (tmp_path / "eager.csv").open() as file:
        rows = list(csv.DictReader(file))
    expected = [eager.LINEAR, *(f"FourierHead.{name}" for name in eager.OURS)]
    assert [row["implementation"] for row in rows] == expected
    assert all(0 < float(row["host_us"]) <= float(row["total_us"]) for row in rows)
    assert float(rows[0]["total_ratio"]) == 1
    assert len(capsys.readouterr().out.splitlines()) == len(rows)
