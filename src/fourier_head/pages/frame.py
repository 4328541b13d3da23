"""The frame of an interactive page: one file of HTML with its looks, its script and the charts it draws."""

from __future__ import annotations

import json
from collections.abc import Mapping
from html import escape
from typing import Any

from fourier_head.pages.layout import page_css
from fourier_head.pages.script import SCRIPT

# The browser itself then refuses to fetch anything, and says so in its console.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"


def frame(title: str, label: str, links: str, main: str, charts: Mapping[str, Any]) -> str:
    """Return a whole page.

    Args:
        title: of the page.
        label: what the links lead to, for screen readers.
        links, main: HTML of the navigation and of the page itself, its footer included.
        charts: what ``Chart.as_dict`` returns, by the names that figures in ``main`` have for them.
    """
    data = json.dumps(charts, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<link rel="icon" href="data:,">
<style>{page_css()}</style>
</head>
<body>
<div class="frame">
<nav aria-label="{label}"><div>{links}</div><button id="scheme" type="button">◐ Auto</button></nav>
<main>
{main}
</main>
</div>
<div id="tip" role="status" hidden></div>
<script type="application/json" id="charts">{data}</script>
<script>{SCRIPT}</script>
</body>
</html>
"""
