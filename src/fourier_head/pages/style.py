"""One look for every figure and page: a colour-blind-safe colour and a line style for each head.

Figures are drawn once, in the light colours. Inside a page they are SVG whose colours become CSS variables, so the same
drawing follows the reader's light or dark scheme.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any


@dataclass(frozen=True)
class Look:
    """The name of a head in print, its colours on light and dark ground, and its line style by name."""

    label: str
    light: str
    dark: str
    dash: str = ""


# Okabe and Ito's palette, the dark variants lifted until they stand out from near-black; styles differ as well.
HEADS = {
    "linear": Look("Linear", "#d55e00", "#f08a3c", "dot"),
    "gmm": Look("GMM", "#009e73", "#2fc79b", "dash"),
    "hl-gauss": Look("HL-Gauss", "#b8578f", "#e29ac4", "dashdot"),
    "fourier": Look("Fourier", "#3aa0dc", "#8fd0f7"),
    "fourier-packets": Look("Fourier + packets", "#0a5c9e", "#4a9bee"),
    "fourier-adaptive": Look("Adaptive Fourier", "#7a5cc7", "#b39df0"),
}

# Heads that only studies train. `HEADS` is also the list of heads a comparison offers, so they live apart.
STUDY_HEADS = {
    "gmm_full": Look("GMM, full", "#6b8e00", "#a9cc3d"),
    "hl_gauss": Look("HL-Gauss", "#b8578f", "#e29ac4"),
    "regression": Look("Regression", "#8a6d3b", "#c9a76b"),
    "quantile": Look("Quantile", "#7a5cc7", "#b39df0"),
}

# Curves that are not heads, in the order they are handed out.
CURVES = {
    "curve-1": Look("", "#0a5c9e", "#4a9bee"),
    "curve-2": Look("", "#d55e00", "#f08a3c"),
    "curve-3": Look("", "#009e73", "#2fc79b"),
    "curve-4": Look("", "#b8578f", "#e29ac4"),
    "curve-5": Look("", "#3aa0dc", "#8fd0f7"),
}

# Ink, secondary ink, hairlines, the fill of what is known to be true, and the ground.
INKS = {
    "ink": ("#1c2127", "#e8eaed"),
    "muted": ("#666d78", "#9aa3ae"),
    "line": ("#dfe3e8", "#31373f"),
    "truth": ("#c9cfd7", "#4a525d"),
    "paper": ("#fdfdfc", "#15181c"),
}

FONTS = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif'


def ink(name: str) -> str:
    """Return a colour of the light scheme by name."""
    return INKS[name][0]


def look(name: str) -> Look:
    """Return the look of a head, a curve or an ink by name; what is unknown is drawn in ink under its own name."""
    known = HEADS.get(name) or STUDY_HEADS.get(name) or CURVES.get(name)
    if known is not None:
        return known
    light, dark = INKS.get(name, INKS["ink"])
    return Look(name.replace("_", " ").capitalize(), light, dark)


@contextmanager
def styled() -> Iterator[None]:
    """Draw in this style within the block, whatever the user's own matplotlib settings are."""
    import matplotlib

    inks = {"text.color": "ink", "axes.edgecolor": "muted", "axes.labelcolor": "muted", "xtick.color": "muted"}
    inks |= {"ytick.color": "muted", "grid.color": "line", "figure.facecolor": "paper"}
    with resources.as_file(resources.files(__package__).joinpath("figures.mplstyle")) as path:
        sheet = matplotlib.rc_params_from_file(path, use_default_template=False)
    settings: Any = {**matplotlib.rcParamsDefault, **sheet, **{key: ink(name) for key, name in inks.items()}}
    settings.pop("backend", None)
    with matplotlib.rc_context(settings):
        yield


@cache
def colour_names() -> dict[str, str]:
    """Return the CSS variable of each colour of the light scheme, in which figures are drawn."""
    return {light: f"var(--{name})" for name, (light, _) in reversed(colours().items())}


def css_colour(name: str) -> str:
    """Return the CSS variable of a head, a curve or an ink; what is unknown is in ink.

    >>> css_colour("linear"), css_colour("nobody")
    ('var(--linear)', 'var(--ink)')
    """
    return f"var(--{name})" if name in colours() else "var(--ink)"


def colours() -> dict[str, tuple[str, str]]:
    """Return all colours by name, on light and on dark ground."""
    return INKS | {name: (each.light, each.dark) for name, each in {**HEADS, **STUDY_HEADS, **CURVES}.items()}


def css() -> str:
    """Return the stylesheet of every page: the colours of both schemes, the reader's choice of one, and `page.css`."""
    light, dark = ("".join(f"--{name}:{pair[i]};" for name, pair in colours().items()) for i in (0, 1))
    return (
        f":root{{color-scheme:light dark;--sans:{FONTS};{light}}}\n"
        f"@media (prefers-color-scheme:dark){{:root{{{dark}}}}}\n"
        f":root[data-scheme=light]{{color-scheme:light;{light}}}:root[data-scheme=dark]{{color-scheme:dark;{dark}}}\n"
        + resources.files(__package__).joinpath("page.css").read_text(encoding="utf-8")
    )
