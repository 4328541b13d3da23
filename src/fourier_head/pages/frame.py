"""The frame of every page: one file of HTML with looks and script, which needs nothing else, not even a network."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from importlib import resources

from fourier_head.pages.style import css
from fourier_head.version import __version__

# The browser itself then refuses to fetch anything, and says so in its console.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"


def frame(title: str, parts: Mapping[str, str], main: str, footer: str = "") -> str:
    """Return a whole page.

    Args:
        title: of the page.
        parts: what the links on the side are called, by the id of the element they lead to.
        main: HTML of the page itself; figures come from `embed.figure_html`.
        footer: HTML in front of the sentence on figures.
    """
    links = "".join(f'<a href="#{escape(id)}">{escape(words)}</a>' for id, words in parts.items())
    script = resources.files(__package__).joinpath("page.js").read_text(encoding="utf-8")
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<link rel="icon" href="data:,">
<style>{css()}</style>
</head>
<body>
<div class="frame">
<nav aria-label="Parts of this page"><div>{links}</div><button id="scheme" type="button">◐ Auto</button></nav>
<main>
{main}
<footer>{footer} Made by fourier-head {__version__}. Hover or touch a figure for its values; names in a legend switch
curves off and on.</footer>
</main>
</div>
<div id="tip" role="status" hidden></div>
<script>{script}</script>
</body>
</html>
"""
