"""Read the formulas of docstrings, which are written as Sphinx has them, in Markdown."""

from __future__ import annotations

import re
from textwrap import dedent
from typing import Any

from griffe import Extension, Object

BLOCK = re.compile(r"(?m)^(?P<indent>[ ]*)\.\. math::[ ]*(?P<first>.*)\n(?P<rest>(?:(?:(?P=indent)[ ]+.*)?\n)*)")


def markdown(text: str) -> str:
    r"""Return a docstring with its formulas and names as Markdown has them.

    >>> markdown("The square :math:`a^2` of\n\n.. math:: a = 1\n\nand :func:`torch.exp`.")
    'The square $a^2$ of\n\n$$\na = 1\n$$\n\nand `torch.exp`.'
    """

    def block(match: re.Match[str]) -> str:
        formula = "\n".join([match["first"], dedent(match["rest"])]).strip()
        lines = ["$$", *formula.splitlines(), "$$", "", ""]
        return "\n".join(match["indent"] + line if line else "" for line in lines)

    text = BLOCK.sub(block, text + "\n")
    text = re.sub(r":math:`([^`]+)`", lambda m: f"${' '.join(m[1].split())}$", text)
    text = re.sub(r":(?:func|meth|class|attr):`~?([^`]+)`", r"`\1`", text)
    # The section whose lines are code has the plural for a name.
    return re.sub(r"(?m)^( *)Example:$", r"\1Examples:", text).rstrip()


class Formulas(Extension):
    """Do that for every docstring that is loaded."""

    def on_instance(self, *, obj: Object, **kwargs: Any) -> None:
        """Rewrite the docstring of one object."""
        if obj.docstring:
            obj.docstring.value = markdown(obj.docstring.value)
