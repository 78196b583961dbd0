"""A report opened from its file in a real browser: every figure drawn, nothing asked for, nothing cut off."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from app.report_html import render_report
from tests.browser import LAUNCH_ARGS, REMEDY, find_browser

pytestmark = pytest.mark.browser

# Waiting for a condition in script would need an evaluation that the page's policy forbids.
NOT_DRAWN = ".plot:not(:has(.main-svg))"
TOO_WIDE = """[...document.querySelectorAll('body *')]
    .filter((e) => !e.closest('.frame') && !e.closest('.plot'))
    .filter((e) => e.getBoundingClientRect().right > window.innerWidth + 1).map((e) => e.outerHTML.slice(0, 80))"""


@dataclass
class Visit:
    """An open report, what went wrong in it and what it asked for."""

    page: Page
    faults: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A Chromium; without one the test fails with the command that gets one."""
    executable = find_browser()
    if executable is None:
        pytest.fail(REMEDY)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=list(LAUNCH_ARGS))
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def report_path(small_report: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of the small snapshot as a file."""
    path = tmp_path_factory.mktemp("report") / "small.html"
    path.write_text(render_report(small_report), encoding="utf-8")
    return path


def _open(browser: Browser, path: Path, *, width: int, scheme: Any = "light") -> Visit:
    page = browser.new_page(viewport={"width": width, "height": 844}, color_scheme=scheme)
    page.set_default_timeout(60_000)
    visit = Visit(page)
    page.on("console", lambda message: visit.faults.append(message.text))
    page.on("pageerror", lambda error: visit.faults.append(str(error)))
    page.on("request", lambda request: visit.requests.append(request.url))
    page.goto(path.as_uri())
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    expect(page.locator(NOT_DRAWN)).to_have_count(0, timeout=60_000)
    return visit


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_every_figure_is_drawn_from_the_file_alone(browser: Browser, report_path: Path, width: int, scheme: str):
    visit = _open(browser, report_path, width=width, scheme=scheme)
    assert visit.faults == []
    assert visit.requests == [report_path.as_uri()]
    assert visit.page.locator(".plot").count() > 10
    assert visit.page.evaluate(TOO_WIDE) == []
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= width
    visit.page.close()


def test_figures_are_drawn_as_they_come_near(browser: Browser, report_path: Path):
    page = browser.new_page(viewport={"width": 1280, "height": 844})
    page.goto(report_path.as_uri())
    last = page.locator(".plot").last
    assert last.locator(".main-svg").count() == 0
    last.scroll_into_view_if_needed()
    last.locator(".main-svg").first.wait_for(timeout=60_000)
    page.close()


def test_figures_follow_the_page_s_colours(browser: Browser, report_path: Path):
    visit = _open(browser, report_path, width=1280, scheme="dark")
    ground = visit.page.locator(".plot .main-svg").first
    expect(ground).to_have_css("background-color", "rgb(20, 23, 26)", timeout=60_000)
    visit.page.emulate_media(color_scheme="light")
    expect(ground).to_have_css("background-color", "rgb(255, 255, 255)", timeout=60_000)
    visit.page.close()
