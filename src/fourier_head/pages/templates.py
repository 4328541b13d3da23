"""HTML from templates that lie beside the code they belong to; what is put into them is escaped."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from fourier_head.pages.style import css_colour
from fourier_head.pages.words import prose, short


@cache
def _environment(package: str) -> Environment:
    made = Environment(
        loader=PackageLoader(package, ""),
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
    return _environment("fourier_head").get_template(template).render(**values)


def template(name: str, package: str, **shared: Any) -> Template:
    """Return a template of another package; what is shared is known in all that it imports, too."""
    return _environment(package).get_template(name, globals=shared)
