"""What a comparison measures, and how it reads columns."""

import dataclasses
import math

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats

from fourier_head._devices import small_matrices
from fourier_head.compare import Settings, choose_frequencies, frequency_notes
from fourier_head.compare.data import Table, bimodal, hills, read_table
from fourier_head.compare.parts import Encoder, prepare
from fourier_head.compare.results import METRICS, Result
from fourier_head.compare.scores import Scores, score_model, score_truth, truth_on_bins
from fourier_head.compare.settings import parse_heads
from fourier_head.compare.training import Arm, Trained, head_maker, planned, train, with_body
from fourier_head.errors import UserError
from fourier_head.integrations.scikit_learn import FourierRegressor
from fourier_head.tabular.inputs import BODIES
from tests.comparison_table import homes

HEADS = ["linear", "gmm", "hl-gauss", "fourier", "fourier-packets", "fourier-adaptive"]


def quick_train(name, data, settings, seed=0):
    with small_matrices():
        return train(name, data, settings, 8, seed, planned(settings, len(data.train)), lambda *_: None)


# --- what is measured


def test_true_density_is_that_of_the_data():
    table = bimodal(rows=4000, seed=3)
    data = prepare(table, 50, seed=0)
    pit = score_truth(data).pit
    assert stats.kstest(pit, "uniform").pvalue > 0.01
    mass = truth_on_bins(data)[0].numpy()
    x, y = table.truth.centers[data.test.rows[0]]
    cdf = (stats.norm.cdf(data.bins.edges, x, 0.1) + stats.norm.cdf(data.bins.edges, y, 0.1)) / 2
    np.testing.assert_allclose(mass, np.diff(cdf) / (cdf[-1] - cdf[0]), atol=1e-9)
    modes = np.sort([x, y])
    heights = [0.5 * stats.norm.pdf(v, x, 0.1) + 0.5 * stats.norm.pdf(v, y, 0.1) for v in (*modes, modes.mean())]
    assert min(heights[:2]) > heights[2] or abs(x - y) < 0.2, "two peaks with a valley between them"


@pytest.mark.parametrize("name", HEADS)
def test_scores_are_those_of_the_density_in_units_of_the_target(name):
    table = bimodal(rows=200)
    table = dataclasses.replace(table, target=5000 + 300 * table.target, truth=None)
    settings = Settings(bins=20)
    data = prepare(table, 20, seed=0)
    torch.manual_seed(1)
    model = Arm("smooth", 2, head_maker(name, settings, 5, data))
    with torch.no_grad():
        # Far from flat; a small change in its features already moves an adaptive density.
        model.layers[-1].weight.mul_(2 if name == "fourier-adaptive" else 20)
    scores = score_model(model, data)
    # A reference from log_prob alone, by quadrature on a fine grid of target values.
    reach = 8 if name == "fourier-adaptive" else 1  # beyond the bins only this one has anything, in its tails
    z = torch.linspace(-reach, reach, 40001)[1:-1:2]
    value, step = data.middle + data.half * z.double().numpy(), 2 * reach * data.half / 20000
    with torch.no_grad():
        features = model.body(data.test.x[:3])
        height = model.head.density(features).log_prob(z[:, None].expand(-1, 3)).exp().T.double().numpy() / data.half
    for i, (p, observed) in enumerate(zip(height, data.test.value[:3].numpy(), strict=True)):
        assert p.sum() * step == pytest.approx(1, abs=1e-3)
        assert scores.nll[i] == pytest.approx(-math.log(np.interp(observed, value, p)), abs=0.02)
        below = np.cumsum(p) * step
        crps = ((below - (value >= observed)) ** 2).sum() * step
        assert scores.crps[i] == pytest.approx(crps, rel=5e-3)
        assert scores.squared_error[i] == pytest.approx(((p * value).sum() * step - observed) ** 2, rel=0.02, abs=0.5)
        assert scores.pit[i] == pytest.approx(np.interp(observed, value, below), abs=2e-3)
    assert scores.kl is None


def test_units_of_the_target_change_scores_as_they_must():
    table = bimodal(rows=300)
    settings = Settings(bins=20, epochs=3)
    plain = quick_train("gmm", prepare(table, 20, 0), settings).scores.summary()
    other = dataclasses.replace(table, target=1e6 + 1000 * table.target, truth=None)
    scaled = quick_train("gmm", prepare(other, 20, 0), settings).scores.summary()
    assert scaled["nll"] == pytest.approx(plain["nll"] + math.log(1000), abs=1e-3)
    assert scaled["crps"] == pytest.approx(1000 * plain["crps"], rel=1e-3)
    assert scaled["mse"] == pytest.approx(1e6 * plain["mse"], rel=1e-3)


def test_the_likelihood_of_a_logarithm_is_that_of_the_value():
    table = hills(rows=300)
    whole = dataclasses.replace(table, target=np.exp(table.target / 300))
    data = prepare(whole.logarithm(), 20, seed=0)
    assert data.table.target_name == "log height"
    scores = quick_train("gmm", data, Settings(bins=20, epochs=1)).scores
    plain = quick_train(
        "gmm", prepare(dataclasses.replace(table, target=table.target / 300), 20, 0), Settings(bins=20, epochs=1)
    )
    np.testing.assert_allclose(scores.nll, plain.scores.nll + data.test.value.numpy(), rtol=1e-6)
    np.testing.assert_allclose(scores.crps, plain.scores.crps, rtol=1e-6)
    with pytest.raises(UserError, match="above zero"):
        dataclasses.replace(table, target=table.target - 1000).logarithm()


def test_the_hills_are_places_a_kilometre_apart():
    table = hills(rows=500)
    assert list(table.features) == ["north", "south", "west", "east"]
    assert 236 <= table.target.min() < table.target.max() <= 1076, "metres"
    assert np.corrcoef(table.features.mean(axis=1), table.target)[0, 1] > 0.8
    assert not (table.features["north"].to_numpy() == table.target).all()


def test_kl_falls_with_training_and_the_best_epoch_is_kept():
    data = prepare(bimodal(rows=800), 20, seed=0)
    little, much = (quick_train("gmm", data, Settings(bins=20, epochs=n)) for n in (1, 8))
    assert much.scores.kl.mean() < little.scores.kl.mean() / 2
    with torch.no_grad():
        density = much.model.head.density(much.model.body(data.validation.x))
        kept = -density.log_prob(data.validation.z).double().mean() + math.log(data.half)
    assert float(kept) == pytest.approx(min(score for _, score in much.history), abs=1e-5)
    assert much.best_epoch == math.ceil(min(much.history, key=lambda pair: pair[1])[0])


def test_heads_share_body_order_and_seed():
    data = prepare(bimodal(rows=200), 20, seed=0)
    settings = Settings(bins=20, epochs=1)
    bodies = []
    for name in HEADS:
        torch.manual_seed(4)
        layers = Arm("smooth", 2, head_maker(name, settings, 5, data)).layers[:-1]
        bodies.append(torch.cat([p.flatten() for layer in layers for p in layer.parameters()]))
    assert all(torch.equal(bodies[0], body) for body in bodies)
    again = [quick_train("fourier", data, settings, seed=4).scores.nll for _ in range(2)]
    np.testing.assert_array_equal(*again)
    assert not np.array_equal(again[0], quick_train("fourier", data, settings, seed=5).scores.nll)


def test_bold_are_the_best_and_those_indistinguishable_from_it():
    random = np.random.default_rng(0)
    base = random.normal(0, 1, 400)

    def arm(name, nll):
        zeros = np.zeros(400)
        return [Trained(name, None, Scores(nll, zeros, zeros, zeros, random.uniform(size=400), zeros))]  # type: ignore[arg-type]

    runs = {
        "linear": arm("linear", base + 0.5 + random.normal(0, 0.1, 400)),
        "gmm": arm("gmm", base),
        "fourier": arm("fourier", base + 0.001 + random.normal(0, 0.1, 400) * 0.2),
    }
    result = Result(Settings(), None, None, 8, "", runs, None)  # type: ignore[arg-type]
    assert result.best(METRICS[0]) == {"gmm", "fourier"}
    assert "kl" not in [m.key for m in result.metrics]


def test_every_row_is_in_one_part_and_bins_span_the_training_part():
    data = prepare(bimodal(rows=1000), 50, seed=1)
    rows = np.concatenate([data.train.rows, data.validation.rows, data.test.rows])
    assert sorted(rows) == list(range(1000)), "every row in one part"
    assert (len(data.test), len(data.validation)) == (200, 120)
    inside = data.table.target[np.concatenate([data.train.rows, data.validation.rows])]
    features = torch.cat([data.train.x, data.validation.x])
    torch.testing.assert_close(features.mean(0), torch.zeros(2), atol=1e-5, rtol=0)
    assert data.test.x.mean(0).abs().max() > 1e-3, "the test part has no say in the scale"
    assert data.bins.low < inside.min()
    assert data.bins.high > inside.max()


# --- columns


def test_columns_of_every_kind_become_standardised_features():
    frame = homes()
    encoder = Encoder(frame.drop(columns="price"))
    x = encoder(frame.drop(columns="price"))
    # The size and the mark of its gaps; three towns.
    assert x.shape == (240, 2 + 3)
    np.testing.assert_allclose(x[~frame["size"].isna(), 0].mean(), 0, atol=1e-5)
    np.testing.assert_array_equal(x[:, 2:].sum(1), frame["town"].notna())
    missing = frame["size"].isna().to_numpy()
    assert len(np.unique(x[missing, 0])) == 1, "missing numbers take one value, the mean"
    np.testing.assert_array_equal(x[:, 1], missing)
    notes = " ".join(encoder.notes)
    assert "'sold' is left out: it holds dates" in notes
    assert "'id' is left out: nearly every row" in notes
    assert "'country' is left out: it is constant" in notes


def test_encoder_knows_only_the_rows_it_was_fitted_on():
    frame = homes().drop(columns="price")
    seen, unseen = frame.iloc[:200], frame.iloc[200:].copy()
    expected = Encoder(seen)(seen)
    unseen["size"], unseen["town"] = 1e12, "Atlantis"
    encoder = Encoder(seen)
    np.testing.assert_array_equal(encoder(pd.concat([seen, unseen]))[:200], expected)
    strange = encoder(unseen)
    assert np.isfinite(strange).all()
    assert strange.max() <= 10
    assert not strange[:, 2:].any(), "an unseen category is none of those known"


def test_rare_categories_have_no_input():
    letters = pd.DataFrame({"code": [f"c{i % 80}" for i in range(500)]})
    encoder = Encoder(letters)
    assert encoder(letters).shape == (500, 64)
    assert "80 categories" in encoder.notes[0]


def test_csv_dialects_and_parquet_read_alike(tmp_path):
    frame = homes()
    frame.to_csv(tmp_path / "a.csv", index=False)
    frame.to_csv(tmp_path / "b.csv", index=False, sep=";", na_rep="?")
    frame.to_csv(tmp_path / "c.tsv", index=False, sep="\t", encoding="utf-8-sig")
    frame.to_csv(tmp_path / "d.csv.gz", index=False)
    frame.to_parquet(tmp_path / "e.parquet")
    tables = [read_table(path, "price") for path in sorted(tmp_path.iterdir())]
    first = prepare(tables[0], 20, 0)
    assert len(tables) == 5
    for table in tables[1:]:
        np.testing.assert_allclose(table.target, tables[0].target)
        torch.testing.assert_close(prepare(table, 20, 0).train.x, first.train.x)


def test_a_target_may_be_written_with_its_unit(tmp_path):
    weights = np.linspace(800, 4000, 40)
    frame = pd.DataFrame({"size": weights / 7, "label": ["500 ml"] * 20 + ["250 ml"] * 20})
    frame.assign(weight=[f"{weight:,.1f} kg" for weight in weights]).to_csv(tmp_path / "a.csv", index=False)
    table = read_table(tmp_path / "a.csv", "weight")
    np.testing.assert_allclose(table.target, weights, atol=0.06)
    assert table.notes == ("The numbers of 'weight' are in kg.",)
    assert table.features["label"][0] == "500 ml"  # which may be a name
    frame.assign(weight=["1 kg", "900 g"] * 20).to_csv(tmp_path / "b.csv", index=False)
    with pytest.raises(UserError, match="must hold numbers, got '1 kg'"):
        read_table(tmp_path / "b.csv", "weight")


def test_row_numbers_are_no_feature(tmp_path):
    frame = pd.DataFrame({"y": np.arange(40.0) ** 2, "x": np.arange(40)[::-1], "index": np.arange(40) + 1})
    frame.to_csv(tmp_path / "a.csv")
    table = read_table(tmp_path / "a.csv", "y")
    assert list(table.features) == ["x"]
    assert table.notes[0] == "Column 'Unnamed: 0' is left out: row numbers."
    assert table.notes[1] == "Column 'index' is left out: row numbers."
    frame.rename(columns={"index": "Id"}).to_csv(tmp_path / "c.csv", index=False)
    assert list(read_table(tmp_path / "c.csv", "y").features) == ["x"]
    # A target may be called so, and what does not count rows is an input like any other.
    assert list(read_table(tmp_path / "a.csv", "index").features) == ["y", "x"]
    frame.assign(index=frame["x"]).to_csv(tmp_path / "b.csv", index=False)
    assert list(read_table(tmp_path / "b.csv", "y").features) == ["x", "index"]


def test_bodies_are_those_of_the_regressor():
    random = np.random.default_rng(0)
    x = random.uniform(-1, 1, (400, 2))
    frame = pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "y": np.sign(x[:, 0]) + 0.1 * random.normal(size=400)})
    data = prepare(Table("steps", "y", frame[["a", "b"]], frame["y"].to_numpy()), 20, 0)
    settings = Settings(bins=20, epochs=2, heads=("fourier-adaptive",), body="boosting")
    assert next(f for f in dataclasses.fields(Settings) if f.name == "body").metadata["choices"] == (*BODIES, "auto")
    boosted = with_body(data, settings, 6)
    assert with_body(data, dataclasses.replace(settings, body="smooth"), 6) is data
    pieces = with_body(data, dataclasses.replace(settings, body="pieces"), 6)
    assert pieces.num_features == data.num_features + 2 * 16
    assert boosted.num_features == pieces.num_features + 6
    regressor = FourierRegressor(body="boosting", n_members=1, max_epochs=1).fit(x, frame["y"])
    trained = quick_train("fourier-adaptive", boosted, settings)
    assert repr(trained.model.layers[:-1]) == repr(list(regressor.network_.bodies["boosting"])[:-1])
    # The first thing that trees say is what to expect, of rows of training, too, without having seen them.
    said = boosted.train.x[:, pieces.num_features]
    assert torch.corrcoef(torch.stack([said, data.train.z.float()]))[0, 1] > 0.9
    assert "boosted trees" in boosted.notes[-1]
    chosen = with_body(data, dataclasses.replace(settings, body="auto"), 6)
    assert chosen.body in BODIES
    assert "the best on validation rows was taken" in chosen.notes[-1]
    with pytest.raises(UserError, match="--body must be one of smooth, pieces, boosting, auto, got trees"):
        Settings(body="trees")


def test_the_mixture_goes_by_both_its_names():
    assert parse_heads("mixture,linear") == parse_heads("gmm,linear") == ("linear", "gmm")


def test_table_of_a_target_alone_learns_its_density():
    values = np.random.default_rng(0).normal(size=200)
    data = prepare(Table("alone", "y", pd.DataFrame(index=range(200)), values), 20, 0)
    assert any("no columns to predict the target from" in note for note in data.notes)
    assert data.inputs_in_words == "no inputs"
    assert "pass features" not in choose_frequencies(Settings(), data)[1]
    frequencies, _ = choose_frequencies(Settings(bins=20), data)
    assert 1 <= frequencies < 10
    trained = quick_train("fourier", data, Settings(bins=20, epochs=3))
    assert np.isfinite(trained.scores.nll).all()


def test_notes_tell_of_clipped_discrete_and_crowded_targets():
    random = np.random.default_rng(0)
    empty = pd.DataFrame(index=range(500))

    def notes(values):
        return " ".join(prepare(Table("t", "y", empty, values), 50, 0).notes)

    assert "takes only 4 values" in notes(random.integers(0, 4, 500).astype(float))
    assert "share" in notes(np.exp(random.normal(0, 3, 500)))
    outlier = random.normal(size=500)
    outlier[prepare(Table("t", "y", empty, outlier), 50, 0).test.rows[0]] = 100.0
    assert "outside the bins" in notes(outlier)
    assert frequency_notes(Settings(bins=20), 10)
    assert not frequency_notes(Settings(bins=20), 9)
    assert not frequency_notes(Settings(bins=20, heads=("linear",)), 10)


@pytest.mark.parametrize("values", [1e17 + 64 * np.arange(40.0), np.linspace(-1.7e308, 1.7e308, 40)])
def test_targets_that_fit_no_bins_are_refused_in_a_sentence(values):
    table = Table("t.csv", "y", pd.DataFrame({"x": np.arange(40.0)}), values)
    with pytest.raises(UserError, match=r"the target 'y' must .*got values from"):
        prepare(table, 500, seed=0)
