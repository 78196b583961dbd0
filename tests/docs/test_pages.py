"""The documentation as pages: every link leads somewhere, the index knows every page, search finds what is there."""

from __future__ import annotations

import doctest
import html
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from app.config import Config
from app.main import create_app
from app.web import docs_pages, markdown
from app.web.docs_pages import find_page, find_sections, list_pages, make_address
from app.web.markdown import render_markdown

REPOSITORY = Path(__file__).resolve().parents[2]
LINK = re.compile(r'<a[^>]* href="([^"]+)"')


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """The application without a database: the documentation needs none."""
    config = Config(tmp_path_factory.mktemp("docs"), database_url="postgresql://nobody@127.0.0.1:1/none")
    with TestClient(create_app(config), headers={"Accept": "text/html"}) as client:
        yield client


def list_links(name: str) -> list[str]:
    page = find_page(name)
    assert page is not None
    return [html.unescape(target) for target in LINK.findall(page.html)]


@pytest.mark.parametrize("name", list_pages())
def test_every_link_leads_somewhere(name: str) -> None:
    for target in list_links(name):
        if target.startswith("#"):
            anchors = {heading.anchor for heading in find_page(name).headings}  # type: ignore[union-attr]
            assert target[1:] in anchors, f"{name}: {target}"
        elif target.startswith("/docs"):
            place, _, fragment = target.removeprefix("/docs").lstrip("/").partition("#")
            page = find_page(place or "index")
            assert page is not None, f"{name}: {target}"
            assert not fragment or fragment in {heading.anchor for heading in page.headings}, f"{name}: {target}"
        else:
            assert target.startswith(("https://", "http://127.0.0.1:8000/")), f"{name}: {target}"


def test_links_of_the_readme_lead_somewhere() -> None:
    text = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    targets = re.findall(r"\]\((docs/[^)]+)\)", text)
    assert len(targets) > 15
    for target in targets:
        place, _, fragment = target.removeprefix("docs/").partition("#")
        page = find_page(place.removesuffix(".md"))
        assert page is not None, target
        assert not fragment or fragment in {heading.anchor for heading in page.headings}, target


# An address with its method, also across a line's end; and one alone in backticks.
ASKED = re.compile(r"\b(GET|POST|PUT|DELETE)\s+(/[^\s`?|,;)]+)")
NAMED = re.compile(r"`(/[a-z][^\s`?]*)[^\s`]*`")


def list_routes() -> set[tuple[str, str]]:
    config = Config(Path("nowhere"), database_url="postgresql://nobody@127.0.0.1:1/none", secret_key="s" * 32)
    routes = set()
    listed: list[Any] = list(create_app(config).routes)
    for route in listed:
        for one in route.effective_route_contexts() if hasattr(route, "effective_route_contexts") else [route]:
            routes |= {(method, one.path) for method in getattr(one, "methods", None) or ()}
    return routes


ROUTES = list_routes()


def is_answered(address: str, *, method: str | None = None) -> bool:
    """Tell whether a route answers an address, or some begin with it where it ends in an ellipsis."""
    begins = address.endswith("…") or address == "/api/v1"
    for kind, route in ROUTES:
        pattern = re.sub(r"\\{[^}]+:path\\}", ".+", re.escape(route))
        pattern = re.sub(r"\\{[^}]+\\}", "[^/]+", pattern)
        for place in (address, f"/api/v1{address}"):
            fits = route.startswith(place.rstrip("…")) if begins else re.fullmatch(pattern, place)
            if fits and method in (kind, None):
                return True
    return False


@pytest.mark.parametrize("name", ["README.md", *(f"docs/{name}.md" for name in list_pages() if ".py" not in name)])
def test_every_address_that_is_named_is_answered(name: str) -> None:
    text = (REPOSITORY / name).read_text(encoding="utf-8")
    firsts = {route.split("/")[1] for _, route in ROUTES}
    asked = [(method, address.rstrip(".")) for method, address in ASKED.findall(text)]
    named = [address for address in NAMED.findall(text) if address.split("/")[1] in firsts]
    assert [f"{method} {address}" for method, address in asked if not is_answered(address, method=method)] == []
    assert [address for address in named if not is_answered(address)] == []


def test_every_address_of_rest_is_in_its_table() -> None:
    text = (REPOSITORY / "docs" / "rest-api.md").read_text(encoding="utf-8")
    told = {re.sub(r"\{[^}]+\}", "{}", address) for address in re.findall(r"(/api/v1/[^\s`?|,;]+)", text)}
    # A word stands for the address before it with another end: `unflag`, `/cancel`.
    words = set(re.findall(r"`/?([a-z-]+)[^`]*`", text))
    places = {re.sub(r"\{[^}]+\}", "{}", route) for _, route in ROUTES if route.startswith("/api/v1/")}
    assert [place for place in sorted(places - told) if place.rpartition("/")[2] not in words] == []


def test_the_index_names_every_page() -> None:
    linked = set(list_links("index")) | set(list_links("examples"))
    missing = [name for name in list_pages() if name != "index" and f"/docs/{name}" not in linked]
    assert missing == []


@pytest.mark.parametrize("name", list_pages())
def test_every_page_is_served_with_its_title(web: TestClient, name: str) -> None:
    answer = web.get("/docs" if name == "index" else f"/docs/{name}")
    page = find_page(name)
    assert page is not None
    assert answer.status_code == 200
    assert f"<title>{html.escape(page.title, quote=False)} · OTBoard</title>" in answer.text.replace("&#39;", "'")
    assert answer.text.count("<h1") == 1
    anchors = [heading.anchor for heading in page.headings]
    assert len(set(anchors)) == len(anchors)
    assert all(anchors)


@pytest.mark.parametrize("name", ["nowhere", "../README", "examples/none.py", "rest-api.md", "%2e%2e/README"])
def test_what_is_no_page_is_not_found(web: TestClient, name: str) -> None:
    assert web.get(f"/docs/{name}").status_code == 404


def test_code_tables_and_markup() -> None:
    text = "# T\n\n```console\n$ otboard serve\nready & up\n```\n\n|a|b|\n|-|-|\n|1|<script>|\n\n## T\n\n### `x` <b>\n"
    page = render_markdown(text, link=lambda target: target)
    assert '<span class="prompt"></span>otboard serve\nready &amp; up' in page.html
    assert 'data-copy="code-0"' in page.html
    assert '<div class="frame" tabindex="0" role="region" aria-label="Table"><table>' in page.html
    assert "<script>" not in page.html
    assert [(heading.text, heading.anchor) for heading in page.headings] == [("T", "t"), ("T", "t-1"), ("x <b>", "x-b")]
    assert '<h2 id="t-1">T <a class="anchor" href="#t-1"' in page.html


def test_a_link_to_another_scheme_is_left_alone() -> None:
    assert make_address("mailto:a@b.c", page="index") == "mailto:a@b.c"
    # Markdown refuses what would run as a script.
    assert "href" not in render_markdown("[x](javascript:alert(1))", link=lambda target: target).html


def test_search_finds_sections_that_hold_every_word(web: TestClient) -> None:
    found = find_sections("Realised potential")
    assert found[0].heading.text == "Realised potential"
    assert len(found) > 5
    assert find_sections("") == find_sections("xyzzyplugh") == ()
    assert {section.page for section in find_sections("misprint arXiv")} == {"/docs/efficiency-results"}
    page = web.get("/docs/search", params={"q": "looks_like_routing"})
    assert "<mark>looks_like_routing</mark>" in page.text
    assert "No section holds all of these words" in web.get("/docs/search", params={"q": "xyzzyplugh"}).text
    assert "&lt;b&gt;" in web.get("/docs/search", params={"q": "<b>"}).text
    assert web.get("/docs/search", params={"q": "x" * 201}).status_code == 422
    assert web.get("/docs/search").status_code == 200


@pytest.mark.parametrize("module", [docs_pages, markdown])
def test_examples(module: object) -> None:
    found = doctest.testmod(module)  # type: ignore[arg-type]
    assert found.attempted > 0
    assert found.failed == 0


def test_the_numbers_of_the_worked_examples_are_what_the_program_computes() -> None:
    text = (REPOSITORY / "docs" / "metrics.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    examples = doctest.DocTestParser().get_doctest("\n".join(blocks), {}, "metrics.md", "docs/metrics.md", 0)
    failures: list[str] = []
    result = doctest.DocTestRunner().run(examples, out=failures.append)
    assert result.attempted > 40
    assert failures == []
