"""HTML from templates that lie beside the code they belong to; what is put into them is escaped."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from fourier_head.pages.style import css_colour
from fourier_head.pages.words import prose, short


@cache
def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("fourier_head", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(css_colour=css_colour, prose=prose, short=short)
    made.globals.update(zip=zip)
    made.tests.update(finite=math.isfinite)
    return made


def render(template: str, **values: Any) -> str:
    """Return a template of the package, such as ``compare/page.html``, with its values as HTML."""
    return _environment().get_template(template).render(**values)
