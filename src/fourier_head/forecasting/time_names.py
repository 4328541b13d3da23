"""What times and months are called in English, German, French and Spanish, whole or shortened."""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from typing import Any

import pandas as pd

_ELSEWHERE = {
    **dict.fromkeys(("datum", "fecha"), "date"),
    **dict.fromkeys(("zeit", "uhrzeit", "hora"), "time"),
    **dict.fromkeys(("stunde", "heure", "hr", "he", "hour_ending", "hour ending", "hourending"), "hour"),
    **dict.fromkeys(("woche", "semaine", "semana"), "week"),
    **dict.fromkeys(("monat", "mois", "mes"), "month"),
    **dict.fromkeys(("quartal", "trimestre"), "quarter"),
    **dict.fromkeys(("jahr", "année", "año"), "year"),
}
"""What times are called in German, French and Spanish, and hours where power is sold; 01.2024 is a month only so."""
_NAMES = """
    january february march april may june july august september october november december
    januar februar marz april mai juni juli august september oktober november dezember
    janvier fevrier mars avril mai juin juillet aout septembre octobre novembre decembre
    enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre
"""
_OTHERS = {"janner": 1, "feber": 2, "maerz": 3, "mrz": 3, "set": 9, "setiembre": 9}
"""Austrian ones, and those that are no start of a name."""
_ENGLISH = [name[:3].title() for name in _NAMES.split()[:12]]
_WORD = re.compile(r"[^\W\d_]{3,}\.?")
# A year beside a month tells it from a name with a number: Mars 1.
_WITH_YEAR = r"\d{4}|[-'’]\d\d$"


def folded(name: Any) -> str:
    """Return the name of a column without its case, that of a time in English.

    >>> folded("Store "), folded("Monat")
    ('store', 'month')
    """
    text = str(name).strip().casefold()
    return _ELSEWHERE.get(text, text)


def _numbers() -> dict[str, int]:
    """Return numbers of months by three letters of a name or more, where these are of no other month."""
    meant = defaultdict(set)
    for place, name in enumerate(_NAMES.split()):
        for size in range(3, len(name) + 1):
            meant[name[:size]].add(place % 12 + 1)
    return _OTHERS | {name: min(numbers) for name, numbers in meant.items() if len(numbers) == 1}


_NUMBERS = _numbers()


def number_of_month(text: str) -> int | None:
    """Return the number of a month by its name or the start of it, None where it is none.

    >>> [number_of_month(name) for name in ("Mär.", "août", "Sept", "ENERO", "jui", "ma")]
    [3, 8, 9, 1, None, None]
    """
    letters = unicodedata.normalize("NFKD", text.strip().rstrip(".").casefold())
    return _NUMBERS.get("".join(letter for letter in letters if not unicodedata.combining(letter)))


def in_english(text: pd.Series) -> pd.Series:
    """Return dates with the names of their months in English; other words stay.

    >>> in_english(pd.Series(["1. März 2024", "2 de enero de 2024", "1er févr. 2024", "Dez-24", "Mars 1"])).tolist()
    ['1. Mar 2024', '2 Jan 2024', '1 Feb 2024', 'Dec-24', 'Mars 1']
    """
    worded = text.str.contains(_WORD)
    if not worded.fillna(False).any():
        return text
    named = worded & text.str.contains(_WITH_YEAR)
    plain = text.str.replace(r"(?<=[\w.]) del? (?=\w)", " ", regex=True).str.replace(r"^1er\b", "1", regex=True)
    return text.where(~named, plain.map(_with_english_month, na_action="ignore"))


def _with_english_month(text: str) -> str:
    def english(word: re.Match[str]) -> str:
        number = number_of_month(word[0])
        return word[0] if number is None else _ENGLISH[number - 1]

    return _WORD.sub(english, text)
