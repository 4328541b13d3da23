"""Compare two scores on held-out series: ``python -m studies.zero_shot.weights OLD/score.json NEW/score.json``.

``python -m fourier_head.forecasting.patch.pretrain --score`` leaves them, of the 4 % of series held out of every set
(`series`); with ``--calibrate`` there is ``whole/score.json`` beside them, of sets left out whole (`whole`). Scores are
the new ones over the old ones; far sets are those forecast ten times as far.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from fourier_head._files import write_atomically
from fourier_head.errors import UserError
from studies.zero_shot.views import ratios, table


def compare(old: Path, new: Path) -> list[dict[str, Any]]:
    """Return of each set how many series were scored, and MASE and WQL of the new score over the old one."""
    for path in (old, new):
        if not path.is_file():
            raise UserError(f"{path} is missing: both must have it, or none.")
    before, after = (json.loads(path.read_text(encoding="utf-8"))["sets"] for path in (old, new))
    if {name: one["series"] for name, one in before.items()} != {name: one["series"] for name, one in after.items()}:
        raise UserError(f"{old} and {new} must score as many series of the same sets.")
    return ratios(*([{"dataset": name, **one[name]} for name in after] for one in (after, before)))


def main(arguments: list[str] | None = None) -> None:
    """Compare, print the table and write it where that is asked for."""
    parser = argparse.ArgumentParser(prog="python -m studies.zero_shot.weights", description=__doc__)
    parser.add_argument("old", type=Path, help="score.json")
    parser.add_argument("new", type=Path, help="score.json")
    parser.add_argument("--output", type=Path, help="file of comma-separated values")
    given = parser.parse_args(arguments)
    whole = [path.parent / "whole" / path.name for path in (given.old, given.new)]
    groups = {"whole": compare(*whole)} if any(path.is_file() for path in whole) else {}
    groups["series"] = compare(given.old, given.new)
    groups["both"] = [row for rows in groups.values() for row in rows]
    parts = {}
    for group, rows in groups.items():
        parts[group] = rows
        parts[f"{group} near"] = [row for row in rows if not row["set"].endswith("/far")]
        parts[f"{group} far"] = [row for row in rows if row["set"].endswith("/far")]
    text = table(parts)
    if given.output is not None:
        write_atomically(given.output, text + "\n")
    print(text)


if __name__ == "__main__":
    main()
