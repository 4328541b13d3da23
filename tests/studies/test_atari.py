"""The study of Atari: its plan, the rows and figures it makes of runs, and the whole chain at toy size."""

import dataclasses
import json
import os

import pytest

pytest.importorskip("ale_py")
pytest.importorskip("matplotlib")

from studies.atari import study
from studies.atari.charts import ablations_chart, epochs_chart
from studies.atari.games import find_game
from studies.atari.model import action_head
from studies.atari.plan import GAMMA, MIDDLE, PAPER_FREQUENCIES, Settings, arms, rank
from studies.atari.rows import BEST, FINAL, WHOLE, all_rows, full_size, notes
from studies.atari.study import UNFINISHED, KeptRuns
from studies.common.report.summary import read_summary

from fourier_head.errors import UserError
from fourier_head.tasks.engine import Task


def made_up_run(arm, game, returns, smooth):
    """A run as training leaves it; its replay is short and real."""
    played = {"length": 30.0, "cut": 0, "rollout_steps_per_second": 1000.0, "rollout_seconds": 1.0}
    played |= {"heldout_loss": 2.0, "smoothness": smooth, "replay": None}
    played["examples"] = [{"pmf": [1 / 18] * 18, "action": a} for a in (1, 5)]
    epochs = [{"epoch": i, "return": value, "returns": [value] * 2, **played} for i, value in enumerate(returns, 1)]
    epochs[-1]["replay"] = {"seed": 5, "actions": [3, 3, 12, 0, 5, 5]}
    measured = {"contexts_per_second": 100.0, "seconds": 60.0, "transitions": 450_000, "target_return": 100.0}
    measured |= {"parameters": 1000 * arm.width, "steps_per_epoch": 10, "evaluations": epochs}
    return {"label": arm.label, "game": game, "recording": "abc", **dataclasses.asdict(arm), **measured}


@pytest.fixture
def settings(tmp_path):
    return Settings(games="seaquest", data=tmp_path / "data", output=tmp_path / "atari", summarise=True)


@pytest.fixture
def runs(settings):
    """Fourier-14 wins; smoothness grows with N and stays below linear's."""
    found = []
    for arm in arms(settings, "seaquest"):
        level = 1000 + 10 * arm.seed + (20 * min(arm.frequencies, 14) if arm.head == "fourier" else 0)
        smooth = 0.01 * arm.frequencies if arm.head == "fourier" else 0.5
        found.append(made_up_run(arm, "seaquest", [level - 50, level, level - 20], smooth))
    return found


def test_the_plan_goes_seed_by_seed_and_ends_with_ablations():
    found = arms(Settings(), "seaquest")
    first = [(arm.head, arm.frequencies, arm.gamma, arm.seed) for arm in found[:8]]
    assert first[0] == ("linear", None, 0.0, 0)
    assert ("fourier", MIDDLE, GAMMA, 0) in first
    assert ("fourier", MIDDLE, 0.0, 0) in first
    assert first[7] == ("linear", None, 0.0, 1)
    assert {arm.seed for arm in found} == {0, 1, 2, 3}
    small = [arm for arm in found if arm.width < 128 or arm.share < 1]
    assert found[-len(small) :] == small
    assert len(small) == 12
    assert all(arm.samples is None for arm in small)  # as long as the main arms, with which they are drawn
    assert not any(arm.width < 128 for arm in arms(Settings(), "gravitar"))
    assert {arm.seed for arm in arms(Settings(), "gravitar")} == {0, 1}


def test_arms_of_all_games_go_seed_by_seed_before_what_only_adds_to_them():
    settings = Settings()
    ordered = [(game, arm) for game in settings.chosen_games for arm in arms(settings, game)]
    ordered.sort(key=lambda one: rank(one[1], settings))
    kinds = [
        "ablation" if arm.width < 128 or arm.share < 1 else "gamma 0" if arm.frequencies and not arm.gamma else "main"
        for _, arm in ordered
    ]
    assert kinds == sorted(kinds, key=["main", "gamma 0", "ablation"].index)
    main = [
        (arm.seed, settings.chosen_games.index(game))
        for (game, arm), kind in zip(ordered, kinds, strict=True)
        if kind == "main"
    ]
    assert main == sorted(main)
    assert {game for (game, _), kind in zip(ordered, kinds, strict=True) if kind != "main"} == {"seaquest"}


def test_options_choose_games_frequencies_and_seeds():
    chosen = Settings(games="BankHeist,gravitar", frequencies="3,5", seeds=1, ablations=False)
    assert chosen.chosen_games == ["bank_heist", "gravitar"]
    assert [arm.frequencies for arm in arms(chosen, "bank_heist")] == [None, 3, 5]
    assert "--no-ablations" in chosen.command
    assert "--ablations" not in Settings().command
    ablated = [arm for arm in arms(Settings(ablated="20,32"), "seaquest") if arm.width < 128 or arm.share < 1]
    assert [arm.frequencies for arm in ablated] == [None, 20, 32] * 6
    assert not any(arm.head == "fourier" and not arm.gamma for arm in arms(Settings(ablated="20,32"), "seaquest"))
    packets = [arm for arm in arms(Settings(packets="20", seeds=2), "gravitar") if arm.head == "fourier_packets"]
    assert [(arm.frequencies, arm.seed) for arm in packets] == [(20, 0), (20, 1)]
    assert action_head("fourier_packets", 8, 20).proj.out_features == 2 * 21 + 4 * 4
    with pytest.raises(UserError, match="--ablated must be numbers from 1 on, got '0'"):
        arms(Settings(ablated="0"), "seaquest")
    assert Settings(frequencies="paper").chosen_frequencies("gravitar") == PAPER_FREQUENCIES
    for bad in ("", "a,b", "0"):
        with pytest.raises(UserError, match="--frequencies must be"):
            Settings(frequencies=bad).chosen_frequencies("seaquest")
    with pytest.raises(UserError, match="no game is called pong"):
        _ = Settings(games="pong").chosen_games


def test_rows_have_best_and_last_epochs_and_the_papers_numbers(runs):
    rows = all_rows(runs, {})
    main = [r for r in rows if r.get("width") == 128 and r["share"] == 1 and r["metric"] == "normalised_return"]
    best = {(r["head"], r["frequencies"], r["gamma"]): r for r in main if r["protocol"] == BEST}
    linear = best["linear", None, None]
    game = find_game("seaquest")
    assert linear["ours"] == pytest.approx(game.normalise(1015))  # seeds 0 to 3, each at its best epoch
    assert linear["seeds"] == 4
    assert linear["paper"] == 2.53
    papers = {key: r["paper"] for key, r in best.items() if key[0] == "fourier" and r["paper"] is not None}
    assert list(papers.values()) == [3.70]
    assert next(iter(papers))[1:] in ((14, GAMMA), (20, GAMMA))
    last = next(r for r in main if r["protocol"] == FINAL and r["head"] == "linear")
    assert last["ours"] == pytest.approx(game.normalise(995))
    assert last["paper"] is None
    speed = next(r for r in rows if r["metric"] == "contexts_per_second")
    assert speed["ours"] == 100


def test_notes_say_how_the_data_differ_and_arms_were_trained(runs):
    text = " ".join(notes(runs, 3, {}))
    assert "closed" in text
    assert "trained for 5 epochs of one context per transition in batches of 512." in text
    shorter = [run | {"samples": 1000, "batch": 64} if run["seed"] else run for run in runs]
    assert "in batches of 512; others for 5 epochs of 1000 contexts in batches of 64." in " ".join(
        notes(shorter, 0, {})
    )
    assert "3 runs of the plan are not finished" in text


def test_kept_runs_become_a_folder_with_figures_and_a_clip(settings, runs):
    store = KeptRuns(settings.data)
    for run in runs:
        keep(store, settings, run)
    # A run of another length must not be averaged in.
    store.put("other", planned(settings, runs[0]) | {"epochs": 7}, {"parameters": 1})
    quality = {"game": "seaquest", "transitions": 500_000, "steps": 5_000_000, "episodes": 400, "seconds": 300.0}
    quality |= {"steps_per_second": 15000.0, "returns": {"mean": 500.0, "q95": 900.0}, "settings": {}}
    quality |= {"first_third": [1 / 18] * 18, "last_third": [1 / 18] * 18}
    quality["over_time"] = [{"step": 100, "mean": 60.0, "std": 10.0, "episodes": 3, "length": 100.0}]
    (settings.data / "seaquest").mkdir()
    (settings.data / "seaquest" / "quality.json").write_text(json.dumps(quality))
    (settings.data / "seaquest" / "recipe.npz").write_bytes(b"how to make it again")
    summary = study.run(settings)
    assert summary is not None
    assert summary.extra["unfinished"] == 0
    again = read_summary(settings.output)
    assert again.command == "python -m studies atari --games seaquest -o atari"
    assert {r["metric"] for r in again.rows} >= {"normalised_return", "smoothness", "collect_steps_per_second"}
    for name in ("returns-and-smoothness", "epochs", "actions-seaquest", "ablations", "data-seaquest"):
        assert (settings.output / f"{name}.png").stat().st_size > 5000, name
    clip = (settings.output / "seaquest.gif").read_bytes()
    assert clip.startswith(b"GIF8")
    assert (settings.output / "recipes" / "seaquest.npz").read_bytes() == b"how to make it again"
    kept = json.loads((settings.output / "runs.json").read_text())
    assert len(kept) == len(runs)
    assert "replay" not in kept[0]["evaluations"][0]
    assert len(store.every()) == len(runs) + 1  # writing results forgets nothing
    more = dataclasses.replace(settings, seeds=5)
    wider = study.run(more)
    assert wider is not None
    assert wider.extra["unfinished"] == len(arms(more, "seaquest")) - len(runs) == 7


def test_planned_runs_of_earlier_results_are_taken_over_and_say_so(settings, runs, tmp_path):
    first, others = runs[0], runs[1] | {"recording": "another"}
    path = tmp_path / "runs.json"
    path.write_text(json.dumps([first, others, runs[2] | {"samples": 7}]))
    store = KeptRuns(settings.data)
    tasks = [Task(study.run_arm, planned(settings, run), run["label"]) for run in runs[:3]]
    study.take_over(tasks, path, store)
    (taken,) = store.every()
    assert taken == first | {"taken_from": path.as_posix()}
    assert store.get(tasks[0].label, tasks[0].settings)["evaluations"] == first["evaluations"]
    keep(store, settings, first | {"seconds": 5.0})
    study.take_over(tasks, path, store)
    assert [run["seconds"] for run in store.every()] == [5.0]  # what was trained here stays
    text = " ".join(notes([taken, *runs[1:]], 0, {}))
    assert f"1 of {len(runs)} runs are those of {path.as_posix()}" in text
    for bad in ("no JSON", "[1]"):
        path.write_text(bad)
        with pytest.raises(UserError, match=r"--reuse must name the runs\.json"):
            study.take_over(tasks, path, store)


def test_every_number_of_frequencies_is_a_curve_of_the_ablations():
    settings = Settings(games="seaquest", frequencies="20,32", ablated="20,32", seeds=1)
    found = [made_up_run(arm, "seaquest", [1.0, arm.frequencies or 2.0], 0.1) for arm in arms(settings, "seaquest")]
    chart = ablations_chart(all_rows(found, {}), found, full_size(found))
    for panel in chart.panels:
        assert [series.name for series in panel.series] == ["Linear", "Fourier-20", "Fourier-32"]
        assert [len(series.x) for series in panel.series] == [4, 4, 4]
        assert len({series.colour for series in panel.series}) == 3


def planned(settings, run):
    """Return what is known of a run before it is made."""
    return {k: v for k, v in run.items() if k in vars(settings.base) or k in ("game", "recording")}


def keep(store, settings, run):
    arm = planned(settings, run)
    store.put(run["label"], arm, {k: v for k, v in run.items() if k not in arm and k != "label"})


def test_arms_of_other_lengths_are_left_out_but_for_main_ones_of_the_papers(settings, runs):
    chosen = dataclasses.replace(settings, samples=1000)
    main = next(run for run in runs if run["width"] == 128)
    ablation = next(run for run in runs if run["width"] < 128)
    fitting = [main | {"samples": 1000}, main | {"samples": None}, ablation | {"samples": 1000}]
    others = [main | {"samples": 500}, ablation | {"samples": 500}, ablation | {"samples": None}]
    assert study.matching(chosen, fitting + others) == fitting


def test_runs_on_an_older_recording_are_left_out(settings, runs):
    store = KeptRuns(settings.data)
    for age, mark in enumerate(("new", "old")):
        for run in runs[:2]:
            before = set(store.folder.glob("*"))
            keep(store, settings, run | {"recording": mark})
            (made,) = set(store.folder.glob("*")) - before
            os.utime(made, (1e9 - age, 1e9 - age))
    keep(store, settings, runs[0] | {"game": "gravitar"})
    assert [(run["game"], run["recording"]) for run in store.every()].count(("seaquest", "new")) == 2
    assert len(store.every()) == 3


def test_notes_name_the_return_asked_for_and_episodes_that_were_cut(settings, runs):
    asked = [run | {"target": "paper", "target_return": 1150} for run in runs]
    asked[0]["evaluations"][0]["cut"] = 2
    text = " ".join(notes(asked, 0, {"seaquest": {"settings": {"sticky": 0.25}}}))
    assert "that of the released code (Seaquest 1150)" in text
    assert "2 episodes were cut at 4500 steps" in text
    assert "no sticky actions" not in text


def test_runs_of_the_papers_length_get_rows_of_their_own(settings, runs):
    shorter = dataclasses.replace(settings, samples=1000)
    store = KeptRuns(settings.data)
    own = [run | {"samples": 1000, "arms_at_once": 4} for run in runs if run["width"] == 128 and run["share"] == 1]
    for run in [*own, runs[0] | {"hardware": "a GPU"}]:
        keep(store, settings, run)
    summary = study.run(shorter)
    assert summary is not None
    linear = [r for r in summary.rows if r["head"] == "linear" and r["metric"] == "normalised_return"]
    assert {r["protocol"]: r["seeds"] for r in linear} == {
        BEST: 4,
        FINAL: 4,
        f"{BEST}, {WHOLE}": 1,
        f"{FINAL}, {WHOLE}": 1,
    }
    took = next(r for r in summary.rows if r["metric"] == "arm_seconds" and r["protocol"].endswith(WHOLE))
    assert took["ours"] == 60
    text = " ".join(summary.extra["notes"])
    assert "Up to 4 arms shared the machine" in text
    assert summary.hardware == "a GPU"


def test_a_number_of_frequencies_has_one_colour_in_all_panels():
    settings = Settings(ablations=False, seeds=1)
    found = [
        made_up_run(arm, game, [1.0, 2.0], 0.1) for game in ("seaquest", "gravitar") for arm in arms(settings, game)
    ]
    chart = epochs_chart(found)
    used = {(series.name, series.colour) for panel in chart.panels for series in panel.series}
    assert len(used) == len({name for name, _ in used}) == len({colour for _, colour in used}) == 6


def test_unfinished_arms_are_not_kept(tmp_path):
    store = KeptRuns(tmp_path)
    assert store.put("a", {"seed": 0}, UNFINISHED) == UNFINISHED
    assert store.get("a", {"seed": 0}) is None
    with pytest.raises(UserError, match="holds no finished runs"):
        study.run(Settings(data=tmp_path, summarise=True))


@pytest.mark.slow
def test_the_whole_chain_at_toy_size(tmp_path):
    settings = Settings(quick=True, data=tmp_path / "data", output=tmp_path / "atari")
    with pytest.raises(UserError, match="no finished runs yet"):
        study.run(dataclasses.replace(settings, time_limit=6.0))  # stops while it collects
    summary = study.run(settings)
    assert summary is not None
    assert summary.extra["unfinished"] == 0
    assert {r["dataset"] for r in summary.rows} == {"Seaquest", "Gravitar"}
    assert (tmp_path / "atari" / "seaquest.gif").exists()
