"""The page of a comparison: one file of HTML that needs nothing else, not even a network."""

from __future__ import annotations

from html import escape

from fourier_head.compare.results import OTHER_COLUMNS, Result, hardware, minus, table, versions
from fourier_head.pages.style import HEADS, css
from fourier_head.tabular import LEARNING_RATE, WIDTHS

Pictures = dict[str, tuple[str, ...]]
"""For each figure its wide and its narrow drawing as inline SVG."""


def build(result: Result, pictures: Pictures) -> str:
    """Return the page as text."""
    data, settings = result.data, result.settings
    known = result.truth is not None
    title = f"Heads compared on {data.table.name}{' data' if known else ''}"
    captions = {
        "densities": (
            "Learned densities",
            "What each head predicts for three test inputs. "
            + (
                "Grey: the true density, known for this data set."
                if known
                else "Grey: the targets of the training rows most similar to each; triangle: what was observed there."
            ),
        ),
        "calibration": (
            "Calibration",
            "Where each observation falls in its predicted distribution (PIT): flat when the predicted probabilities "
            "are right, a hill when the predictions are too wide, a bowl when they are too narrow. Last panel: how "
            "much more, or less, of the observations central intervals hold than they claim. Grey bands: two standard "
            "deviations of pure chance.",
        ),
        "validation": (
            "Training",
            "Negative log-likelihood of the validation rows. The dot marks the weights that were kept and tested.",
        ),
    }
    sections = "".join(
        f"<h2>{heading}</h2><figure>{_picture(pictures[name])}<figcaption>{caption}</figcaption></figure>"
        for name, (heading, caption) in captions.items()
    )
    notes = "".join(f"<li>{escape(note)}</li>" for note in result.notes)
    meanings = [(m.label, m.meaning) for m in result.metrics] + [(label, text) for _, label, text in OTHER_COLUMNS]
    spread = f" Numbers after ± are standard deviations over {settings.seeds} seeds." if settings.seeds > 1 else ""
    software = ", ".join(f"{name} {version}" for name, version in versions().items())
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<link rel="icon" href="data:,">
<style>{css()}</style>
</head>
<body>
<main>
<h1>{escape(title)}</h1>
<p class="lead">{escape(_lead(result))}</p>
<h2>Scores on {len(data.test)} test rows</h2>
{_table(result)}
<p class="small muted">Lower is better throughout. Bold: the best head, and runners-up whose difference from it
is within two standard errors over the test rows.{spread}{_truth_note(result)}</p>
{sections}
<h2>What the numbers mean</h2>
<dl>{"".join(f"<dt>{escape(label)}</dt><dd>{escape(text)}</dd>" for label, text in meanings)}</dl>
<h2>How it was done</h2>
<p>{escape(_protocol(result))}</p>
<p>Number of frequencies of the Fourier heads: {result.frequencies}. {escape(result.reason)}</p>
{f"<ul>{notes}</ul>" if notes else ""}
<pre><code>{escape(settings.command)}</code></pre>
<footer>{escape(f"{result.seconds:.0f} seconds on {hardware()}. {software}.")}</footer>
</main>
</body>
</html>
"""


def _picture(drawings: tuple[str, ...]) -> str:
    wide, narrow = drawings
    return f'<div class="wide">{wide}</div><div class="narrow">{narrow}</div>'


def _lead(result: Result) -> str:
    """Say in a few sentences what was compared and what came out."""
    rows = {row["head"]: row for row in result.rows()}
    ranked = sorted((n for n in rows if rows[n]["nll"] is not None), key=lambda name: rows[name]["nll"])
    data = result.data
    count = {1: "one head", 2: "two heads", 3: "three heads", 4: "four heads", 5: "five heads"}[len(rows)]
    text = f"The same network, trained alike with {count}, predicts the distribution of {data.table.target_name}"
    text += f" from {data.inputs_in_words}."
    if result.truth is not None:
        text += (
            " The data set has two peaks wherever its inputs differ, and its mean lies between them, where the target"
            " hardly ever is."
        )
    if not ranked:
        return text
    metric = result.metrics[0]
    best = result.best(metric)
    winners = [HEADS[n].label for n in ranked if n in best]
    numbers = "; ".join(HEADS[name].label + " " + minus(f"{rows[name]['nll']:.3f}") for name in ranked)
    verb = "has" if len(winners) == 1 else "share"
    return f"{text} {_and(winners)} {verb} the best likelihood (nats per row, lower is better: {numbers})."


def _and(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _truth_note(result: Result) -> str:
    if result.truth is None:
        return ""
    return " Truth: the scores of the true density itself, a mixture of two Gaussians" + (
        ", the very form that the GMM head fits." if "gmm" in result.names and result.settings.components == 2 else "."
    )


def _table(result: Result) -> str:
    headings, lines = table(result)
    head = "".join(f'<th scope="col">{escape(text)}</th>' for text in ["Head", *headings])
    body = ""
    for line in lines:
        style = f' style="--chip:var(--{line.name})"' if line.name else ""
        texts = "".join(
            f"<td>{f'<b>{escape(text)}</b>' if bold else escape(text)}</td>"
            for text, bold in zip(line.texts, line.bold, strict=True)
        )
        kind = "" if line.name else ' class="known"'
        body += f'<tr{kind}><th scope="row"><span class="chip"{style}></span>{escape(line.label)}</th>{texts}</tr>'
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _protocol(result: Result) -> str:
    data, schedule, settings = result.data, result.schedule, result.settings
    low, high = (minus(f"{end:.4g}") for end in (data.bins.low, data.bins.high))
    return (
        f"{len(data.train)} rows to train on, {len(data.validation)} to choose the epoch, {len(data.test)} to test, "
        f"drawn with seed {settings.seed}. Inputs are standardised and the target is cut into {settings.bins} bins "
        f"from {low} to {high}, both from the training rows alone. The body has layers of "
        f"{_and([str(w) for w in WIDTHS])} units. Every head starts from the same body, sees the same rows in the same "
        f"order, and is trained on bins with Adam for {schedule.epochs} epochs in batches of {schedule.batch}, the "
        f"learning rate falling from {LEARNING_RATE:g} along a cosine; the weights with the best validation likelihood "
        f"are tested."
    )
