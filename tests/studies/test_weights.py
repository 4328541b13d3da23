"""Two scores on held-out series, compared: made-up ones against a computation by hand."""

import json

import pytest
from studies.zero_shot.weights import main

from fourier_head.errors import UserError

NAN = float("nan")
OLD = {
    "score.json": {"a/12": (4, 0.5, 0.8), "b/24": (1, 1.0, 0.4), "b/24/far": (1, 0.8, 0.5), "zero/1": (9, 0.5, 0.0)},
    "whole/score.json": {"c/7": (9, 0.5, 0.5), "unknown/7": (4, NAN, NAN)},
}
NEW = {
    "score.json": {"a/12": (4, 0.45, 0.4), "b/24": (1, 1.0, 1.6), "b/24/far": (1, 0.8, 0.55), "zero/1": (9, 0.4, 0.1)},
    "whole/score.json": {"c/7": (9, 0.6, 0.45), "unknown/7": (4, NAN, NAN)},
}


def written(folder, files):
    for name, sets in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        rows = {one: dict(zip(("series", "mase", "wql"), row, strict=True)) for one, row in sets.items()}
        (folder / name).write_text(json.dumps({"variant": "recipe", "all": {"wql": 0.5}, "sets": rows}))
    return str(folder / "score.json")


def test_the_ratio_of_two_scores_is_that_of_hand(tmp_path, capsys):
    out = tmp_path / "table.csv"
    old, new = written(tmp_path / "old", OLD), written(tmp_path / "new", NEW)
    main([old, new, "--output", str(out)])
    assert capsys.readouterr().out == out.read_text()
    heading, *lines = out.read_text().splitlines()
    assert heading == "held_out,sets,windows,mase,wql,low,high,sets_ahead"
    found = {name: [float(x) for x in rest] for name, *rest in (line.split(",") for line in lines)}
    # Ratios of WQL: a .5 and b 4 near, b 1.1 far, c .9; of MASE .9, 1, 1 and 1.2. Weights: 2, 1, 1 and 3.
    assert found["whole"] == found["whole near"] == [1, 9, 1.2, 0.9, 0.9, 0.9, 1]
    assert found["series far"] == found["both far"] == [1, 1, 1, 1.1, 1.1, 1.1, 0]
    # Of two sets drawn a quarter of bootstraps has one of them twice.
    assert found["series near"] == pytest.approx([2, 5, 0.9 ** (2 / 3), 1, 0.5, 4, 1], abs=1e-4)
    wql = (0.5**2 * 4 * 1.1 * 0.9**3) ** (1 / 7)
    assert found["both"][:4] == pytest.approx([4, 15, (0.9**2 * 1.2**3) ** (1 / 7), wql], abs=1e-4)
    assert found["both"][4] < wql < found["both"][5]
    assert list(found)[-3:] == ["both", "both near", "both far"]


def test_scores_of_other_series_are_not_compared(tmp_path):
    old = written(tmp_path / "old", OLD)
    fewer = written(tmp_path / "fewer", {"score.json": {**NEW["score.json"], "a/12": (3, 0.5, 0.5)}})
    with pytest.raises(UserError, match="as many series of the same sets"):
        main([fewer, written(tmp_path / "alone", {"score.json": NEW["score.json"]})])
    with pytest.raises(UserError, match=r"whole/score\.json is missing"):
        main([old, fewer])
