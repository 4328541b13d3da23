"""The study of language models as random number generators: its prompts, its scores, its arms, its folder."""

import json
import re
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

pytest.importorskip("transformers")
pytest.importorskip("peft")

from studies.common.options import parse_counts
from studies.numbers import choice, study
from studies.numbers.arms import LanguageModel, Recipe, ask_fourier, ask_text, text_batch, text_loss
from studies.numbers.charts import charts
from studies.numbers.data import TRAINED, UNSEEN, Gaussian, parse_answer, score, training_pairs, write_prompt
from studies.numbers.data import test_prompts as make_tests
from studies.numbers.study import Settings, run
from studies.numbers.tables import FOURIER_KEYS, PAPER_GAIN, rows

from fourier_head.errors import UserError
from fourier_head.integrations.language_models import tiny_model


def test_prompts_are_the_papers():
    assert write_prompt(Gaussian(0.55, 0.1), [57, 36]) == (
        "The following is a list of normally distributed random numbers in the interval [-1, 1] with mean 0.55 and std "
        "0.10: 0.57, 0.36, "
    )
    prompts, answers = training_pairs(256, 2, seed=0)
    for gaussian in TRAINED:
        mine = [a for p, a in zip(prompts, answers, strict=True) if f"mean {gaussian.mean:.2f} " in p]
        assert len(mine) == 64
        assert sum(mine) / 6400 == pytest.approx(gaussian.mean, abs=4 * gaussian.std / 8)
    assert all(-100 <= a <= 100 for a in answers)
    assert (prompts, answers) == training_pairs(256, 2, seed=0)
    assert prompts != training_pairs(256, 2, seed=1)[0]
    assert len(make_tests(UNSEEN, 0, 0)) == len(UNSEEN)
    assert not set(TRAINED) & set(UNSEEN)
    assert make_tests(TRAINED, 0, 0)[0].endswith("std 0.10: ")


@pytest.mark.parametrize(
    ("text", "number"),
    [("0.57", 0.57), (" -0.3, 0.2", -0.3), ("1.", 1.0), (".5 and", 0.5), ("+0.1\n", 0.1), ("", None), ("x 0.1", None)],
)
def test_answers_are_read_from_their_beginning(text, number):
    assert parse_answer(text) == number


def test_scores():
    gaussian = Gaussian(0.0, 0.2)
    truth = gaussian.mass(20)
    assert truth.sum().item() == pytest.approx(1)
    torch.testing.assert_close(truth, truth.flip(0))
    generator = torch.Generator().manual_seed(0)
    exact = score([x / 100 for x in gaussian.draw(20000, generator)], gaussian)
    assert exact["tvd"] < 0.03
    assert exact["tvd"] == pytest.approx(exact["tvd_all"])
    # every two-decimal number belongs to the bin that begins at it, whatever its binary fraction
    for k in range(-100, 100):
        assert score([k / 100], gaussian)["histogram"][(k + 100) // 10] == 1
    assert score([1.0], gaussian)["histogram"][19] == 1
    half = score([0.05, 0.05, None, 1.5], gaussian)
    assert (half["unique"], half["invalid"]) == (1, 0.5)
    assert half["tvd"] == pytest.approx(1 - truth[10].item())
    # half of the probability is nowhere: the distance to a truth with one more, empty bin
    assert half["tvd_all"] == pytest.approx(0.5 * (0.5 - truth[10].item() + 1 - truth[10].item() + 0.5))
    nothing = score([None, 7.0], gaussian)
    assert (nothing["tvd"], nothing["tvd_all"], nothing["unique"]) == (1.0, pytest.approx(1.0), 0)


def test_counts_are_lists_with_ranges():
    assert parse_counts("1-3, 8", "--frequencies", 1) == (1, 2, 3, 8)
    for text in ("", "a", "0", "3-1"):
        with pytest.raises(UserError, match="--frequencies must be numbers"):
            parse_counts(text, "--frequencies", 1)


@pytest.fixture(scope="module")
def language():
    return LanguageModel(*tiny_model())


def test_the_loss_of_text_needs_only_the_logits_of_answers(language):
    pairs = [([5, 6, 7, 8, 9], [10, 11, 2]), ([5, 6], [12, 2])]
    computed = []
    hook = language.model.register_forward_hook(lambda *call: computed.append(call[-1].logits.shape[1]))
    whole, cut = (text_loss(language.model, **text_batch(pairs, 0, cut=cut)) for cut in (False, True))
    hook.remove()
    assert computed == [8, 4]
    torch.testing.assert_close(whole, cut)
    alone = [
        torch.nn.functional.cross_entropy(
            language.model(input_ids=torch.tensor([prompt + answer])).logits[0, len(prompt) - 1 : -1],
            torch.tensor(answer),
            reduction="sum",
        )
        for prompt, answer in pairs
    ]
    torch.testing.assert_close(cut, sum(alone) / 5)


def test_arms_repeat_themselves_and_leave_the_model_alone(language):
    before = {key: value.clone() for key, value in language.model.state_dict().items()}
    prompts, answers = training_pairs(16, 1, seed=0)
    tests = make_tests(TRAINED[:2], 1, seed=0)
    recipe = Recipe(epochs=1, batch_size=8, answers=8)
    text = [ask_text(language, prompts, answers, tests, 3, recipe) for _ in range(2)]
    fourier = [ask_fourier(language, prompts, answers, tests, 3, recipe, frequencies=4, head_first=2) for _ in range(2)]
    assert text[0] == text[1]
    assert fourier[0] == fourier[1]
    assert all(len(row) == 8 for row in text[0][0] + fourier[0][0])
    assert all(x == round(x, 2) and -1 <= x <= 0.99 for row in fourier[0][0] for x in row)
    after = language.model.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[key], after[key]) for key in before)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model in a folder, as it is named on the command line."""
    place = tmp_path_factory.mktemp("models") / "tiny"
    for part in tiny_model(width=16, layers=1):
        part.save_pretrained(place)
    return place


@pytest.fixture
def small(tmp_path, folder):
    """Settings of a very small study."""
    return Settings(output=tmp_path / "numbers", model=str(folder), frequencies="2", seeds=1, epochs=1, quick=True)


def test_a_time_limit_writes_what_is_there_and_the_next_call_goes_on(small):
    settings = replace(small, in_context="0,2")
    early = run(replace(settings, time_limit=0.3))
    assert "left out" in early.extra["notes"][-1]
    before = json.loads((small.output / "runs.json").read_text())
    assert 0 < len(before) < 6
    assert len(list((small.output / ".partial").glob("*.json"))) == len(before)

    summary = run(settings)
    runs = json.loads((small.output / "runs.json").read_text())
    assert runs[: len(before)] == before  # to the second they took: they were not run again
    assert [(one["head"], one["in_context"]) for one in runs] == [
        (head, context) for context in (0, 2) for head in ("base", "linear", "fourier")
    ]
    assert summary.seconds == pytest.approx(sum(one["seconds"] for one in runs))
    assert summary.extra["seconds_of"] == "all runs"
    assert not (small.output / ".partial").exists()

    content = json.loads((small.output / "summary.json").read_text())
    options = "--model tiny --frequencies 2 --seeds 1 --in-context 0,2 --epochs 1 --quick"
    assert content["command"] == f"python -m studies numbers {options} -o numbers"
    assert content["sampling"] == {"temperature": 1.0, "top_p": 1.0, "top_k": None, "answers": 64}
    assert content["notes"][0].startswith("A quick look: 64 training pairs, 64 answers, 1 epochs")
    assert "left out" not in content["notes"][-1]
    found = {(r["dataset"], r["head"], r["metric"]): r for r in content["rows"]}
    for dataset in ("trained", "unseen"):
        for head in ("base", "linear", "fourier", "truth"):
            assert 0 <= found[dataset, head, "tvd"]["ours"] <= 1
            assert 0 <= found[dataset, head, "unique"]["ours"] <= 64
    assert found["trained", "fourier", "invalid"]["ours"] == 0
    assert {g.name for g in (*TRAINED, *UNSEEN)} <= {r["dataset"] for r in content["rows"]}
    assert {r["head"]: r["paper"] for r in summary.compared} == PAPER_GAIN
    for name in ("histograms.png", "in-context.png"):
        assert (small.output / name).read_bytes().startswith(b"\x89PNG")
    assert not (small.output / "frequencies.png").exists()  # one N makes no curve
    with pytest.raises(UserError, match="over before the first of the runs"):
        run(replace(settings, time_limit=0.0, seeds=2, in_context="3"))


def test_many_gaussians_are_none_of_those_scored():
    prompts, answers = training_pairs(256, 2, seed=0, many=True)
    assert len(prompts) == len(answers) == 256  # as many as of the four
    asked = {re.search(r"mean (\S+) and std (\S+):", prompt).groups() for prompt in prompts}
    assert len(asked) > 200
    assert not asked & {(f"{g.mean:.2f}", f"{g.std:.2f}") for g in (*TRAINED, *UNSEEN)}


def test_learning_rates_are_chosen_on_other_seeds(small, monkeypatch, tmp_path):
    settings = replace(small, frequencies="2,8", init_scale="1000,3", choose="1e-3,1e-2")
    settings = replace(settings, gaussians="many")
    trained = []

    def ask(chosen, language, recipe):
        """Answer at random in place of a trained model, and take a moment for it."""
        time.sleep(0.05)
        trained.append(chosen)
        generator = torch.Generator().manual_seed(len(trained))
        scores = [
            {"gaussian": g.name, "group": "trained" if g in TRAINED else "unseen"}
            | score([x / 100 for x in g.draw(8, generator)], g)
            for g in (*TRAINED, *UNSEEN)
        ]
        arm = {key: chosen[key] for key in ("head", *FOURIER_KEYS, "in_context", "seed")}
        return arm | {"learning_rate": chosen["lr"], "seconds": 0.1, "losses": [], "scores": scores}

    monkeypatch.setattr(study, "_run_one", ask)
    with pytest.raises(UserError, match="before all choices are finished"):
        run(replace(settings, time_limit=0.2))
    begun = len(trained)
    summary = run(settings)
    tries = [one for one in trained if one["seed"] in choice.SEEDS]
    assert 0 < begun < len(tries) == 2 * 2 * 3  # seeds, rates and kinds; N = 2 is none that is tried
    table = summary.extra["choices"]
    chosen = choice.best(table)
    assert {row["learning_rate"] for row in table} == {1e-3, 1e-2}
    assert set(chosen) == {("linear", None), ("fourier", 1000.0), ("fourier", 3.0)}
    for own, row in chosen.items():
        assert row["tvd"] == min(other["tvd"] for other in table if choice.kind(other) == own)
    for one in json.loads((small.output / "runs.json").read_text()):
        assert one["seed"] not in choice.SEEDS
        if one["head"] != "base":
            assert one["learning_rate"] == chosen[choice.kind(one)]["learning_rate"]
    assert any("Gaussian of its own" in note for note in summary.extra["notes"])
    fresh = replace(settings, output=tmp_path, choose=None, chosen=small.output / "summary.json", seeds=1, skip=99)
    del trained[:]
    assert run(fresh).extra["choices"] == table
    assert {one["seed"] for one in trained} == {99}, "nothing is chosen again"
    assert {one["lr"] for one in trained if one["head"] != "base"} == {row["learning_rate"] for row in chosen.values()}
    with pytest.raises(UserError, match="--gaussians must be one of paper, many"):
        run(replace(small, gaussians="all"))


def test_a_model_that_never_says_a_number_has_results_too():
    fourier = dict.fromkeys(FOURIER_KEYS, 0) | {"frequencies": 2, "init_scale": 1000.0}
    runs = [
        {"head": head, "in_context": 2, "seed": 0, "seconds": 1.0, "losses": []}
        | (fourier if head == "fourier" else dict.fromkeys(FOURIER_KEYS))
        | {"scores": [scored(g, 0.1 if head == "fourier" else None) for g in (*TRAINED, *UNSEEN)]}
        for head in ("base", "linear", "fourier")
    ]
    table = rows(runs)
    found = {(r["dataset"], r["head"], r["metric"]): r["ours"] for r in table}
    assert found["trained", "base", "invalid"] == found["trained", "base", "tvd"] == 1
    assert found["trained", "fourier", "invalid"] == 0
    assert {chart.name for chart in charts(runs, table)} == {"histograms"}


def scored(gaussian, answer):
    group = "trained" if gaussian in TRAINED else "unseen"
    return {"gaussian": gaussian.name, "group": group} | score([answer] * 4, gaussian)


def test_quick_products_are_asked_for_by_name(monkeypatch):
    monkeypatch.setattr(study, "tiny_language", lambda device: LanguageModel(*tiny_model()))
    study.load.cache_clear()
    try:
        assert study.load(None, "tf32", "cpu").model.dtype == torch.float32
        assert torch.get_float32_matmul_precision() == "high"
        study.load(None, "float32", "cpu")
        assert torch.get_float32_matmul_precision() == "highest"
    finally:
        study.load.cache_clear()
        torch.set_float32_matmul_precision("highest")


def test_blanks_between_layers_leave_none_of_them_out():
    from peft import get_peft_model

    recipe = Recipe(layers="q_proj, v_proj")
    adapted = get_peft_model(tiny_model()[0], recipe.adapter)
    assert {name.split(".")[-1] for name, part in adapted.named_modules() if hasattr(part, "lora_A")} == {
        "q_proj",
        "v_proj",
    }


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"gguf": "b.gguf"}, "give one of them"),
        ({"model": None, "gguf": "missing.gguf"}, "missing.gguf cannot be read"),
        ({"model": "no/such/model/anywhere"}, "is no language model by name, folder or .gguf file"),
        ({"dtype": "int4"}, "--dtype must be one of"),
        ({"choose": "1e-3", "chosen": Path("a.json")}, "--choose and --chosen both say"),
        ({"chosen": Path("missing.json")}, "--chosen must name the summary.json of a study with --choose"),
        ({"in_context": "-1"}, "--in-context must be"),
        ({"lora_layers": "nonsense"}, "--lora-layers must name layers"),
        ({"init_scale": "0"}, "--init-scale must be positive"),
        ({"gamma": "-1"}, "--gamma must be numbers from 0 on"),
        ({"head_first": "-1"}, "--head-first must be"),
        ({"packets": "two"}, "--packets must be numbers and ranges"),
    ],
)
def test_bad_settings_get_one_sentence(small, change, sentence):
    with pytest.raises(UserError, match=sentence):
        run(replace(small, **change))


def test_the_command_line_runs_the_study(small, monkeypatch):
    testing = pytest.importorskip("typer.testing")
    from studies.cli import app

    monkeypatch.setenv("COLUMNS", "200")
    words = ["numbers", "--quick", "--model", small.model, "--seeds", "1", "--epochs", "1", "-o", str(small.output)]
    arms = ["--frequencies", "2,4,8", "--init-scale", "1000,1", "--head-first", "0,1"]
    got = testing.CliRunner().invoke(app, [*words, *arms])
    assert got.exit_code == 0, got.output
    assert "tvd_gain_over_base" in got.output
    runs = json.loads((small.output / "runs.json").read_text())
    seconds = sum(one["seconds"] for one in runs)
    told = re.search(r"all runs added up took ([\d.]+) s", got.output)  # not that this call took it
    assert told
    assert float(told[1]) == pytest.approx(seconds, abs=0.11)
    charts = json.loads((small.output / "charts.json").read_text())
    names = {one["name"] for chart in charts for panel in chart["panels"] for one in panel["series"]}
    kinds = {f"Fourier, init scale = {scale}, head first = {first}" for scale in (1000, 1) for first in (0, 1)}
    assert names >= kinds
    assert len(runs) == 2 + 2 * len(kinds)  # quick: N = 2 and 8 only
    got = testing.CliRunner().invoke(app, ["numbers", "--quick", "--frequencies", "x", "-o", str(small.output)])
    assert got.exit_code == 2
