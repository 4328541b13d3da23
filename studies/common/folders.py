"""Where a study writes unless told otherwise."""

from __future__ import annotations

from pathlib import Path

RESULTS, QUICK_RESULTS = Path("results"), Path("results-quick")


def study_folder(study: str, quick: bool) -> Path:
    """Return the folder of a study.

    >>> study_folder("tempo", quick=False).as_posix(), study_folder("tempo", quick=True).as_posix()
    ('results/tempo', 'results-quick/tempo')
    """
    return (QUICK_RESULTS if quick else RESULTS) / study
