"""What the site needs beyond Markdown: pages from outside of docs/, formulas as MathML, words for every public name."""

from __future__ import annotations

import logging
import posixpath
import re
from functools import cache
from html import unescape
from pathlib import Path
from typing import Any

import griffe
from latex2mathml.converter import convert
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[2]
log = logging.getLogger("mkdocs.plugins.site")

# Pages and pictures that live elsewhere in the repository; on the site they have the same path.
OUTSIDE = ("CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "benchmarks/RESULTS.md")
OUTSIDE += ("benchmarks/results/*.png", "results/*/*.png")


@cache
def outside() -> frozenset[str]:
    """Return the paths of those files, relative to the root of the repository."""
    return frozenset(p.relative_to(ROOT).as_posix() for pattern in OUTSIDE for p in ROOT.glob(pattern))


def on_files(files: Files, config: Any) -> Files:
    """Add the files from outside of docs/, and leave out what only makes pictures and tests."""
    for path in sorted(outside()):
        files.append(File.generated(config, path, abs_src_path=str(ROOT / path)))
    for file in list(files):
        if file.src_uri.endswith(".py"):
            files.remove(file)
    return files


def fenced(markdown: str) -> str:
    r"""Put examples that stand in the text as they are between fences; Markdown takes ``>>>`` for a quotation.

    >>> fenced("Add:\n\n>>> 1 + 1\n2\n\nDone.")
    'Add:\n\n```python\n>>> 1 + 1\n2\n```\n\nDone.'
    """
    parts = re.split(r"(?ms)(^```.*?^```$)", markdown)  # what stands between fences already has every odd place
    parts[::2] = [
        re.sub(r"(?m)^>>> .*\n(?:.+\n?)*", lambda m: f"```python\n{m[0].rstrip()}\n```\n", p) for p in parts[::2]
    ]
    return "".join(parts)


def on_page_markdown(markdown: str, page: Any, **kwargs: Any) -> str:
    """Lead links of the repository to pages of the site; what is no page keeps its words."""
    markdown = fenced(markdown)
    here = page.file.src_uri if page.file.src_uri in outside() else f"docs/{page.file.src_uri}"
    folder = posixpath.dirname(page.file.src_uri)

    def lead(match: re.Match[str]) -> str:
        text, link, anchor = match["text"], match["link"], match["anchor"] or ""
        path = posixpath.normpath(posixpath.join(posixpath.dirname(here), link))
        if path in outside():
            return f"[{text}]({posixpath.relpath(path, folder or '.')}{anchor})"
        if path.startswith("docs/"):
            return f"[{text}]({posixpath.relpath(path.removeprefix('docs/'), folder or '.')}{anchor})"
        if not (ROOT / path).exists():
            log.warning(f"{here} links to {link}, which does not exist")
        return text if "`" in text or path == text else f"{text} (`{path}`)"

    return re.sub(r"(?<!!)\[(?P<text>[^\]]+)\]\((?P<link>(?!\w+:)[^)#\s]+)(?P<anchor>#[^)]*)?\)", lead, markdown)


def on_post_page(output: str, page: Any, **kwargs: Any) -> str:
    """Turn formulas into MathML, which browsers draw without a script or a font from elsewhere."""

    def draw(match: re.Match[str]) -> str:
        block = match["tag"] == "div"
        try:
            formula = convert(unescape(match["tex"]), display="block" if block else "inline")
        except Exception as error:
            log.warning(f"{page.file.src_uri}: formula {match['tex']!r}: {error}")
            return match[0]
        return f'<{match["tag"]} class="formula">{formula}</{match["tag"]}>'

    pattern = r'<(?P<tag>span|div) class="arithmatex">\\[(\[](?P<tex>.*?)\\[)\]]</(?P=tag)>'
    return re.sub(pattern, draw, output, flags=re.S)


def on_pre_build(config: Any) -> None:
    """Warn where the reference has not exactly the public names, or one of them says nothing of itself."""
    package = griffe.load("fourier_head", search_paths=[str(ROOT / "src")])
    reference = "".join(p.read_text(encoding="utf-8") for p in (ROOT / "docs" / "api").glob("*.md"))
    public = {str(name) for name in package.exports or ()} - {"__version__"}
    listed = set(re.findall(r"(?m)^::: fourier_head\.(?!integrations\.)(.+)$", reference))
    for name in sorted(public ^ listed):
        log.warning(f"{name} is {'public and not' if name in public else 'not public and'} in docs/api")
    for name in sorted(public & listed):
        for where in undocumented(package[name]):
            log.warning(f"{where} is public and has no docstring")


def undocumented(thing: Any) -> list[str]:
    """Return the public names of a function or class, itself included, that have no docstring."""
    thing = thing.final_target if thing.is_alias else thing
    found = [] if thing.has_docstring else [thing.path]
    if thing.is_class:
        for name, member in thing.members.items():
            if (
                not name.startswith("_")
                and name != "extra_repr"
                and not member.is_alias
                and member.is_function
                and not member.has_docstring
            ):
                parents = [base for base in thing.mro() if name in base.members]
                if not any(base.members[name].has_docstring for base in parents):
                    found.append(member.path)
    return found
