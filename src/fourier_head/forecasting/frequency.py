"""Frequencies: their steps per season, as GluonTS counts them and as a model may be told, and their names in print."""

from __future__ import annotations

import functools
import re

_ALIAS = re.compile(r"^(?P<count>\d*)\s*(?P<unit>[A-Za-z]+)(-[A-Za-z0-9-]+)?$")

# Every alias, old (M, Q, A, H, T, S) and new (ME, QE, YE, h, min, s), by the unit it stands for. Case matters: MS is
# the start of a month, ms a thousandth of a second.
_UNITS = {
    "nanosecond": ("N", "ns"),
    "microsecond": ("U", "us"),
    "millisecond": ("L", "ms"),
    "second": ("S", "s", "sec"),
    "minute": ("T", "min"),
    "hour": ("H", "h"),
    "day": ("D",),
    "business day": ("B", "C"),
    "week": ("W",),
    "half month": ("SM", "SME", "SMS"),
    "month": ("M", "ME", "MS", "BM", "BME", "BMS", "CBM", "CBME", "CBMS"),
    "quarter": ("Q", "QE", "QS", "BQ", "BQE", "BQS"),
    "year": ("A", "Y", "YE", "YS", "AS", "BA", "BY", "BYE", "BYS", "BAS"),
}
_UNIT_OF = {alias: unit for unit, aliases in _UNITS.items() for alias in aliases}

_SEASON = {"second": 3600, "minute": 1440, "hour": 24, "business day": 5, "month": 12, "quarter": 4}
_NATURAL = {**_SEASON, "day": 7, "week": 52, "half month": 24}

_ADVERBS = {
    "hour": "hourly",
    "day": "daily",
    "business day": "on working days",
    "week": "weekly",
    "half month": "twice a month",
    "month": "monthly",
    "quarter": "quarterly",
    "year": "yearly",
}


def _steps(freq: str | None, per_unit: dict[str, int]) -> int:
    count, unit = parse_frequency(freq or "") or (1, "")
    steps, rest = divmod(per_unit.get(unit, 1), count)
    return steps if rest == 0 and steps > 0 else 1


def parse_frequency(freq: str) -> tuple[int, str] | None:
    """Return the count and the unit of a pandas frequency, or None where it is none of those known here.

    >>> parse_frequency("2QE-DEC"), parse_frequency("15T"), parse_frequency("often")
    ((2, 'quarter'), (15, 'minute'), None)
    """
    match = _ALIAS.match(freq.strip())
    unit = _UNIT_OF.get(match["unit"]) if match else None
    return None if match is None or unit is None else (int(match["count"] or 1) or 1, unit)


def season_length(freq: str | None) -> int:
    """Return the GluonTS default season of a pandas frequency, the one published scores are relative to.

    Years, weeks and days have season 1 there; a multiple that does not divide the season, and a frequency that is
    unknown or empty, too.

    >>> [season_length(f) for f in ("ME", "QE", "h", "30min", "15T", "D", "W-SUN", "YE", None)]
    [12, 4, 24, 48, 96, 1, 1, 1, 1]
    """
    return _steps(freq, _SEASON)


@functools.cache  # many series have few frequencies
def natural_period(freq: str | None) -> int:
    """Return the period a model may be told: as `season_length`, but 7 for days, 52 for weeks and 24 for half months.

    >>> [natural_period(f) for f in ("D", "W", "B", "5min", "10min", "SMS", "MS", "A-DEC", "")]
    [7, 52, 5, 288, 144, 24, 12, 1, 1]
    """
    return _steps(freq, _NATURAL)


def alias_of_seconds(step: int) -> str:
    """Return the pandas alias of a step in its largest unit.

    >>> [alias_of_seconds(step) for step in (90, 900, 86400, 1209600)]
    ['90s', '15min', 'D', '2W']
    """
    units = (("W", 604800), ("D", 86400), ("h", 3600), ("min", 60), ("s", 1))
    unit, size = next((unit, size) for unit, size in units if step % size == 0)
    return unit if step == size else f"{step // size}{unit}"


def frequency_in_words(freq: str) -> str:
    """Return a frequency as people say it.

    >>> [frequency_in_words(f) for f in ("ME", "B", "15min", "2QE-DEC", "250ms")]
    ['monthly', 'on working days', 'every 15 minutes', 'every 2 quarters', 'every 250 milliseconds']
    """
    count, unit = parse_frequency(freq) or (1, freq)
    if count == 1:
        return _ADVERBS.get(unit, f"every {unit}")
    return f"every {count} {unit.replace('business', 'working')}s"
