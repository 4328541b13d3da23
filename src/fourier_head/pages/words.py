"""Numbers and sentences as pages print them."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from html import escape

_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def short(value: float, digits: int = 4) -> str:
    """Return a number of some digits without zeros that say nothing; very small and large ones as powers of ten.

    >>> short(0.1163), short(-3.0), short(1e-6), short(2.5e-7), short(18234.2), short(1.5e12)
    ('0.1163', '−3', '10⁻⁶', '2.5 × 10⁻⁷', '18,234', '1.5 × 10¹²')
    """
    if not math.isfinite(value):
        return "–"
    text = f"{value:,.0f}" if 10**digits <= abs(value) < 1e9 else f"{value:.{digits}g}"
    lead, power, exponent = text.replace("-", "−").partition("e")
    if not power:
        return lead
    return ("" if lead == "1" else f"{lead} × ") + f"10{str(int(exponent.replace('−', '-'))).translate(_RAISED)}"


def prose(text: str) -> str:
    """Return a sentence as HTML, what stands in backticks as code.

    >>> prose("`a < b` holds")
    '<code>a &lt; b</code> holds'
    """
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))


def listed(names: Sequence[str], most: int = 12) -> str:
    """Return names in print.

    >>> listed(["a"]), listed(["a", "b", "c"]), listed(["a", "b", "c"], most=1)
    ('a', 'a, b and c', 'a and 2 more')
    """
    shown = list(names) if len(names) <= most else [*names[:most], f"{len(names) - most} more"]
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)
