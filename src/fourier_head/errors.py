"""Errors that are the user's to mend, in one sentence."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from numbers import Integral


class UserError(Exception):
    """Say in one sentence what was wrong with the input and what was expected; commands exit with code 2."""


class MissingExtra(UserError, ImportError):
    """Say which optional dependency is missing, and the command that installs it."""


def did_you_mean(name: str, known: Iterable[str], limit: int = 12) -> str:
    """Return the end of a sentence about an unknown name: close names if there are any, else those that exist.

    >>> did_you_mean("prise", ["price", "rooms"])
    'did you mean price?'
    >>> did_you_mean("zzz", ["price", "rooms"])
    'there are price, rooms.'
    """
    names = list(known)
    # Case is the commonest slip, and difflib counts it as a different letter.
    folded = {n.casefold(): n for n in reversed(names)}
    close = [folded[n] for n in difflib.get_close_matches(name.casefold(), list(folded), n=3, cutoff=0.7)]
    if close:
        return f"did you mean {' or '.join(close)}?"
    rest = f" and {len(names) - limit} more" if len(names) > limit else ""
    return f"there are {', '.join(names[:limit])}{rest}." if names else "there are none."


def require(extra: str, *modules: str) -> None:
    """Say at once what to install where a module is missing that is needed only later: better now than after hours."""
    for name in modules:
        if find_spec(name) is None:
            raise needs_extra(ModuleNotFoundError(name=name), extra)


def needs_extra(error: ImportError, extra: str = "cli") -> MissingExtra:
    """Turn a failed import of an optional dependency into the command that installs it."""
    name = (error.name or "more").split(".")[0]
    return MissingExtra(f'this needs {name}: install it with pip install "fourier-head[{extra}]".', name=name)


@contextmanager
def needing(extra: str = "cli") -> Iterator[None]:
    """Say of imports within that fail what to install."""
    try:
        yield
    except ImportError as error:
        raise needs_extra(error, extra) from None


def is_whole(value: object, least: float = -math.inf) -> bool:
    """Tell whether a value is a whole number, of NumPy or not, and at least so much; True and 2.0 are none.

    >>> is_whole(2, 1), is_whole(0, 1), is_whole(2.0, 1), is_whole(True, 1)
    (True, False, False, False)
    """
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= least


def whole_number(name: str, value: int, least: int) -> int:
    """Return a size, or raise a clear error for what cannot be one."""
    if not is_whole(value):
        raise TypeError(f"{name} must be a whole number, got {value!r:.40}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, got {value}")
    return int(value)
