"""Section 2.3 of the paper: does dividing the first weights of a Fourier head by 1000 improve how it learns?

The density of a head does not depend on the scale of its coefficients, so that it starts from the same density whatever
its first weights are divided by. What may differ are the first steps: the same heads are trained as long as the others
of the study, and for a twentieth of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fourier_head.pages.charts import Chart, Panel, Series
from fourier_head.tasks.engine import Task
from studies.common.report.summary import Row
from studies.synthetic import data
from studies.synthetic.arms import TABLES, TITLES, Arm, find
from studies.synthetic.discrete import PROTOCOLS, train_group

SCALES = (1.0, 100.0, 1000.0)
"""He's initialisation as it is, what the released code divides it by, and what the paper says."""
EARLY = 20
"""A run is stopped after this part of its epochs, too."""
KEYS = ("dataset", "head", "frequencies", "packets", "gamma", "protocol", "init_scale", "epochs")


def tasks(protocols: Sequence[str], seeds: Sequence[int], epochs: int | None, device: str) -> list[Task]:
    """Return the runs of all starts, the long ones first."""
    arm = Arm("fourier", (TABLES,), regularised=False)
    found = []
    for protocol in protocols:
        whole = epochs or PROTOCOLS[protocol].schedule.epochs
        for length in (whole, max(1, whole // EARLY)):
            for scale in SCALES:
                more = {"protocol": protocol, "init_scale": scale}
                found += arm.tasks(train_group, seeds, length, device, **more)
    return found


def chart(rows: Sequence[Row], protocol: str) -> Chart:
    """Draw KL against what first weights are divided by, after all epochs and after a few."""
    panels = []
    for name in data.DATASETS:
        own = find(rows, protocol=protocol, dataset=name, metric="kl")
        series = []
        for i, epochs in enumerate(sorted({r["epochs"] for r in own}, reverse=True)):
            some = sorted(find(own, epochs=epochs), key=lambda r: r["init_scale"])
            x, y = ([r[key] for r in some] for key in ("init_scale", "ours"))
            spread = [r["std"] or 0.0 for r in some]
            series.append(Series(f"{epochs} epochs", x, y, f"curve-{i + 1}", error=spread, dots=True))
        panels.append(Panel(series, TITLES[name], "weights divided by", "KL divergence", x_log=True))
    caption = f"Fourier-{TABLES}, mean and deviation over seeds; lower is better."
    return Chart(f"{protocol}-start", f"First weights of a Fourier head, {protocol} protocol", panels, caption)


def told(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a task was told of its start and length, where it was.

    >>> told({"init_scale": 100.0, "epochs": 25, "seeds": [1]}), told({"epochs": None})
    ({'init_scale': 100.0, 'epochs': 25}, {})
    """
    return {key: settings[key] for key in ("init_scale", "epochs")} if "init_scale" in settings else {}
