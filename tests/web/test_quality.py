"""What holds on every page there is: readable to machines and people, light and dark, on a desk and on a phone."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from fastapi.routing import APIRoute
from playwright.sync_api import Page, expect

from app import web
from app.services.analyses import ANALYSES, run_slice
from app.services.losses import keep_stops
from app.services.snapshots import get_snapshot

pytestmark = pytest.mark.browser

ARTEFACTS = Path(__file__).resolve().parents[1] / "artefacts"
AXE = (Path(__file__).resolve().parents[1] / "vendor" / "axe-core" / "axe.min.js").read_text(encoding="utf-8")
NOT_PAGES = ("/static/", "/favicon.ico")
BOARD = "/?snapshot=small&split=test&strategy=dynamic_early_exit"
# The addresses at which each page is looked at, by its route; a route that is missing here fails a test.
ADDRESSES: dict[str, tuple[str, ...]] = {
    "/": (BOARD, f"{BOARD}&model=alpha&benchmark=math", "/?snapshot=small&split=all&strategy=fixed_budget"),
    "/snapshots": ("/snapshots",),
    "/snapshots/{name}": ("/snapshots/small", "/snapshots/hidden?split=test", "/snapshots/unfrozen"),
    "/snapshots/{name}/analyses": ("/snapshots/small/analyses?split=test", "/snapshots/hidden/analyses?split=test"),
    "/snapshots/{name}/trajectories": (
        "/snapshots/small/trajectories?split=test",
        "/snapshots/small/trajectories?split=test&model=beta&benchmark=math&question_id=math-test-03&trajectory=1",
        "/snapshots/unfrozen/trajectories",
    ),
    "/submissions": ("/submissions",),
    "/submissions/{submission_id}": ("/submissions/{patience}", "/submissions/{random}?model=alpha&sort=gap"),
    "/submit": ("/submit",),
    "/methods/{name:path}": ("/methods/patience",),
    "/about": ("/about",),
    "/sign-in": ("/sign-in",),
    "/console/probe-runs": ("/console/probe-runs",),
    "/console/probe-runs/{name}": (),  # tests/web/test_console.py has runs to show
    "/console": ("/console",),
    "/console/submissions": ("/console/submissions",),
    "/console/flags": ("/console/flags",),
    "/console/allowances": ("/console/allowances",),
    "/console/work": ("/console/work",),
    "/console/audit": ("/console/audit",),
    "/console/snapshots": ("/console/snapshots",),
    "/console/snapshots/imports/{import_id}": (),  # shown with an import by the tests of the console
    "/console/rescorings": ("/console/rescorings",),
    "/console/rescorings/{rescoring_id}": (),  # likewise
    "/efficiency": ("/efficiency",),
}
ERRORS = ("/nothing/here", "/snapshots/none", "/submissions/AAAAAAAAAAAA")
MAX_SHIFT = 0.02
Open = Callable[..., Any]


def list_page_routes() -> set[str]:
    """Return the routes of all pages: what routers of `app.web` answer to GET, without the files beside the pages."""
    modules = [import_module(f"app.web.{module.name}") for module in pkgutil.iter_modules(web.__path__)]
    return {
        route.path
        for router in (module.router for module in modules if hasattr(module, "router"))
        for route in router.routes
        if isinstance(route, APIRoute) and "GET" in route.methods and not route.path.startswith(NOT_PAGES)
    }


@pytest.fixture(scope="module")
def complete_site(site: Any) -> Any:
    """The site with everything that jobs compute for the pages of its test split."""
    with site.sessions.begin() as session:
        snapshot_id = get_snapshot(session, "small").id
    for _ in ANALYSES:
        run_slice(site.sessions, snapshot_id, split="test", config=site.config)
    for submission_id in _find_ids(site).values():
        keep_stops(site.sessions, submission_id, config=site.config)
    return site


def _find_ids(site: Any) -> dict[str, str]:
    rows = site.get_json("/leaderboard?snapshot=small&split=test&strategy=dynamic_early_exit")["rows"]
    return {row["method"]: row["submission_id"] for row in rows if row["method"] in ("patience", "random")}


def _list_addresses(site: Any) -> list[str]:
    ids = _find_ids(site)
    return [
        address.replace("{patience}", ids["patience"]).replace("{random}", ids["random"])
        for addresses in (*ADDRESSES.values(), ERRORS)
        for address in addresses
    ]


def _settle(page: Page) -> None:
    if page.locator(".plot[data-figure]").count():
        page.wait_for_function(
            "[...document.querySelectorAll('.plot[data-figure]')].every((plot) => plot.querySelector('.main-svg'))"
        )


def _sign_in(site: Any, visited: Any) -> None:
    visited.page.context.add_cookies([{"name": "otboard_session", "value": site.token, "url": site.url}])


def test_every_page_has_an_address_at_which_it_is_looked_at() -> None:
    assert list_page_routes() == set(ADDRESSES)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_every_page_is_sound(complete_site: Any, visit: Open, width: int, scheme: str) -> None:
    """No console error, no other host, nothing wider than the window, one heading, no serious fault for axe."""
    ARTEFACTS.mkdir(exist_ok=True)
    visited = visit("/about", width=width, scheme=scheme, is_own=True)
    _sign_in(complete_site, visited)
    found: list[str] = []
    for number, address in enumerate(_list_addresses(complete_site)):
        visited.page.goto(complete_site.url + address)
        _settle(visited.page)
        found += [f"{address}: {fault}" for fault in _list_faults(visited.page, width)]
        visited.page.screenshot(path=ARTEFACTS / f"page-{number:02d}-{width}-{scheme}.png", full_page=True)
    faults = [fault for fault in visited.faults if "status of 404" not in fault]
    assert found == []
    assert faults == []
    assert visited.hosts == {complete_site.url.removeprefix("http://")}


def _list_faults(page: Page, width: int) -> Iterator[str]:
    if page.evaluate("document.documentElement.scrollWidth") > width:
        yield "wider than the window"
    if page.locator("h1").count() != 1:
        yield "not one main heading"
    page.evaluate(AXE)
    result = page.evaluate("axe.run(document, { resultTypes: ['violations'] })")
    for violation in result["violations"]:
        if violation["impact"] in ("serious", "critical"):
            nodes = "; ".join(node["html"][:120] for node in violation["nodes"][:3])
            yield f"{violation['id']} ({len(violation['nodes'])}): {nodes}"


@pytest.mark.parametrize("width", [1280, 360])
def test_nothing_moves_while_a_page_is_drawn(complete_site: Any, visit: Open, width: int) -> None:
    visited = visit("/about", width=width)
    moved = {}
    for address in _list_addresses(complete_site):
        visited.page.goto(complete_site.url + address)
        _settle(visited.page)
        shift = visited.page.evaluate(
            """() => new Promise((resolve) => {
                 let sum = 0;
                 new PerformanceObserver((list) => list.getEntries().forEach((entry) => { sum += entry.value; }))
                   .observe({ type: "layout-shift", buffered: true });
                 requestAnimationFrame(() => requestAnimationFrame(() => resolve(sum)));
               })"""
        )
        if shift >= MAX_SHIFT:
            moved[address] = shift
        assert visited.page.evaluate("document.documentElement.scrollWidth") <= width, address
    assert moved == {}


def test_every_page_is_readable_without_scripts(complete_site: Any, visit: Open) -> None:
    visited = visit("/about", has_scripts=False, is_own=True)
    _sign_in(complete_site, visited)
    for address in _list_addresses(complete_site):
        visited.page.goto(complete_site.url + address)
        assert visited.page.locator("h1").inner_text(), address
        assert visited.page.locator(".only-scripted:visible").count() == 0, address
        for plot in visited.page.locator("figure:has(.plot)").all():
            # Whatever a plot shows stands in a table beside it, closed or open.
            assert plot.locator("details td").count() > 0, address


def test_the_keyboard_reaches_everything_and_shows_where_it_is(complete_site: Any, visit: Open) -> None:
    page = visit(BOARD).page
    page.keyboard.press("Tab")
    skip = page.locator("a.skip")
    expect(skip).to_be_focused()
    expect(skip).to_be_in_viewport()
    page.keyboard.press("Enter")
    assert page.url.endswith("#main")
    unseen = []
    ids = _find_ids(complete_site)
    for address in ("/snapshots/small/analyses?split=test", f"/submissions/{ids['patience']}"):
        page.goto(complete_site.url + address)
        _settle(page)
        seen = set()
        for _ in range(60):
            page.keyboard.press("Tab")
            stop = page.evaluate(
                """() => {
                     const focused = document.activeElement;
                     if (focused === document.body) return null;
                     const style = getComputedStyle(focused);
                     return [focused.tagName, focused.textContent.trim().slice(0, 40), style.outlineStyle,
                             focused.getBoundingClientRect().height];
                   }"""
            )
            if stop is None:
                break
            seen.add(stop[0])
            if stop[2] == "none" or stop[3] == 0:
                unseen.append((address, *stop))
        assert {"A", "SELECT"} <= seen
    assert unseen == []


def test_the_numbers_of_a_figure_open_by_keyboard(complete_site: Any, visit: Open) -> None:
    ids = _find_ids(complete_site)
    page = visit(f"/submissions/{ids['patience']}").page
    summary = page.locator("#regret-figure summary")
    summary.focus()
    page.keyboard.press("Enter")
    expect(page.locator("#regret-figure details table")).to_be_visible()


def test_columns_say_what_they_mean_and_sort_by_a_link(complete_site: Any, visit: Open) -> None:
    ids = _find_ids(complete_site)
    page = visit(f"/submissions/{ids['random']}").page
    heads = page.locator("#settings thead th.number")
    assert all(head.get_attribute("title") for head in heads.all())
    page.get_by_role("link", name="Gap to the oracle").click()
    page.wait_for_url("**sort=gap**")
    gaps = [float(text) for text in page.locator("#settings tbody td:nth-child(4)").all_inner_texts()]
    assert gaps == sorted(gaps)
    expect(page.locator("#settings th[aria-sort='ascending']")).to_have_count(1)


@pytest.mark.parametrize("path", ["/", "/snapshots", "/submit", "/efficiency", "/about"])
def test_an_empty_installation_has_sound_pages(empty_site: Any, browser: Any, path: str) -> None:
    page = browser.new_page(viewport={"width": 390, "height": 844})
    page.goto(empty_site.url + path)
    _settle(page)
    assert list(_list_faults(page, 390)) == []
    page.close()


def test_times_carry_their_zone(complete_site: Any) -> None:
    ids = _find_ids(complete_site)
    for address in ("/snapshots/small", f"/submissions/{ids['patience']}"):
        text = complete_site.get(address).text
        times = text.split("<time ")[1:]
        assert times
        assert all(' UTC"' in time.split(">")[0] for time in times)
