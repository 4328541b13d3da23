"""The table of claims: it follows from the committed results, and its figures stand in the rows it names."""

import json
import re
from dataclasses import replace
from html import escape

import pytest
from studies.claims.claim import STATUSES, Claim, decide, seeds_needed
from studies.claims.evidence import ROOT, Figure, find, objects, paired
from studies.claims.table import CLAIMS, PAGE, all_claims, page
from studies.common.intervals import t_interval
from studies.common.report.page import parts
from studies.common.report.prose import BEYOND, PARTS, part_of

COMMITTED = json.loads((ROOT / CLAIMS).read_text(encoding="utf-8"))


def test_the_committed_table_is_what_the_results_say():
    assert [claim.as_dict() for claim in all_claims()] == COMMITTED, "run python -m studies claims"
    assert (ROOT / PAGE).read_text(encoding="utf-8") == page(COMMITTED), "run python -m studies claims"


@pytest.mark.parametrize("claim", COMMITTED, ids=lambda claim: claim["claim"][:40])
def test_a_claim_is_settled_with_evidence_or_says_why_not(claim):
    assert claim["status"] in STATUSES
    assert claim["why"]
    if claim["status"] == "cannot be run here":
        assert claim["ours"] is None
        return
    evidence = claim["evidence"]
    for part in (evidence, *([evidence["beside"]] if "beside" in evidence else [])):
        for rows in part["rows"]:
            assert find(part["file"], rows)
    assert (ROOT / claim["picture"]).exists()
    if claim["status"] == "not confirmed" and not claim.get("exact"):
        assert not claim.get("undecided") or claim["plan"], "what runs cannot tell has a plan that could settle it"
        assert claim["plan"] is None or (ROOT / claim["plan"]).exists()
        assert claim["interval"] is None or "Excluded is what lies below" in claim["why"]
    if claim.get("exact"):
        assert claim["seeds"] is None
    elif claim["status"] == "confirmed":
        assert claim["interval"][0] <= claim["ours"] <= claim["interval"][1]
        assert claim["seeds"] > 1


def test_a_figure_of_one_row_is_that_row():
    """Of claims that quote one row as it stands, the value is in it."""
    checked = 0
    for claim in COMMITTED:
        evidence = claim["evidence"]
        if evidence and evidence["file"].endswith("summary.json") and len(evidence["rows"]) == 1:
            found = find(evidence["file"], evidence["rows"][0])
            if len(found) == 1:
                values = [value for value in found[0].values() if isinstance(value, (int, float))]
                assert any(float(f"{value:.4g}") == claim["ours"] for value in values), claim["claim"]
                checked += 1
    assert checked > 5


def test_pairs_are_matched_by_seed(tmp_path, monkeypatch):
    from studies.claims import evidence

    runs = [{"head": head, "seed": seed, "kl": value} for head, seed, value in (
        ("a", 1, 1.0), ("a", 2, 2.0), ("a", 3, 9.0), ("b", 2, 4.0), ("b", 1, 2.0),
    )]  # fmt: skip
    folder = tmp_path / "results" / "x"
    folder.mkdir(parents=True)
    (folder / "runs.json").write_text(json.dumps(runs))
    monkeypatch.setattr(evidence, "ROOT", tmp_path)
    evidence.content.cache_clear()
    difference = paired("x", "kl", {"head": "a"}, {"head": "b"})
    assert (difference.value, difference.seeds) == (-1.5, 2)
    ratio = paired("x", "kl", {"head": "a"}, {"head": "b"}, ratio=True)
    assert ratio.value == pytest.approx(-50)
    evidence.content.cache_clear()


@pytest.mark.parametrize(
    ("interval", "status"),
    [
        ((-2.0, -1.0), "confirmed"),
        ((-2.0, 1.0), "not confirmed"),
        ((1.0, 2.0), "not confirmed"),
        (None, "not confirmed"),
    ],
)
def test_only_an_interval_on_the_right_side_confirms(interval, status):
    assert decide(Figure(-1.0, interval, 3, "", ()), "below")[0] == status


def test_what_is_to_be_small_has_no_number_of_seeds_that_would_tell():
    figure = Figure(0.5, (-1.0, 2.0), 3, "results/forecasting-seeds/summary.json", ())
    one = Claim("A head changes little.", "Table 8", "percent", "about 0", figure)
    assert "seeds would tell" in one.as_dict()["why"]
    assert "seeds would tell" not in replace(one, holds=False).as_dict()["why"]


def test_seeds_are_counted_by_how_they_vary_where_a_bootstrap_is_narrower():
    narrow = Figure(1.0, (-0.5, 2.5), 3, "", ())
    assert seeds_needed(narrow, 0.0) < seeds_needed(replace(narrow, student=(-3.0, 5.0)), 0.0)


def test_the_interval_covers_as_often_as_it_says():
    import numpy as np

    rng = np.random.default_rng(0)
    hits = [low <= 0 <= high for _, (low, high) in (t_interval(rng.normal(size=4)) for _ in range(2000))]
    assert np.mean(hits) == pytest.approx(0.95, abs=0.015)


def test_the_report_shows_them_with_links():
    html = parts().claims_table(COMMITTED, ["synthetic"], {"synthetic-released-kl"})
    assert 'href="#synthetic-released-kl"' in html
    assert 'href="#synthetic-released-smoothness"' not in html
    shown = [one["claim"] for one in COMMITTED if not re.search(r"\^", one["claim"])]
    assert len(shown) > 70
    assert all(escape(claim) in html for claim in shown)
    assert 'href="#synthetic"' in html
    assert 'href="#atari"' not in html  # a section that is not there
    assert BEYOND not in {part_of(one["section"], one["where"]) for one in COMMITTED}
    known = {one["claim"] for one in COMMITTED}
    assert {one for part in PARTS for one in part.headlines} <= known, "the first screen tells of claims there are"


def test_fourier_heads_are_those_chosen_on_other_seeds(tmp_path, monkeypatch):
    from studies.claims import evidence, language

    tried = [("linear", None, None), ("fourier", 3.0, 12), ("fourier", 1000.0, 4)]
    rows = [{"head": head, "init_scale": scale, "frequencies": n} for head, scale, n in tried]
    folder = tmp_path / "results" / "chosen"
    folder.mkdir(parents=True)
    (folder / "summary.json").write_text(json.dumps({"rows": [], "choices": [{**row, "tvd": 0.2} for row in rows]}))
    monkeypatch.setattr(evidence, "ROOT", tmp_path)
    assert language.chosen("chosen") == rows[1:]
    evidence.content.cache_clear()


def test_agents_are_compared_in_smoothness_at_the_n_of_their_returns():
    from studies.claims.games import GAMES, games

    heads = {}
    for claim in games():
        for title in (game.title for game in GAMES.values()):
            if claim.claim.endswith(f"{title}.") and "minus linear's" in claim.measure:
                heads.setdefault(title, []).append(re.search(r"Fourier-\d+", claim.measure)[0])
    assert {title: len(set(names)) for title, names in heads.items()} == {game.title: 1 for game in GAMES.values()}
    assert all(len(names) == 2 for names in heads.values())


def test_of_a_game_played_by_a_script_the_points_of_agents_are_told():
    from studies.claims.evidence import content
    from studies.claims.games import SCRIPT, of_a_script

    runs = [{"evaluations": [{"made": 0.0}, {"made": made}]} for made in (10.0, 13.0)]
    text = of_a_script(content(SCRIPT)["play"], runs)
    assert "which has not learned" in text
    assert "make 11.5 points a game themselves, random play 6.2." in text


def test_one_frequency_must_lead_all_others_to_be_the_best():
    from studies.claims.audio import FIRST, RELEASED, against, frequencies, one_is_best

    leads = [
        against("macro_f1", ("fourier", 1), (FIRST, RELEASED), ("fourier", n), ratio=True)
        for n in frequencies()
        if n != 1
    ]
    surely = all(decide(lead, "above")[0] == "confirmed" for lead in leads)
    assert (one_is_best((FIRST, RELEASED)).as_dict()["status"] == "confirmed") == surely


def test_objects_of_a_file_are_its_rows():
    assert objects("results/smoothness/summary.json")[0]["metric"]
