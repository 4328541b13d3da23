"""What a local clock shows: how far it is ahead of UTC, and since when."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta, timezone, tzinfo

import numpy as np

Changes = tuple[tuple[float, float], ...]
"""Timestamps, in seconds of UTC since 1970, and the seconds that the clock is ahead from each of them on."""


def changes_of(times: np.ndarray, ahead: np.ndarray) -> Changes:
    """Return when a clock was set that is so many seconds ahead at times of UTC, in their order.

    >>> changes_of(np.array([0, 10**9, 2 * 10**9], "datetime64[ns]"), np.array([3600, 7200, 7200]))
    ((0.0, 3600.0), (1.0, 7200.0))
    """
    changed = [0, *(np.flatnonzero(np.diff(ahead)) + 1)]
    return tuple((float(times[i].astype(np.int64) / 1e9), float(ahead[i])) for i in changed)


@dataclass(frozen=True)
class Clock(tzinfo):
    """A time zone of which only some offsets are known; the first and the last of them count beyond the others.

    Args:
        changes: when the clock was set and how many seconds it is ahead since, in the order of time.

    Example:
        >>> berlin = Clock(((0, 3600), (1711846800, 7200)))
        >>> datetime(2024, 3, 31, 12, tzinfo=timezone.utc).astimezone(berlin).isoformat()
        '2024-03-31T14:00:00+02:00'
    """

    changes: Changes

    def __getinitargs__(self) -> tuple[Changes]:
        return (self.changes,)

    def local(self, times: np.ndarray) -> np.ndarray:
        """Return what the clock shows at times of UTC, both datetime64[ns]."""
        starts, ahead = (np.array(side) for side in zip(*self.changes, strict=True))
        place = np.searchsorted(starts, times.astype(np.int64) / 1e9, side="right") - 1
        return times + (ahead[place.clip(0)] * 1e9).astype("timedelta64[ns]")

    def utcoffset(self, dt: datetime | None) -> timedelta:
        """Return how far ahead the clock is when it shows this; of an hour that comes twice, the second one counts."""
        return self._ahead(datetime.max if dt is None else dt, shown=True)

    def fromutc(self, dt: datetime) -> datetime:
        """Return what the clock shows at a time of UTC."""
        return dt + self._ahead(dt, shown=False)

    def _ahead(self, dt: datetime, shown: bool) -> timedelta:
        seconds = (dt.replace(tzinfo=None) - datetime(1970, 1, 1)).total_seconds()
        past = [ahead for start, ahead in self.changes if seconds >= start + shown * ahead]
        return timedelta(seconds=past[-1] if past else self.changes[0][1])

    def dst(self, dt: datetime | None) -> None:
        """Return nothing: offsets alone do not tell summer from winter."""

    def tzname(self, dt: datetime | None) -> str:
        """Return the offset in print."""
        return str(timezone(self.utcoffset(dt)))
