"""Which columns name the series of a table: the fewest that, with the time, tell every row from the others."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

TARGETS = (
    *("target", "value", "y", "values", "sales", "demand", "quantity", "count", "amount", "load", "price"),
    *("units", "sold", "qty", "revenue", "rev", "turnover", "close", "volume", "consumption", "visitors"),
)
NAMES = (
    *("item_id", "unique_id", "series_id", "id", "series", "item", "key", "name", "sku", "store", "product", "symbol"),
    *("shop", "region", "country", "state", "city", "location", "site", "station", "category", "family", "department"),
    *("dept", "brand", "channel", "segment", "customer", "meter", "sensor", "device", "ticker", "warehouse", "branch"),
)
_LAST_WORDS = {"id", "key", "code", "nbr", "no", "nr", "num", "number", "name"}
"""Of columns that name something: store_nbr, ProductCode."""
_MOST = 4
"""Columns that may name a series together."""
_LIKELY = 8
"""Columns that are tried together."""
_SLIPS = 0.03
"""Share of rows that may be there twice by mistake."""


def folded(name: Any) -> str:
    """Return the name of a column without its case."""
    return str(name).strip().casefold()


def words_of(name: Any) -> list[str]:
    """Return the words of a column's name.

    >>> words_of("store_nbr"), words_of("InvoiceDate"), words_of("SKU")
    (['store', 'nbr'], ['invoice', 'date'], ['sku'])
    """
    return [word.casefold() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[^\W\d_A-Z]+", str(name))]


def names_things(name: Any) -> bool:
    """Tell whether a column is called after things that have series: store_nbr, Product, sensor id."""
    words = words_of(name)
    return folded(name) in NAMES or (len(words) > 1 and words[-1] in _LAST_WORDS)


def guess_names(
    frame: pd.DataFrame, columns: Sequence[str], measures: Sequence[str], when: np.ndarray | None
) -> tuple[str, ...]:
    """Return the columns that name series; none where no two rows share a moment, unless one is called a name.

    Args:
        columns: those that may.
        measures: those of them that hold numbers, which are names only where they are whole and no words will do.
        when: the moments of the rows, None where there are none.

    Example:
        >>> import pandas as pd
        >>> table = pd.DataFrame({"town": list("aabb"), "size": list("xzxz"), "sold": [1, 2, 3, 4]})
        >>> guess_names(table, ["town", "size"], [], np.zeros(4, "datetime64[ns]"))
        ('town', 'size')
    """
    import pandas as pd

    counts = {c: frame[c].nunique(dropna=False) for c in columns}
    alone = when is not None and bool((when == when[0]).all())
    # What is different in every row counts rows, as the id of many tables does.
    columns = [c for c in columns if counts[c] < len(frame) or (alone and c not in measures)]
    known = sorted((c for c in columns if folded(c) in NAMES), key=lambda c: NAMES.index(folded(c)))
    words = [c for c in columns if c not in measures and not pd.api.types.is_bool_dtype(frame[c])]
    if when is None:
        return tuple(known[:1] or words)
    codes = pd.DataFrame({c: pd.factorize(frame[c], use_na_sentinel=False)[0] for c in columns})
    codes = codes.assign(when=when)[~may_be_set_back(when)]

    def apart(chosen: Sequence[str], slips: float = 0.0) -> bool:
        some = codes[[*chosen, "when"]]
        return all(part.duplicated().mean() <= slips for part in (some.head(20_000), some)) or not len(some)

    # What is called a name costs nothing, other words a little, and other whole numbers more: few of them are names.
    cost = {c: 0 if names_things(c) else 1 if c in words else 5 for c in columns}
    fit = [c for c in columns if c not in measures or (folded(c) not in TARGETS and _whole(frame[c]))]
    likely = sorted(fit, key=lambda c: (cost[c], known.index(c) if c in known else len(known)))[:_LIKELY]
    sets = [some for size in range(1, _MOST + 1) for some in combinations(likely, size)]
    sets.sort(key=lambda some: (sum(cost[c] for c in some), len(some)))
    if not apart(()):
        # First by names alone; then a few rows may be there twice, rather than that the weather becomes a name.
        named = (some for some in sets if not any(cost[c] for c in some) and apart(some))
        nearly = (some for some in [(), *sets] if apart(some, _SLIPS))
        found = next(named, None) or next(nearly, tuple(known[:1] or words))
        if found:
            return tuple(c for c in columns if c in found)
    return tuple((known or [c for c in columns if counts[c] == 1 and names_things(c)])[:1])


def _whole(column: pd.Series) -> bool:
    import pandas as pd

    values = pd.to_numeric(column, errors="coerce").dropna()
    return bool((values == values.round()).all())


def may_be_set_back(moments: np.ndarray) -> np.ndarray:
    """Tell which moments are in an hour that local clocks may show twice: the night of a Sunday in autumn.

    >>> may_be_set_back(np.array(["2024-10-27T01", "2024-10-27T02", "2024-10-28T02"], "datetime64[ns]")).tolist()
    [True, True, False]
    """
    days = moments.astype("datetime64[D]")
    clock = (moments - days).astype(np.int64)
    month = moments.astype("datetime64[M]").astype(np.int64) % 12 + 1
    night = (clock < 4 * 3600 * 10**9) & (days.astype(np.int64) % 7 == 3) & np.isin(month, (4, 9, 10, 11))
    return night & bool(clock.any())
