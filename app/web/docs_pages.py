"""The documentation as pages, rendered from the Markdown files that are shipped, and a search over it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from posixpath import normpath
from typing import Annotated
from urllib.parse import urlsplit

from fastapi import APIRouter, Query, Request, Response
from starlette.exceptions import HTTPException

from app.config import resource_dir
from app.web.markdown import Heading, RenderedText, Section, render_markdown
from app.web.security import ReaderDep
from app.web.templating import render_page

router = APIRouter(include_in_schema=False)

INDEX = "index"
NAME = re.compile(r"[a-z0-9][a-z0-9-]*|examples/[a-z0-9][a-z0-9_-]*\.py")
CELL = re.compile(r"^# %%(?P<kind> \[markdown\])?.*\n", re.MULTILINE)
SNIPPET_CHARACTERS = 180
MAX_FOUND = 30
TITLE_WEIGHT = 10
HEADING_WEIGHT = 5


@dataclass(frozen=True)
class FoundSection:
    """A section in which all words of a search occur: its page, its heading, and text around the first word."""

    page: str
    title: str
    heading: Heading
    before: str
    word: str
    after: str


@router.get("/docs")
def show_index(request: Request, reader: ReaderDep) -> Response:
    """Show the index of the documentation."""
    return _show(request, reader, INDEX)


@router.get("/docs/search")
def search_docs(request: Request, reader: ReaderDep, q: Annotated[str, Query(max_length=200)] = "") -> Response:
    """Show the sections in which all words that were asked for occur."""
    found = find_sections(q)
    return render_page(request, "docs_search.html", reader=reader, query=q, found=found, pages=list_pages())


@router.get("/docs/{name:path}")
def show_doc(name: str, request: Request, reader: ReaderDep) -> Response:
    """Show one page."""
    return _show(request, reader, name)


def list_pages() -> tuple[str, ...]:
    """Return the names of all pages, the index first, scripts last."""
    folder = resource_dir("docs")
    pages = sorted(path.stem for path in folder.glob("*.md") if path.stem != INDEX)
    scripts = sorted(f"examples/{path.name}" for path in folder.glob("examples/*.py"))
    return INDEX, *pages, *scripts


def find_page(name: str) -> RenderedText | None:
    """Return a page as HTML; None where there is none of this name."""
    path = resource_dir("docs") / (name if name.endswith(".py") else f"{name}.md")
    if not NAME.fullmatch(name) or not path.is_file():
        return None
    return _render(name, path, path.stat().st_mtime_ns)


def make_address(target: str, *, page: str) -> str:
    """Return the address under which a link of a page's text leads on this server.

    Examples
    --------
    >>> make_address("metrics.md#e3", page="index"), make_address("../metrics.md", page="examples/routing.py")
    ('/docs/metrics#e3', '/docs/metrics')
    >>> make_address("#top", page="index"), make_address("https://example.org/", page="index")
    ('#top', 'https://example.org/')
    """
    parts = urlsplit(target)
    if parts.scheme or not parts.path or parts.path.startswith("/"):
        return target
    folder = page.rpartition("/")[0]
    place = normpath(f"{folder}/{parts.path}" if folder else parts.path).removesuffix(".md")
    fragment = f"#{parts.fragment}" if parts.fragment else ""
    return f"/docs{fragment}" if place == INDEX else f"/docs/{place}{fragment}"


def find_sections(query: str) -> tuple[FoundSection, ...]:
    """Return the sections in which every word of a query occurs, those first whose heading has all of them."""
    words = query.lower().split()
    if not words:
        return ()
    scored = []
    for order, name in enumerate(list_pages()):
        page = find_page(name)
        for idx, section in enumerate(page.sections if page else ()):
            if page and (score := _score(section, page.title, words)):
                is_named = all(word in section.heading.text.lower() for word in words)
                scored.append((not is_named, -score, order, idx, _show_found(name, page.title, section, words)))
    return tuple(found for *_, found in sorted(scored, key=lambda entry: entry[:4])[:MAX_FOUND])


def _show(request: Request, reader: ReaderDep, name: str) -> Response:
    page = find_page(name)
    if page is None:
        raise HTTPException(404)
    return render_page(request, "docs.html", reader=reader, page=page, is_index=name == INDEX)


@cache
def _render(name: str, path: Path, _: int) -> RenderedText:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        text = write_notebook(text)
    return render_markdown(text, link=lambda target: make_address(target, page=name))


def write_notebook(script: str) -> str:
    """Return a script of `# %%` cells as Markdown: cells marked `[markdown]` as text, the others as code.

    Examples
    --------
    >>> print(write_notebook("# %% [markdown]\\n# # Title\\n#\\n# Text.\\n# %%\\nx = 1\\n"))
    # Title
    <BLANKLINE>
    Text.
    <BLANKLINE>
    ```python
    x = 1
    ```
    """
    marks = list(CELL.finditer(script))
    ends = [mark.start() for mark in marks[1:]] + [len(script)]
    cells = []
    for mark, end in zip(marks, ends, strict=True):
        body = script[mark.end() : end].strip("\n")
        is_text = mark["kind"] is not None
        cells.append(re.sub(r"^# ?", "", body, flags=re.MULTILINE) if is_text else f"```python\n{body}\n```")
    return "\n\n".join(cells)


def _score(section: Section, title: str, words: Sequence[str]) -> int:
    """Count the words of a query in a section; 0 unless each occurs in its text, its heading or its page's title."""
    text, heading, name = section.text.lower(), section.heading.text.lower(), title.lower()
    counts = [
        text.count(word) + HEADING_WEIGHT * (word in heading) + TITLE_WEIGHT * (word in name and word in heading)
        for word in words
    ]
    return sum(counts) if all(counts) else 0


def _show_found(name: str, title: str, section: Section, words: Sequence[str]) -> FoundSection:
    text = section.text
    places = [place for word in words if (place := text.lower().find(word)) >= 0]
    start = min(places, default=0)
    length = len(words[0]) if places else 0
    length = next((len(word) for word in words if text.lower().startswith(word, start)), length)
    before = text[max(0, start - SNIPPET_CHARACTERS // 3) : start]
    after = text[start + length : start + length + SNIPPET_CHARACTERS]
    page = "/docs" if name == INDEX else f"/docs/{name}"
    return FoundSection(page, title, section.heading, before, text[start : start + length], after)
