"""The frame of every page: one file of HTML with looks and script, which needs nothing else, not even a network."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from importlib import resources

from fourier_head.pages.style import css
from fourier_head.pages.templates import render
from fourier_head.version import __version__


def frame(title: str, parts: Mapping[str, str], main: str, footer: str = "") -> str:
    """Return a whole page.

    Args:
        title: of the page.
        parts: what the links on the side are called, by the id of the element they lead to.
        main: HTML of the page itself; figures come from `embed.figure_html`.
        footer: HTML in front of the sentence on figures.
    """
    main, shared = _share_styles(main)
    script = resources.files(__package__).joinpath("page.js").read_text(encoding="utf-8")
    values = {"title": title, "parts": parts, "main": main, "footer": footer, "version": __version__}
    return render("pages/frame.html", styles=css() + shared, script=script, **values)


def _share_styles(main: str) -> tuple[str, str]:
    """Return the page with the styles that many parts of its figures repeat as classes, and the rules of these.

    >>> _share_styles('<path d="M 0 0" style="fill: none; stroke: red"/>' * 9)[1]
    '.y0{fill: none; stroke: red}'
    """
    part = re.compile(r'(<(?:path|use|text) [^>]*?)style="([^"]{12,})"')
    counts = Counter(style for _, style in part.findall(main))
    names = {style: f"y{i}" for i, (style, count) in enumerate(counts.most_common()) if count > 8}

    def named(found: re.Match[str]) -> str:
        return f'{found[1]}class="{names[found[2]]}"' if found[2] in names else found[0]

    return part.sub(named, main), "".join(f".{name}{{{style}}}" for style, name in names.items())
