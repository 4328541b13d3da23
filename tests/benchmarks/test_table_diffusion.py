"""The trees of a diffusion model as tables of steps: the numbers that LightGBM says."""

import numpy as np
import pytest
from benchmarks.table_diffusion import StepsOfTrees

lightgbm = pytest.importorskip("lightgbm")


@pytest.mark.parametrize("trees", [None, 7])
def test_tables_of_steps_say_what_the_trees_say(trees):
    random = np.random.default_rng(0)
    columns = random.normal(size=(3000, 4))
    target = np.sin(2 * columns[:, 0]) * columns[:, 3] + np.abs(columns[:, 1]) + 0.1 * random.normal(size=3000)
    options = {"num_leaves": 31, "verbose": -1, "num_threads": 1}
    booster = lightgbm.train(options, lightgbm.Dataset(columns, target), 30)
    rows, draws = random.normal(size=(20, 2)), 9
    steps = StepsOfTrees(booster, rows, trees)
    # A place where trees split belongs to what lies below it.
    cuts = steps._cuts[:: len(steps._cuts) // 8][:8]
    for time in (-1.0, 0.0, 0.7):
        y = np.concatenate([cuts, [50.0]]).repeat(20)
        asked = np.column_stack([y, np.tile(rows, (draws, 1)), np.full(20 * draws, time)])
        wanted = booster.predict(asked, num_iteration=trees)
        np.testing.assert_allclose(steps.predict(asked), wanted, atol=1e-12)
    assert np.ptp(wanted) > 0.1
