"""How far intervals would be off by chance: ``python -m studies.zero_shot.chance --evaluation FOLDER --gift FOLDER``.

A configuration with few windows says little of what intervals hold, the less so the more the steps of a window err
alike. Outcomes are drawn for forecasts that are right: steps hang together as is usual for the period, by the copula of
`fourier_head.forecasting.dependence`; windows and columns are drawn independently, so that chance is rather larger.
Beside it stands what `results/zero-shot/summary.json` has.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch

from fourier_head._files import write_atomically
from fourier_head.forecasting.dependence import Dependence
from fourier_head.forecasting.evaluation import EvaluationSet
from fourier_head.forecasting.frequency import natural_period
from fourier_head.forecasting.scores import INTERVALS
from studies.common.benchmark_sets import read_evaluation_sets
from studies.zero_shot.gift_eval import GROUPS, gift_configurations

SUMMARY = Path("results/zero-shot/summary.json")


def by_chance(one: EvaluationSet, draws: int, generator: torch.Generator) -> np.ndarray:
    """Return how far the intervals of right forecasts are off in each of so many draws of the outcomes of a set."""
    known = np.isfinite(one.targets())
    dependence = Dependence.usual(np.full(len(one), natural_period(one.freq)))
    held = np.zeros((draws, len(INTERVALS)))
    for draw in range(draws):
        level = torch.special.ndtr(dependence.scores(1, one.horizon, generator)[0]).cpu().numpy()
        held[draw] = [(abs(level - 0.5) <= share / 2)[known].mean() for share in INTERVALS]
    return np.asarray(abs(held - np.array(INTERVALS)).mean(1))


def table(groups: Mapping[str, Sequence[np.ndarray]], ours: Mapping[str, float]) -> str:
    """Return lines of comma-separated values: of each group what is ours, and chance: its mean and 95 % of draws.

    >>> print(table({"gift": [np.array([0.01, 0.03]), np.array([0.02, 0.04])]}, {"gift": 0.05}))
    group,sets,interval_error,chance,chance_95
    gift,2,0.0500,0.0250,0.0340
    """
    lines = ["group,sets,interval_error,chance,chance_95"]
    for group, sets in groups.items():
        mean = np.mean(sets, axis=0)
        lines.append(f"{group},{len(sets)},{ours[group]:.4f},{mean.mean():.4f},{np.quantile(mean, 0.95):.4f}")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> None:
    """Draw and write the table."""
    parser = argparse.ArgumentParser(prog="python -m studies.zero_shot.chance", description=__doc__)
    parser.add_argument("--evaluation", type=Path, required=True)
    parser.add_argument("--gift", type=Path, required=True)
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--most", type=int, default=2000, help="series of each set")
    parser.add_argument("--output", type=Path, default=Path("results/zero-shot/chance.csv"))
    given = parser.parse_args(arguments)
    rows = json.loads(SUMMARY.read_text(encoding="utf-8"))["rows"]
    ours = {row["dataset"]: row["ours"] for row in rows if row["metric"] == "interval_error" and "sets" in row}
    generator = torch.Generator().manual_seed(0)
    verified = [one.head(given.most) for one in read_evaluation_sets(given.evaluation) if one.status == "verified"]
    gift: dict[str, list[np.ndarray]] = {}
    for one in gift_configurations(given.gift):
        gift.setdefault(one.term, []).append(by_chance(one.read()[0].head(given.most), given.draws, generator))
    groups = {"verified": [by_chance(one, given.draws, generator) for one in verified]}
    groups |= {name: [one for term in terms for one in gift.get(term, ())] for name, terms in GROUPS.items()}
    text = table(groups, ours)
    write_atomically(given.output, text + "\n")
    print(text)


if __name__ == "__main__":
    main()
