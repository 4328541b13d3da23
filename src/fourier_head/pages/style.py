"""One look for every figure and page: a colour-blind-safe colour and a line style for each head, and the page's CSS.

Figures are drawn once, in the light colours. Inside a page they are inline SVG whose colours become CSS variables, so
the same drawing follows the reader's light or dark scheme.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Look:
    """The name of a head in print, its colours on light and dark ground, and its line style."""

    label: str
    light: str
    dark: str
    dash: Any = "-"


# Okabe and Ito's palette, the dark variants lifted until they stand out from near-black; styles differ as well.
HEADS = {
    "linear": Look("Linear", "#d55e00", "#f08a3c", (0, (1, 1))),
    "gmm": Look("GMM", "#009e73", "#2fc79b", (0, (4, 1.5))),
    "hl-gauss": Look("HL-Gauss", "#b8578f", "#e29ac4", (0, (6, 1.5, 1, 1.5))),
    "fourier": Look("Fourier", "#3aa0dc", "#8fd0f7", "-"),
    "fourier-packets": Look("Fourier + packets", "#0a5c9e", "#4a9bee", "-"),
}

# Heads that only studies train. `HEADS` is also the list of heads a comparison offers, so they live apart.
STUDY_HEADS = {
    "gmm_full": Look("GMM, full", "#6b8e00", "#a9cc3d", (0, (4, 1.5))),
    "hl_gauss": Look("HL-Gauss", "#b8578f", "#e29ac4", (0, (6, 1.5, 1, 1.5))),
    "regression": Look("Regression", "#8a6d3b", "#c9a76b", (0, (2, 2))),
    "quantile": Look("Quantile", "#7a5cc7", "#b39df0", (0, (6, 2))),
}

# Curves that are not heads, in the order they are handed out.
CURVES = {
    "curve-1": Look("", "#0a5c9e", "#4a9bee", "-"),
    "curve-2": Look("", "#d55e00", "#f08a3c", (0, (5, 1.5))),
    "curve-3": Look("", "#009e73", "#2fc79b", (0, (1.5, 1.2))),
    "curve-4": Look("", "#b8578f", "#e29ac4", (0, (6, 1.5, 1, 1.5))),
    "curve-5": Look("", "#3aa0dc", "#8fd0f7", (0, (3, 1))),
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


def figure_settings() -> dict[str, Any]:
    """Return matplotlib settings: no box, hairlines, small grey ticks, text kept as text in SVG."""
    return {
        "font.family": "sans-serif",
        "font.sans-serif": ["DejaVu Sans"],
        "font.size": 9,
        "text.color": ink("ink"),
        "axes.edgecolor": ink("muted"),
        "axes.linewidth": 0.6,
        "axes.labelcolor": ink("muted"),
        "axes.labelsize": 8.5,
        "axes.titlesize": 9.5,
        "axes.titleweight": "bold",
        "axes.titlepad": 6,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.facecolor": "none",
        "axes.unicode_minus": True,
        "axes.axisbelow": True,
        "figure.facecolor": ink("paper"),
        "grid.color": ink("line"),
        "grid.linewidth": 0.6,
        "xtick.color": ink("muted"),
        "ytick.color": ink("muted"),
        "xtick.labelsize": 8,
        "ytick.labelsize": 8,
        "xtick.major.width": 0.6,
        "ytick.major.width": 0.6,
        "xtick.major.size": 3,
        "ytick.major.size": 3,
        "legend.frameon": False,
        "legend.fontsize": 8.5,
        "lines.linewidth": 1.6,
        "svg.fonttype": "none",
        "savefig.dpi": 180,
    }


@contextmanager
def styled(**more: Any) -> Iterator[None]:
    """Draw in this style within the block, whatever the user's own matplotlib settings are."""
    import matplotlib

    settings: Any = {**matplotlib.rcParamsDefault, **figure_settings(), **more}
    settings.pop("backend", None)
    with matplotlib.rc_context(settings):
        yield


def as_inline_svg(figure: Figure, name: str, description: str) -> str:
    """Return a figure as SVG for a page: colours as CSS variables, no prolog, no metadata, its own ids."""
    buffer = io.StringIO()
    with styled(**{"svg.hashsalt": name}):
        figure.savefig(
            buffer,
            format="svg",
            transparent=True,
            metadata={"Date": None, "Creator": None, "Format": None, "Type": None},
        )
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", svg, flags=re.DOTALL)
    # A hundredth of a point is finer than any screen, and half the size of the file.
    svg = re.sub(r"-?\d+\.\d{3,}", lambda m: f"{float(m[0]):.2f}", svg)
    # Ids need to be unique in the whole page: matplotlib numbers the parts of each figure alike.
    svg = re.sub(r'id="([^"]+)"', rf'id="{name}-\1"', svg)
    svg = re.sub(r'(href="|url\()#', rf"\1#{name}-", svg)
    svg = (
        re.sub(r'\s(?:xmlns(?::xlink)?|version|width|height)="[^"]*"', "", svg.split(">", 1)[0])
        + ">"
        + svg.split(">", 1)[1]
    )
    svg = re.sub(r"font-family: [^;\"]+|font: ([0-9.]+px) [^;\"]+", _font, svg)
    for variable, (colour, _) in INKS.items():
        svg = svg.replace(colour, f"var(--{variable})")
    for key, look in HEADS.items():
        svg = svg.replace(look.light, f"var(--{key})")
    return svg.replace("<svg", f'<svg role="img" aria-label="{description}"', 1)


def _font(match: re.Match[str]) -> str:
    return f"font: {match[1]} var(--sans)" if match[1] else "font-family: var(--sans)"


def schemes() -> tuple[str, str]:
    """Return the CSS variables of the light and of the dark scheme."""
    out = []
    for dark in (False, True):
        inks = {name: pair[dark] for name, pair in INKS.items()}
        looks = {**HEADS, **STUDY_HEADS, **CURVES}
        colours = {name: each.dark if dark else each.light for name, each in looks.items()}
        out.append("".join(f"--{name}:{value};" for name, value in {**inks, **colours}.items()))
    return out[0], out[1]


def css() -> str:
    """Return the stylesheet of a page: variables for both schemes, type, tables, figures; fit for a phone."""
    light, dark = schemes()
    return (
        f":root{{color-scheme:light dark;--sans:{FONTS};{light}}}\n"
        f"@media (prefers-color-scheme:dark){{:root{{{dark}}}}}\n{_CSS}"
    )


_CSS = """
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%}
body{margin:0;background:var(--paper);color:var(--ink);font:16px/1.6 var(--sans);font-variant-numeric:tabular-nums}
main{max-width:68rem;margin:0 auto;padding:3.5rem 1.5rem 4rem}
h1{font-size:1.9rem;line-height:1.2;letter-spacing:-.02em;margin:0 0 .6rem;font-weight:650}
h2{font-size:1.15rem;letter-spacing:-.01em;margin:3.2rem 0 .6rem;font-weight:650}
p{max-width:44rem;margin:.6rem 0}
.lead{font-size:1.1rem;line-height:1.55}
.muted,figcaption,footer{color:var(--muted)}
figcaption,footer,.small{font-size:.875rem;line-height:1.5}
figure{margin:1rem 0 0}
figcaption{max-width:44rem;margin-top:.6rem}
figure svg{display:block;width:100%;height:auto}
.narrow{display:none}
.scroll{overflow-x:auto;margin:1rem 0 .4rem}
table{border-collapse:collapse;width:100%;font-size:.94rem}
th,td{padding:.5rem .9rem;text-align:right;white-space:nowrap;border-bottom:1px solid var(--line)}
thead th{font-weight:500;color:var(--muted);font-size:.82rem;border-bottom-color:var(--muted);vertical-align:bottom}
th:first-child,td:first-child{text-align:left;padding-left:0;position:sticky;left:0;background:var(--paper)}
tbody th{font-weight:500}
td:last-child,th:last-child{padding-right:0}
td b{font-weight:700}
tr.known td,tr.known th{color:var(--muted);font-style:italic}
.chip{display:inline-block;width:.7em;height:.7em;border-radius:50%;margin-right:.55em;background:var(--chip,var(--truth))}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.35rem 1.4rem;margin:.8rem 0;max-width:52rem}
dt{font-weight:600}
dd{margin:0}
ul{padding-left:1.2rem;max-width:44rem}
code,pre{font:.875em/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
pre{overflow-x:auto;padding:.8rem 1rem;border:1px solid var(--line);border-radius:6px;margin:.8rem 0}
footer{margin-top:3.5rem;padding-top:1rem;border-top:1px solid var(--line)}
@media (max-width:46rem){
main{padding:2rem 1.1rem 3rem}
h1{font-size:1.55rem}
.wide{display:none}
.narrow{display:block}
dl{grid-template-columns:1fr;gap:.1rem}
dd{margin-bottom:.6rem}
th,td{padding:.45rem .6rem}
th:first-child,td:first-child{padding-right:.9rem}
tbody th:first-child{white-space:normal;min-width:7.4rem}
}
@media print{main{padding:0}.narrow{display:none}.wide{display:block}}
"""
