"""Where a study writes unless told otherwise."""

from __future__ import annotations

from pathlib import Path

RESULTS, QUICK_RESULTS = Path("results"), Path("results-quick")


def study_folder(study: str, quick: bool, output: Path | None = None) -> Path:
    """Return the folder of a study: the one asked for, else its own; a quick look never replaces full results.

    >>> study_folder("tempo", quick=False).as_posix(), study_folder("tempo", quick=True).as_posix()
    ('results/tempo', 'results-quick/tempo')
    """
    if output is not None:
        return output
    return (QUICK_RESULTS if quick else RESULTS) / study
