"""The page of a comparison: one file of HTML that needs nothing else, not even a network."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from fourier_head.compare.results import OTHER_COLUMNS, Result, table
from fourier_head.pages.charts import Chart
from fourier_head.pages.embed import figure_html
from fourier_head.pages.frame import frame
from fourier_head.pages.style import HEADS
from fourier_head.pages.templates import render
from fourier_head.pages.words import listed, short
from fourier_head.tabular.ensemble import LEARNING_RATE
from fourier_head.tabular.inputs import BODIES
from fourier_head.tasks.runs import hardware, versions


def build(result: Result, charts: Sequence[Chart]) -> str:
    """Return the page as text."""
    title = f"Heads compared on {result.data.table.name}"
    headings, lines = table(result)
    main = render(
        "compare/page.html",
        title=title,
        lead=_lead(result),
        data=result.data,
        settings=result.settings,
        headings=headings,
        lines=lines,
        truth=_truth_note(result),
        meanings=[(m.label, m.meaning) for m in result.metrics] + [(label, text) for _, label, text in OTHER_COLUMNS],
        figures={chart.name: figure_html(chart, "h2") for chart in charts},
        protocol=_protocol(result),
        frequencies=_frequencies(result),
        notes=result.notes,
    )
    parts = {"scores": "Scores"} | {chart.name: chart.title for chart in charts} | {"how": "How it was done"}
    software = ", ".join(f"{name} {version}" for name, version in versions().items())
    return frame(title, parts, main, escape(f"{result.seconds:.0f} seconds on {hardware()}. {software}."))


COUNTS = ("no heads", "one head", "two heads", "three heads", "four heads", "five heads", "six heads")


def _lead(result: Result) -> str:
    """Say in a few sentences what was compared and what came out."""
    data = result.data
    text = f"{data.table.about} " if data.table.about else ""
    text += f"The same network, trained alike with {COUNTS[len(result.names)]}, predicts the distribution of "
    text += f"{data.table.target_name} from {data.inputs_in_words}."
    metric = result.metrics[0]
    best = result.best(metric)
    headings, lines = table(result)
    scores = {line.name: line.texts[headings.index(metric.label)] for line in lines if line.name}
    rows = {row["head"]: row[metric.key] for row in result.rows()}
    ranked = sorted((name for name in rows if rows[name] is not None), key=lambda name: rows[name])
    if not ranked:
        return text
    winners = [HEADS[name].label for name in ranked if name in best]
    numbers = "; ".join(f"{HEADS[name].label} {scores[name]}" for name in ranked)
    verb = "has" if len(winners) == 1 else "share"
    return f"{text} {listed(winners)} {verb} the best likelihood (nats per row, lower is better: {numbers})."


def _truth_note(result: Result) -> str:
    if result.truth is None:
        return ""
    return " Truth: the scores of the true density itself, a mixture of two Gaussians" + (
        ", the very form that the GMM head fits." if "gmm" in result.names and result.settings.components == 2 else "."
    )


def _frequencies(result: Result) -> str:
    """Say how many frequencies the Fourier heads have, and why."""
    text = f"Number of frequencies of the Fourier heads: {result.frequencies}. {result.reason}"
    if "fourier-adaptive" in result.names:
        text += (
            f" The adaptive head, which moves and stretches its density with the inputs, has "
            f"{result.frequencies_of('fourier-adaptive')}, and learns from the values themselves instead of their bins."
        )
    return text


def _protocol(result: Result) -> str:
    data, plan, settings = result.data, result.plan, result.settings
    widths, activation = BODIES[data.body]
    low, high = short(data.bins.low), short(data.bins.high)
    log = ""
    if data.table.log:
        what = data.table.target_name.removeprefix("log ")
        log = f" The heads predict the logarithm of {what}; NLL is that of {what} itself, CRPS and RMSE are of the "
        log += "logarithm."
    return (
        f"{len(data.train):,} rows to train on, {len(data.validation):,} to choose the epoch, {len(data.test):,} to "
        f"test, drawn with seed {settings.seed}. Inputs are standardised and the target is cut into {settings.bins} "
        "bins "
        f"from {low} to {high}, neither from test rows. The network is one of those of FourierRegressor ({data.body}), "
        f"with layers of {listed(list(map(str, widths)))} units and {activation.__name__} between them. Every head "
        f"starts from the same network, sees the same rows in the same order, and is trained on bins with AdamW for at "
        f"most {plan.epochs} epochs in batches of {plan.batch}, the learning rate falling from {LEARNING_RATE:g} along "
        f"a cosine; the mean of the last weights is followed, and tested where it has the best validation "
        f"likelihood.{log}"
    )
