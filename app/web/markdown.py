"""Markdown as HTML in the look of the pages: headings with anchors, tables in frames, code that can be copied."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token

CONSOLE_LANGUAGES = frozenset({"console"})
PROMPT = "$ "
TOC_LEVELS = ("h2", "h3")


@dataclass(frozen=True)
class Heading:
    """A heading: its tag, its text without markup, and the anchor under which it is found."""

    tag: str
    text: str
    anchor: str


@dataclass(frozen=True)
class Section:
    """The plain text under a heading, down to the next one of any level; for searching."""

    heading: Heading
    text: str


@dataclass(frozen=True)
class RenderedText:
    """A text as HTML, with what is found in it."""

    html: str
    headings: tuple[Heading, ...]
    sections: tuple[Section, ...]

    @property
    def title(self) -> str:
        """The text of the first heading."""
        return self.headings[0].text if self.headings else ""

    @property
    def contents(self) -> tuple[Heading, ...]:
        """The headings that a table of contents lists."""
        return tuple(heading for heading in self.headings if heading.tag in TOC_LEVELS)


def render_markdown(text: str, *, link: Callable[[str], str]) -> RenderedText:
    """Render CommonMark with tables; HTML inside it is shown as text, and links go through `link`."""
    parser = MarkdownIt("commonmark", {"html": False, "typographer": False}).enable("table")
    for kind, rule in _RULES.items():
        parser.add_render_rule(kind, rule)
    tokens = parser.parse(text)
    headings = _name_headings(tokens)
    for token in tokens:
        for child in token.children or ():
            if child.type == "link_open":
                child.attrSet("href", link(str(child.attrGet("href") or "")))
    return RenderedText(parser.renderer.render(tokens, parser.options, {}), headings, _split_sections(tokens, headings))


def make_anchor(text: str) -> str:
    """Return the anchor of a heading, by the rule of the code hosts, so that links work there too.

    Examples
    --------
    >>> make_anchor("Does a 95 % interval cover?"), make_anchor("`POST /submissions` & co")
    ('does-a-95--interval-cover', 'post-submissions--co')
    """
    return re.sub(r"[^\w\- ]", "", text.lower().strip()).replace(" ", "-")


def _name_headings(tokens: Sequence[Token]) -> tuple[Heading, ...]:
    """Give every heading its anchor, a repeated one with a number as code hosts do."""
    seen: dict[str, int] = {}
    found = []
    for token, inline in pairwise(tokens):
        if token.type != "heading_open":
            continue
        text = _plain(inline)
        anchor = make_anchor(text)
        count = seen[anchor] = seen.get(anchor, -1) + 1
        heading = Heading(token.tag, text, f"{anchor}-{count}" if count else anchor)
        token.attrSet("id", heading.anchor)
        found.append(heading)
    return tuple(found)


def _plain(inline: Token) -> str:
    kept = {"text", "code_inline", "softbreak"}
    return "".join(" " if c.type == "softbreak" else c.content for c in inline.children or () if c.type in kept)


def _split_sections(tokens: Sequence[Token], headings: Sequence[Heading]) -> tuple[Section, ...]:
    texts: list[list[str]] = []
    in_heading = False
    for token in tokens:
        if token.type == "heading_open":
            texts.append([])
            in_heading = True
        elif token.type == "heading_close":
            in_heading = False
        elif texts and not in_heading and token.type in ("inline", "fence", "code_block"):
            texts[-1].append(_plain(token) if token.type == "inline" else token.content)
    return tuple(
        Section(heading, " ".join(" ".join(parts).split())) for heading, parts in zip(headings, texts, strict=True)
    )


def _close_heading(_: RendererHTML, tokens: Sequence[Token], idx: int, *__: Any) -> str:
    opened = tokens[idx - 2]
    anchor, title = escape(str(opened.attrGet("id"))), escape(_plain(tokens[idx - 1]))
    link = f' <a class="anchor" href="#{anchor}" aria-label="Link to “{title}”">#</a>' if opened.tag != "h1" else ""
    return f"{link}</{opened.tag}>\n"


def _show_code(_: RendererHTML, tokens: Sequence[Token], idx: int, *__: Any) -> str:
    token = tokens[idx]
    language = token.info.strip().split(" ")[0]
    name = f"code-{sum(1 for other in tokens[:idx] if other.type in ('fence', 'code_block'))}"
    content = _mark_prompts(token.content) if language in CONSOLE_LANGUAGES else escape(token.content, quote=False)
    return (
        f'<div class="code"><pre id="{name}" tabindex="0"><code>{content}</code></pre>'
        f'<button type="button" class="only-scripted" data-copy="{name}">Copy</button></div>\n'
    )


def _mark_prompts(text: str) -> str:
    """Draw the prompt of a command by the style sheet, so that copying leaves it out."""
    return "".join(
        f'<span class="prompt"></span>{escape(line.removeprefix(PROMPT), quote=False)}'
        if line.startswith(PROMPT)
        else escape(line, quote=False)
        for line in text.splitlines(keepends=True)
    )


_RULES: dict[str, Callable[..., str]] = {
    "heading_close": _close_heading,
    "fence": _show_code,
    "code_block": _show_code,
    "table_open": lambda *_: '<div class="frame" tabindex="0" role="region" aria-label="Table"><table>\n',
    "table_close": lambda *_: "</table></div>\n",
}
