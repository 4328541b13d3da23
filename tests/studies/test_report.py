"""The report: its tables and charts, and the page in a real browser."""

import json
import math
import re
import shutil
import subprocess
from html import unescape

import matplotlib
import pytest
from studies.common import results
from studies.common.frequency_charts import frequency_panel, saying_hollow
from studies.common.report import summary as summaries
from studies.common.report.page import build, parts, write_report
from studies.common.report.tables import number_text, printed, tables
from studies.common.results import row, write_results

from fourier_head.errors import UserError
from fourier_head.pages.charts import Chart, Mark, Panel, Series
from fourier_head.pages.drawing import draw, save_png
from fourier_head.pages.embed import figure_html

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def synthetic():
    """Rows like those of the study synthetic: three data sets, heads with and without frequencies."""
    rows = []
    for dataset in ("gaussian", "gmm2", "beta"):
        for head in ("linear", "gmm", "hl_gauss"):
            rows.append(row("kl", 0.17, dataset=dataset, head=head, protocol="released", std=0.02, seeds=4, paper=0.18))
        for gamma in (0.0, 1e-6):
            for n in range(2, 21, 2):
                more = {"dataset": dataset, "frequencies": n, "packets": 0, "protocol": "released", "gamma": gamma}
                paper = {"paper": 0.5 / n, "paper_std": 0.02}
                rows.append(row("kl", 0.51 / n, head="fourier", std=0.01, seeds=4, **more, **paper))
    return rows


CHART = Chart(
    "all-kinds",
    "Every kind of curve <&>",
    [
        Panel(
            [
                Series("area", [0, 1, 2], [1, 2, 1], "truth", "area"),
                Series("line", [0, 1, 2], [1, None, 3], "linear", error=[0.1, 0.1, 0.1], dots=True),
                Series("points", [0, 1, 2], [2, 2, math.nan], "fourier", "points", hollow=True),
            ],
            "Linear axes",
            "x",
            "y",
            marks=[Mark(1.0, "one"), Mark(2.0, "two", "y")],
        ),
        Panel([Series("line", [1, 10, 1000], [1e-9, 1e-3, 10], dash="dot")], "Logarithms", x_log=True, y_log=True),
        Panel([Series("bars", ["a", "b"], [1, 2], kind="bars", error=[0.5, None])], "Names", y_range=(0, 3)),
        Panel([Series("flat", [1, 1], [5, 5])], "No extent"),
        Panel([Series("empty", [], [])], "Nothing"),
        Panel([Series("line", [1, 2], [0.31, 0.42])], "Within a decade", y_log=True, marks=[Mark(0.44, "above", "y")]),
    ],
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Results of a known study, of one with charts of its own, and of one nobody heard of."""
    path = tmp_path_factory.mktemp("results")
    patch = pytest.MonkeyPatch()
    patch.setattr(results, "save_png", lambda chart, file: file.touch())
    write_results(path / "synthetic", synthetic(), command="python -m studies synthetic", seconds=1000)
    lines = [row("exponent", 2.99, dataset="1/k^2", protocol="main term", paper=3)]
    lines += [row("exponent", -0.1, dataset="1/k^2", protocol="odd", paper=3), row("l1", 3.0, dataset="wave")]
    write_results(
        path / "scaling-law", lines, command="python -m studies scaling-law", seconds=3, charts=[CHART], notes=["A <b>"]
    )
    many = [row(m, i / 7, dataset=f"set {i}", head="quantile") for i in range(9) for m in ("mase", "wql")]
    write_results(path / "my-own_study", many, command="python -m studies mine <script>", seconds=1)
    patch.undo()
    return path


def test_every_number_of_the_paper_is_in_the_page(folder):
    path = write_report(folder)
    assert path == folder / "report.html"
    page = path.read_text()
    for name in ("synthetic", "scaling-law", "my-own_study"):
        assert f'<section id="{name}">' in page
    assert re.findall(r'<a href="#(part-[^"]*)">', page) == ["part-theory", "part-synthetic", "part-beyond"]
    for one in (line for line in synthetic() if line["paper"] is not None):
        assert f">{printed(one['paper'], one.get('paper_std'))} <i>" in page
    assert page.count(">3 <i>") == 2  # exponents
    assert "My own study" in page
    assert "python -m studies mine &lt;script&gt;" in page
    assert "A &lt;b&gt;" in page
    assert page.index('id="scaling-law"') < page.index('id="synthetic"') < page.index('id="my-own_study"')
    assert "1 of them are zero or differ in sign" in page


def test_page_refers_to_nothing_outside(folder):
    page = write_report(folder).read_text()
    assert re.findall(r"""(?:src|href)=["'](?!#|data:,)[^"']*""", page) == []
    assert not re.search(r"https?://|@import|url\((?!#)", page)
    assert str(folder) not in page


def test_errors_below_those_of_the_paper_count_as_better():
    def dots(ours, metric="kl"):
        rows = [row(metric, ours, dataset="beta", paper=0.1)]
        study = summaries.Summary("mine", "mine", "2026-01-01", None, "a machine", {}, 1.0, rows, {"core_seconds": 600})
        page = build([study], {"mine": []})
        assert "10 minutes of one core on a machine" in page
        return re.findall(r'class="dot([^"]*)"', page)

    assert dots(0.105) == [""]
    assert dots(0.08) == [" better"]
    assert dots(0.13) == [" far"]
    assert dots(0.08, "macro_f1_to_linear") == [" far"]
    assert dots(0.15, "macro_f1_to_linear") == [" better"]
    assert dots(0.08, "smoothness") == [" far"]  # lower is another number, not a better one


def test_tables_have_few_data_sets_as_columns_and_many_as_lines():
    (first,) = tables(synthetic())
    assert first.columns == ["Gaussian", "GMM-2", "Beta"]
    assert list(first.lines)[:4] == ["Linear", "GMM", "HL-Gauss", "Fourier, N = 2, γ = 0"]
    assert len(first.lines) == 23
    many = [row(m, 1.0, dataset=f"set {i}", head="linear") for i in range(20) for m in ("mase", "wql")]
    (second,) = tables(many)
    assert second.columns == ["MASE", "WQL"]
    assert len(second.lines) == 20
    text = parts().tables(tables([row("kl", 0.11, dataset="beta", head="linear", std=0.01, paper=0.1, paper_std=0.02)]))
    assert '0.1100 ± 0.0100<span class="theirs">0.10 ± 0.02 <i>+10 %</i>' in text


def test_number_text():
    got = [number_text(v) for v in (0, 12, 0.02634, 1.2345, 170.23, 1e-7, -0.5, math.inf, "x")]
    assert got == ["0", "12", "0.0263", "1.234", "170.2", "10⁻⁷", "−0.5000", "–", "–"]


def test_heads_with_frequencies_are_curves_and_others_level_lines():
    panel = frequency_panel([r for r in synthetic() if r["dataset"] == "beta"], "Beta", "KL")
    named = {series.name: series for series in panel.series if series.legend}
    assert list(named) == ["Linear", "GMM", "HL-Gauss", "Fourier, γ = 0", "Fourier, γ = 10⁻⁶"]
    assert named["Fourier, γ = 0"].x == tuple(range(2, 21, 2))
    assert named["Fourier, γ = 0"].error == (0.01,) * 10
    assert (named["GMM"].x, named["GMM"].y) == ((2, 20), (0.17, 0.17))
    assert next(s for s in panel.series if s.hollow).y[0] == 0.25  # the paper's
    assert saying_hollow("Means.", [panel]) == "Means. Hollow points: the paper's."
    without = frequency_panel([r | {"paper": None} for r in synthetic()], "Beta", "KL")
    assert saying_hollow("Means.", [without]) == "Means."
    assert not frequency_panel([row("kl", 1.0, head="linear")], "Beta", "KL").series
    few = [r for r in synthetic() if r["dataset"] == "beta" and r["frequencies"] in (None, 12)]
    alone = frequency_panel(few, "Beta", "KL")
    assert next(s.x for s in alone.series if s.name == "GMM") == (11, 13), "a line, though there is one N"


def test_charts_are_drawn_as_png(tmp_path):
    figure = draw(CHART)
    assert [axes.get_title() for axes in figure.axes[: len(CHART.panels)]] == [panel.title for panel in CHART.panels]
    figure.canvas.draw()
    assert "0.36" in [label.get_text() for label in figure.axes[len(CHART.panels) - 1].get_yticklabels()]
    save_png(CHART, tmp_path / "a.png")
    save_png(CHART, tmp_path / "b.png")
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
    with pytest.raises(ValueError, match=r"of one length, got \[2, 1\]"):
        Series("odd", [1, 2], [1])
    with pytest.raises(ValueError, match="dash must be one of"):
        Series("odd", [1], [1], dash="wavy")


def test_bad_input_is_told_in_a_sentence(tmp_path):
    with pytest.raises(UserError, match="is no folder of results"):
        write_report(tmp_path / "none")
    with pytest.raises(UserError, match="holds no results"):
        write_report(tmp_path)
    write_results(tmp_path / "x", [row("kl", 1.0)], command="c", seconds=0)
    (tmp_path / "x" / "charts.json").write_text('[{"panels": 3}]')
    with pytest.raises(UserError, match="does not hold charts"):
        write_report(tmp_path)
    (tmp_path / "x" / "charts.json").unlink()
    with pytest.raises(UserError, match="must name a file"):
        write_report(tmp_path, tmp_path)


def browse(page, tmp_path, *flags):
    """Return the page's elements after its script ran, and what the console and the network log say."""
    log = tmp_path / "network.json"
    command = [BROWSER, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
    command += [f"--disable-{what}" for what in ("background-networking", "component-update", "sync", "extensions")]
    command += [f"--user-data-dir={tmp_path / 'profile'}", f"--log-net-log={log}", "--enable-logging=stderr", "--v=0"]
    command += ["--virtual-time-budget=4000", *flags, "--dump-dom", page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    # The browser asks for things of its own, "not an origin"; what the page asks for has the page for initiator.
    requests = re.findall(r'"initiator":"(?!not an origin)[^"]*"', log.read_text())
    return done.stdout, console, requests


TRY = """<script>
const figure = [...document.querySelectorAll("figure.chart")].find((f) => f.textContent.includes("Every kind"));
for (let part = figure; part; part = part.parentElement) if (part.tagName === "DETAILS") part.open = true;
const panel = figure.querySelector(".panel"), svg = [...panel.querySelectorAll("svg")].find((s) => s.clientWidth);
const [left, right] = svg.dataset.box.split(" ").map(Number), box = svg.getBoundingClientRect();
// The middle of x = 0, 1, 2.
const clientX = box.left + (left + right) / 2 * box.width / svg.viewBox.baseVal.width;
const point = () => panel.dispatchEvent(new PointerEvent("pointermove", {clientX, clientY: 50, bubbles: true}));
const tip = document.getElementById("tip"), said = [];
point();
said.push(tip.innerText);
figure.querySelector(".legend button").click();
point();
said.push(tip.innerText);
const hidden = [...svg.querySelectorAll('[data-s="0"]')].map((part) => part.style.display);
document.body.dataset.said = JSON.stringify([...said, hidden.length && hidden.every((d) => d === "none")]);
document.getElementById("scheme").click();
</script></body>"""


@pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine to open the report in")
@pytest.mark.parametrize("flags", [("--window-size=1280,900",), ("--window-size=500,900", "--force-dark-mode")])
def test_page_in_a_browser(folder, tmp_path, flags):
    page = write_report(folder, tmp_path / "report.html")
    page.write_text(page.read_text().replace("</body>", TRY))
    dom, console, requests = browse(page, tmp_path, *flags)
    (root,) = re.findall(r"<html[^>]*>", dom)
    assert 'data-fetched="0"' in root
    assert "data-errors" not in root
    assert 'data-scheme="light"' in root, "one click from the system's scheme"
    assert console == []
    assert requests == []
    before, after, gone = json.loads(unescape(re.search(r'data-said="([^"]*)"', dom)[1]))
    assert before.split() == ["x", "=", "1", "area", "2", "points", "2"], "the line has no value there"
    assert after.split() == ["x", "=", "1", "points", "2"], "what the legend switched off says nothing"
    assert gone, "and is not drawn"


@pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine to open the report in")
def test_the_browser_test_can_fail(folder, tmp_path):
    """A page that fetches, with or without the policy that forbids it, and broken values are all caught."""
    page = write_report(folder, tmp_path / "broken.html")
    text = page.read_text().replace("</main>", '<img src="http://127.0.0.1:9/x.png"></main>')
    page.write_text(text.replace('<script type="application/json">{', '<script type="application/json">', 1))
    dom, console, _ = browse(page, tmp_path)
    assert "data-errors" in dom
    assert any("Content Security Policy" in line for line in console)
    page.write_text(re.sub(r"<meta http-equiv=[^>]*>", "", text))
    _, _, requests = browse(page, tmp_path)
    assert len(requests) == 1


def test_figures_of_a_page_have_the_same_labels_as_the_png():
    text = figure_html(CHART)
    drawings = re.findall(r"<svg viewBox.*?</svg>", text[text.index('class="panels') :], re.S)
    assert len(drawings) == len(CHART.panels)
    assert not re.search(r"NaN|nan|inf", "".join(drawings))
    assert "Every kind of curve &lt;&amp;&gt;" in text
    assert sum(label.startswith("0.") for label in labels(drawings[5])) >= 3, "though no power of ten is near"
    assert "above" in labels(drawings[5])
    power = "10⁻⁹" if matplotlib.__version_info__ >= (3, 11) else "10⁻⁸"  # which of the powers it shows changed
    assert {"1", "1000", power} <= set(labels(drawings[1]))
    assert {"a", "b"} <= set(labels(drawings[2]))
    ids = re.findall(r' id="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r"url\(#([^)]+)\)", text)) <= set(ids)
    assert "#d55e00" not in text, "colours follow the scheme"
    assert figure_html(CHART) == text


def labels(svg):
    return re.findall(r"<text[^>]*>([^<]*)</text>", svg)


def test_axes_group_thousands_but_no_decimals():
    small, large = (Panel([Series("line", [0, 1], [-one, one])], "p") for one in (0.0005, 20000.0))
    ticks = labels(figure_html(Chart("c", "c", [small, large])))
    assert {"20,000", "−10,000"} <= set(ticks), ticks
    assert not any(re.search(r"\.\d*,", tick) for tick in ticks)
    assert "0.00050" in ticks


def test_page_of_one_study_without_numbers_of_the_paper(tmp_path):
    one = write_results(tmp_path / "tempo", [row("mae", 1.0, head="linear")], command="c", seconds=8000)
    page = build([one], {"tempo": []})
    assert "Tempo of clicks" in page
    assert "2.2 hours" in page
    assert "Ours against the paper" not in page
    assert summaries.read_all(tmp_path)[0].rows == one.rows


def test_numbers_that_others_published_are_shown_but_not_counted_as_the_papers():
    lines = [row("relative_mase", 0.9, dataset="all", head="linear", paper=0.89)]
    lines.append(row("mase", 1.5, dataset="m1_yearly", head="seasonal_naive", published=1.2))
    lines.append(row("mase", None, dataset="m1_yearly", head="chronos-t5-mini", published=1.1))
    study = summaries.Summary("forecasting", "c", "2026-01-01", None, "a machine", {}, 1.0, lines)
    page = build([study], {"forecasting": []})
    assert "1 numbers have a value in the paper" in page
    assert '1.500<span class="theirs">1.2 <i>+25 %</i></span>' in page
    assert '–<span class="theirs">1.1</span>' in page
    assert "numbers that others than the paper published" in page
    assert "published\u00a0=" not in page  # a number beside ours, not part of an arm's name


def test_the_page_says_whose_seconds_were_added_up():
    lines, whose = [row("tvd", 0.1)], {"seconds_of": "all runs"}
    study = summaries.Summary("numbers", "c", "2026-01-01", None, "a machine", {}, 2285.0, lines, whose)
    assert "2026-01-01, 38 minutes, all runs added up, on a machine." in build([study], {"numbers": []})


def test_studies_that_vary_one_of_the_paper_are_shown_but_not_counted(tmp_path):
    lines = [row("relative_mase", 0.9, dataset="all", head="linear", paper=0.89)]
    studies = [
        write_results(tmp_path / name, lines, command="c", seconds=1) for name in ("forecasting", "forecasting-chronos")
    ]
    page = build(studies, {study.name: [] for study in studies})
    assert "One study of the paper, repeated by one command; 1 more varies one of them or goes beyond." in page
    assert "1 numbers have a value in the paper" in page
    assert '<section id="forecasting-chronos">' in page


def test_quick_looks_are_named_first_and_not_counted(tmp_path):
    lines = [row("kl", 0.9, dataset="beta", head="linear", paper=0.9)]
    whole = write_results(tmp_path / "synthetic", lines, command="python -m studies synthetic", seconds=1)
    marked = write_results(tmp_path / "likelihood", lines, command="c", seconds=1, quick="one seed", notes=["More."])
    assert marked.extra["notes"] == ["A quick look: one seed.", "More."]
    # Written before quick looks were marked.
    older = write_results(tmp_path / "numbers-chosen", lines, command="python -m studies numbers --quick", seconds=1)
    assert [one.quick for one in (whole, marked, older)] == [False, True, True]
    assert "numbers have a value" not in build([older], {"numbers-chosen": []})

    page = build([whole, marked, older], {"synthetic": [], "likelihood": [], "numbers-chosen": []})
    (lead,) = re.findall(r'class="lead">([^<]*)<', page)
    assert lead.startswith("Likelihood and Numbers are quick looks that measure less than the study: none of their")
    assert "One study of the paper" in lead
    assert "1 numbers have a value in the paper" in lead
    assert "Continuous likelihood (a quick look)</h2>" in page


def test_a_short_logarithmic_axis_has_few_plain_labels():
    panel = Panel([Series("line", [64, 128, 256, 550], [1, 2, 3, 4])], "p", x_log=True)
    figure = draw(Chart("c", "c", [panel]))
    figure.canvas.draw()
    axis = figure.axes[0].xaxis
    low, high = figure.axes[0].get_xlim()
    labels = [text.get_text() for text in axis.get_ticklabels(which="both") if low < text.get_position()[0] < high]
    assert [one for one in labels if one] == ["100", "200", "500"]


def test_the_first_screen_says_where_the_forecaster_stands_beside_the_best_published():
    lines = [
        row("relative_mase", 0.76, dataset="verified", head="fourier"),
        row("relative_wql", 0.61, dataset="verified", head="fourier"),
        *(row(m, None, dataset="verified", head="tirex", published=0.7) for m in ("relative_mase", "relative_wql")),
        *(row(m, None, dataset="verified", head="auto_ets", published=0.8) for m in ("relative_mase", "relative_wql")),
    ]
    limit = "It was trained on births: its scores on those are not zero-shot."
    study = summaries.Summary(
        "zero-shot", "c", "2026-01-01", None, "a machine", {}, 1.0, lines, {"notes": [limit, "More."]}
    )
    page = build([study], {"zero-shot": []})
    stands = "0.760 and 0.610 on 15 public sets (best published in WQL: TiRex, 0.700 and 0.700)."
    assert f"{stands} {limit}</span>" in page
    assert "auto_ets" not in page
