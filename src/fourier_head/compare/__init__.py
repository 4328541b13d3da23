"""Compare heads on the same data with the same body: the job behind ``fourier-head compare``."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from fourier_head.compare.settings import Settings

if TYPE_CHECKING:
    from fourier_head.compare.parts import Prepared
    from fourier_head.compare.results import Result
    from fourier_head.compare.training import Trained

__all__ = ["Settings", "compare"]

Echo = Callable[[str], None]


def compare(
    settings: Settings, progress: Callable[[str, int, int, float], None] | None = None, echo: Echo | None = None
) -> Result:
    """Train every head of ``settings`` on its data and write the folder of results, figures and page.

    Args:
        settings: what to do.
        progress: called after each epoch with head, epochs done, epochs in all and the last validation score.
        echo: called with each line worth telling.

    The folder appears whole at the end; nothing is left of a comparison that fails or is interrupted.
    """
    # All that may be missing or wrong comes first: an hour of training must not end in a failed import.
    from fourier_head._devices import small_matrices
    from fourier_head._files import RESULTS, replacing
    from fourier_head.compare import figures, page
    from fourier_head.compare.data import bimodal, hills, read_table
    from fourier_head.compare.parts import prepare
    from fourier_head.compare.results import TOOL, Result
    from fourier_head.compare.scores import score_truth
    from fourier_head.compare.training import planned, train, with_body
    from fourier_head.pages.drawing import save_png
    from fourier_head.pages.words import short
    from fourier_head.tasks.runs import to_json

    start = time.perf_counter()
    echo = echo or (lambda text: None)
    with replacing(settings.folder, TOOL) as folder:
        if settings.data is None or settings.target is None:
            table = bimodal(seed=settings.seed) if settings.example == "bimodal" else hills()
        else:
            table = read_table(settings.data, settings.target)
        table = table.logarithm() if settings.log else table
        data = prepare(table, settings.bins, settings.seed)
        plan = planned(settings, len(data.train))
        echo(
            f"{table.name}: {len(data.train)} rows to train on, {len(data.validation)} to choose the epoch, "
            f"{len(data.test)} to test; {data.inputs_in_words}, {settings.bins} bins of {table.target_name} "
            f"from {short(data.bins.low)} to {short(data.bins.high)}."
        )
        frequencies, reason = choose_frequencies(settings, data)
        with small_matrices():
            data = with_body(data, settings, frequencies)
        echo(f"{frequencies} {'frequency' if frequencies == 1 else 'frequencies'} of the Fourier heads. {reason}")
        notes = (*data.notes, *frequency_notes(settings, frequencies))
        for note in notes:
            echo(note)
        runs: dict[str, list[Trained]] = {name: [] for name in settings.heads}
        with small_matrices():
            for name in settings.heads:
                for i in range(settings.seeds):

                    def report(head: str, epoch: int, epochs: int, score: float, done: int = i) -> None:
                        if progress is not None:
                            progress(head, done * epochs + epoch, settings.seeds * epochs, score)

                    runs[name].append(train(name, data, settings, frequencies, settings.seed + i, plan, report))
            result = Result(settings, data, plan, frequencies, reason, runs, score_truth(data), notes)
            examples = figures.draw_examples(data, result.first)
        charts = [
            figures.densities(examples, result.names, table.target_name),
            figures.calibration(result.first),
            figures.validation(result.first),
        ]
        for chart in charts:
            save_png(chart, folder / f"{chart.name}.png")
        result.seconds = time.perf_counter() - start
        (folder / "index.html").write_text(page.build(result, charts), encoding="utf-8")
        files = [*(f.name for f in folder.iterdir()), RESULTS]
        (folder / RESULTS).write_text(to_json(result.as_dict(files), indent=1), encoding="utf-8")
    return result


def choose_frequencies(settings: Settings, data: Prepared) -> tuple[int, str]:
    """Return the number of frequencies and the reason: as asked, or from the spectrum of the data."""
    from fourier_head.frequencies import MARGINAL, suggest_frequencies

    if settings.frequencies is not None:
        return settings.frequencies, "As asked."
    if settings.bins < 3:
        return 1, "Two bins leave no room for more."
    part = data.train
    suggestion = suggest_frequencies(
        part.value,
        features=part.x if part.x.std(0).any() else None,
        domain=(data.bins.low, data.bins.high),
        num_bins=settings.bins,
        seed=settings.seed,
    )
    return suggestion.num_frequencies, suggestion.reason.replace(MARGINAL, "")


def frequency_notes(settings: Settings, frequencies: int) -> list[str]:
    """Say so where there are more frequencies than the bins can teach."""
    if 2 * frequencies < settings.bins or not any(name.startswith("fourier") for name in settings.heads):
        return []
    return [
        f"{frequencies} of {settings.bins} is more frequencies than half the bins: between the centres of the bins the "
        "Fourier densities are free, which the likelihood may show."
    ]
