"""What holds on every page there is: readable to machines and people, light and dark, on a desk and on a phone."""

from __future__ import annotations

import pkgutil
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from fastapi.routing import APIRoute
from playwright.sync_api import BrowserContext, Page, expect

from app import web
from app.evaluator.scorers import SCORERS
from app.services import probe_runs, rescoring
from app.services.analyses import ANALYSES, run_slice
from app.services.losses import keep_stops
from app.services.snapshot_imports import begin_path_import
from app.services.snapshots import get_snapshot
from app.services.submissions import withdraw_submission
from app.web.docs_pages import list_pages
from tests.measured_runs import create_run, fail_item, make_questions, measure_items
from tests.other_scorer import score_with_penalty
from tests.signing_in import session_cookie

pytestmark = pytest.mark.browser

ARTEFACTS = Path(__file__).resolve().parents[1] / "artefacts"
AXE = (Path(__file__).resolve().parents[1] / "vendor" / "axe-core" / "axe.min.js").read_text(encoding="utf-8")
# Files beside the pages, and what a script of the board fetches for it.
NOT_PAGES = ("/static/", "/favicon.ico", "/figures/", "/board-rows/")
BOARD = "/?snapshot=small&split=test&strategy=dynamic_early_exit"
# The addresses at which each page is looked at, by its route; a route that is missing here fails a test. What is in
# braces is an id of `Ids`. Addresses that begin with * are looked at signed in, as an organiser.
ADDRESSES: dict[str, tuple[str, ...]] = {
    "/": (BOARD, f"{BOARD}&model=alpha&benchmark=math", "/?snapshot=small&split=all&strategy=fixed_budget"),
    "/snapshots": ("/snapshots",),
    "/snapshots/{name}": ("/snapshots/small", "/snapshots/hidden?split=test", "/snapshots/unfrozen"),
    "/snapshots/{name}/analyses": (
        "/snapshots/small/analyses?split=test",
        "/snapshots/small/analyses?split=train",
        "/snapshots/hidden/analyses?split=test",
    ),
    "/snapshots/{name}/trajectories": (
        "/snapshots/small/trajectories?split=test",
        "/snapshots/small/trajectories?split=test&model=beta&benchmark=math&question_id=math-test-03&trajectory=1",
        "/snapshots/unfrozen/trajectories",
    ),
    "/submissions": ("*/submissions",),
    "/submissions/{submission_id}": (
        "/submissions/{patience}",
        "/submissions/{random}?model=alpha&sort=gap",
        "*/submissions/{patience}",
        "*/submissions/{waiting}",
        "*/submissions/{rejected}",
    ),
    "/submit": ("/submit", "*/submit"),
    "/methods/{name:path}": ("/methods/patience",),
    "/compare": ("/compare?submissions={patience},{random}",),
    "/about": ("/about",),
    "/docs": ("/docs",),
    "/docs/search": ("/docs/search?q=frontier+cell", "/docs/search?q=nothingofthekind"),
    "/docs/{name:path}": ("/docs/metrics", "/docs/submitting", "/docs/examples/early_exit.py"),
    "/efficiency": ("/efficiency", "/efficiency?benchmark=GSM8K&backbone=Qwen2.5-7B-Instruct"),
    "/sign-in": ("/sign-in",),
    "/sign-in/link": ("/sign-in/link",),
    "/sign-in/provider": ("/sign-in/provider",),  # without a provider there is none of these: an error page
    "/sign-in/provider/callback": (),
    "/sign-in/provider/finish": (),
    "/sign-up": ("/sign-up",),
    "/forgot-password": ("/forgot-password",),
    "/reset-password": ("/reset-password",),
    "/confirm-email": ("/confirm-email",),
    "/account": ("*/account",),
    "/teams": ("*/teams",),
    "/teams/{name}": ("*/teams/local",),
    "/join-team": ("/join-team",),
    "/console": ("*/console",),
    "/console/accounts": ("*/console/accounts",),
    "/console/allowances": ("*/console/allowances",),
    "/console/audit": ("*/console/audit",),
    "/console/efficiency-results": ("*/console/efficiency-results",),
    "/console/flags": ("*/console/flags",),
    "/console/probe-runs": ("*/console/probe-runs",),
    "/console/probe-runs/{name}": ("*/console/probe-runs/looked-at", "*/console/probe-runs/looked-at-broken"),
    "/console/rescorings": ("*/console/rescorings",),
    "/console/rescorings/{rescoring_id}": ("*/console/rescorings/{rescoring}",),
    "/console/snapshots": ("*/console/snapshots",),
    "/console/snapshots/imports/{import_id}": ("*/console/snapshots/imports/{import}",),
    "/console/submissions": ("*/console/submissions",),
    "/console/work": ("*/console/work",),
}
ERRORS = ("/nothing/here", "/snapshots/none", "/submissions/AAAAAAAAAAAA", "/console", "/?limit=none")
REFUSED = re.compile(r"the server responded with a status of 4\d\d")
MAX_SHIFT = 0.02
NARROWEST = 360
PHONE = 390
MEASURE_SHIFT = """() => new Promise((resolve) => {
  let sum = 0;
  new PerformanceObserver((list) => list.getEntries().forEach((entry) => { sum += entry.value; }))
    .observe({ type: "layout-shift", buffered: true });
  requestAnimationFrame(() => requestAnimationFrame(() => resolve(sum)));
})"""
LIST_UNREACHABLE = (Path(__file__).parent / "list_unreachable.js").read_text(encoding="utf-8")
Open = Callable[..., Any]
Ids = dict[str, str]


def list_page_routes() -> set[str]:
    """Return the routes of all pages: what routers of `app.web` answer to GET, without the files beside the pages."""
    modules = [import_module(f"app.web.{module.name}") for module in pkgutil.iter_modules(web.__path__)]
    return {
        route.path
        for router in (module.router for module in modules if hasattr(module, "router"))
        for route in router.routes
        if isinstance(route, APIRoute) and "GET" in (route.methods or ()) and not route.path.startswith(NOT_PAGES)
    }


@pytest.fixture(scope="module")
def ids(site: Any) -> Iterator[Ids]:
    """What the pages are about, on the site with everything that jobs compute for the pages of its test split."""
    with site.sessions.begin() as session:
        snapshot_id = get_snapshot(session, "small").id
    for _ in ANALYSES:
        run_slice(site.sessions, snapshot_id, split="test", config=site.config)
    rows = site.get_json("/leaderboard?snapshot=small&split=test&strategy=dynamic_early_exit")["rows"]
    found = {row["method"]: row["submission_id"] for row in rows if row["method"] in ("patience", "random")}
    for submission_id in found.values():
        keep_stops(site.sessions, submission_id, config=site.config)
    found["rejected"] = site.submit(b"model,benchmark,question,action\nalpha,math,math-test-03,x\n", method="rejected")
    site.score(found["rejected"])
    found["waiting"] = site.submit(b"model,benchmark,question_id,trajectory,action\n", method="waiting")
    with site.sessions.begin() as session:
        create_run(session, "looked-at", question_sets=[make_questions(n_questions=9)])
        measure_items(session, probe_runs.get_run(session, "looked-at"), n_items=4)
        fail_item(session, create_run(session, "looked-at-broken", model="small"), reason="out of memory " + "x" * 80)
        found["import"] = str(begin_path_import(session, path="/nowhere/at-all.zip", actor="local").id)
    with _open_rescoring(site) as rescoring_id:
        yield {**found, "rescoring": str(rescoring_id)}
    with site.sessions.begin() as session:
        withdraw_submission(session, found["waiting"], account=site.author)


@contextmanager
def _open_rescoring(site: Any) -> Iterator[int]:
    """A re-scoring that is under way; the other scorer is there only to begin it."""
    SCORERS["2"] = score_with_penalty
    with site.sessions.begin() as session:
        begun = rescoring.start_rescoring(session, snapshot_name="small", split="test", strategy=None, actor="local")
    del SCORERS["2"]
    yield begun.id
    with site.sessions.begin() as session:
        rescoring.cancel_rescoring(session, begun.id, actor="local")


def _list_addresses(ids: Ids) -> list[tuple[str, bool]]:
    """Return every address with whether it is looked at signed in."""
    addresses = [address for addresses in (*ADDRESSES.values(), ERRORS) for address in addresses]
    return [(address.removeprefix("*").format_map(ids), address.startswith("*")) for address in addresses]


def _settle(page: Page) -> None:
    expect(page.locator(".plot[data-figure]:not(:has(.main-svg))")).to_have_count(0)


def _sign_in(site: Any, context: BrowserContext) -> None:
    cookies = session_cookie(site.sessions, site.config)
    context.add_cookies([{"name": name, "value": value, "url": site.url} for name, value in cookies.items()])


def test_every_page_has_an_address_at_which_it_is_looked_at() -> None:
    assert list_page_routes() == set(ADDRESSES)


@pytest.mark.parametrize("width", [1280, PHONE])
def test_every_page_is_sound(site: Any, ids: Ids, visit: Open, width: int) -> None:
    """No console error, no other host, nothing wider than the window, nothing that moves, no serious fault for axe."""
    ARTEFACTS.mkdir(exist_ok=True)
    readers = {False: visit("/about", width=width, is_own=True), True: visit("/about", width=width, is_own=True)}
    _sign_in(site, readers[True].page.context)
    found: list[str] = []
    for address, is_signed_in in _list_addresses(ids):
        visited = readers[is_signed_in]
        visited.page.goto(site.url + address)
        name = re.sub(r"\W+", "-", address).strip("-")[:60] or "board"
        faults = _list_faults(visited.page, width, picture=f"{name}{'-signed-in' if is_signed_in else ''}-{width}")
        found += [f"{address}: {fault}" for fault in faults]
        found += [f"{address}: {fault}" for fault in visited.faults if not REFUSED.search(fault)]
        visited.faults.clear()
    assert not found, "\n".join(found)
    assert readers[True].hosts | readers[False].hosts == {site.url.removeprefix("http://")}


def _list_faults(page: Page, width: int, *, picture: str) -> Iterator[str]:
    _settle(page)
    shift = page.evaluate(MEASURE_SHIFT)
    if shift >= MAX_SHIFT:
        yield f"moves by {shift:.3f} while it is drawn"
    if page.locator("h1").count() != 1:
        yield "not one main heading"
    page.evaluate(AXE)
    yield from _list_violations(page, {"resultTypes": ["violations"]})
    page.screenshot(path=ARTEFACTS / f"{picture}-light.png", full_page=True)
    page.keyboard.press("Tab")
    yield from page.evaluate(LIST_UNREACHABLE)
    page.emulate_media(color_scheme="dark")
    # What stands where does not depend on the scheme.
    yield from _list_violations(page, {"resultTypes": ["violations"], "runOnly": ["color-contrast"]})
    page.screenshot(path=ARTEFACTS / f"{picture}-dark.png", full_page=True)
    page.emulate_media(color_scheme="light")
    yield from _list_too_wide(page, width)
    if width == PHONE:
        page.set_viewport_size({"width": NARROWEST, "height": 844})
        yield from _list_too_wide(page, NARROWEST)
        page.set_viewport_size({"width": width, "height": 844})


def _list_violations(page: Page, options: dict[str, Any]) -> Iterator[str]:
    # A plot is one picture with a text of its own: what it is drawn of is nothing to read.
    run = "(options) => axe.run({ exclude: ['.plot > *'] }, { ...options, preload: false })"
    for violation in page.evaluate(run, options)["violations"]:
        if violation["impact"] in ("serious", "critical"):
            nodes = "; ".join(node["html"][:120] for node in violation["nodes"][:3])
            yield f"{violation['id']} ({len(violation['nodes'])}): {nodes}"


def _list_too_wide(page: Page, width: int) -> Iterator[str]:
    wide = page.evaluate("document.documentElement.scrollWidth")
    if wide > width:
        yield f"{wide} pixels wide in a window of {width}"


def test_every_page_of_the_documentation_fits_a_phone(site: Any, visit: Open) -> None:
    """They share a template, whose colours others have shown; tables and code are their own."""
    page = visit("/docs", width=NARROWEST).page
    found = []
    for name in list_pages():
        page.goto(f"{site.url}/docs/{name}")
        page.evaluate(AXE)
        faults = _list_violations(
            page, {"resultTypes": ["violations"], "rules": {"color-contrast": {"enabled": False}}}
        )
        found += [f"{name}: {fault}" for fault in (*_list_too_wide(page, NARROWEST), *faults)]
    assert not found, "\n".join(found)


def test_every_page_is_of_use_without_scripts(site: Any, ids: Ids, visit: Open) -> None:
    readers = {is_signed_in: visit("/about", has_scripts=False, is_own=True).page for is_signed_in in (False, True)}
    _sign_in(site, readers[True].context)
    found = []
    for address, is_signed_in in _list_addresses(ids):
        page = readers[is_signed_in]
        page.goto(site.url + address)
        assert page.locator("h1").inner_text(), address
        if page.locator(".only-scripted:visible").count():
            found.append(f"{address}: shows what needs a script")
        for form in page.locator("main form:visible").all():
            if not form.locator("button:visible, input[type=submit]:visible").count():
                found.append(f"{address}: a form without a button: {form.get_attribute('action')}")
        # Whatever a plot shows stands in a table beside it, closed or open, or in one that is a link away.
        for figure in page.locator("figure:has(.plot)").all():
            if not figure.locator("details").locator("td, a[href^='#']").count():
                found.append(f"{address}: a figure without numbers: {figure.get_attribute('id')}")
    assert not found, "\n".join(found)


def test_the_keyboard_goes_through_a_page_in_its_order(ids: Ids, visit: Open) -> None:
    page = visit(f"/submissions/{ids['patience']}").page
    page.keyboard.press("Tab")
    skip = page.locator("a.skip")
    expect(skip).to_be_focused()
    expect(skip).to_be_in_viewport()
    page.keyboard.press("Enter")
    assert page.url.endswith("#main")
    places = []
    for _ in range(25):
        page.keyboard.press("Tab")
        places.append(page.evaluate("document.activeElement.getBoundingClientRect().top + window.scrollY"))
    # Down the page, but for what stands side by side.
    assert all(later > earlier - 60 for earlier, later in pairwise(places)), places


def test_the_numbers_of_a_figure_open_by_keyboard(ids: Ids, visit: Open) -> None:
    page = visit(f"/submissions/{ids['patience']}").page
    summary = page.locator("#regret-figure summary")
    summary.focus()
    page.keyboard.press("Enter")
    expect(page.locator("#regret-figure details table")).to_be_visible()


def test_columns_say_what_they_mean_and_sort_by_a_link(ids: Ids, visit: Open) -> None:
    page = visit(f"/submissions/{ids['random']}").page
    heads = page.locator("#settings thead th.number")
    assert all(head.get_attribute("title") for head in heads.all())
    page.get_by_role("link", name="Gap to the oracle").click()
    page.wait_for_url("**sort=gap**")
    gaps = [float(text) for text in page.locator("#settings tbody td:nth-child(4)").all_inner_texts()]
    assert gaps == sorted(gaps)
    expect(page.locator("#settings th[aria-sort='ascending']")).to_have_count(1)


def test_an_empty_installation_has_sound_pages(empty_site: Any, browser: Any) -> None:
    page = browser.new_page(viewport={"width": PHONE, "height": 844})
    for path in ("/", "/snapshots", "/submit", "/efficiency", "/about"):
        page.goto(empty_site.url + path)
        assert list(_list_faults(page, PHONE, picture=f"empty-{path[1:] or 'board'}")) == [], path
    page.close()


@pytest.mark.usefixtures("ids")
def test_a_figure_lies_in_its_interval(site: Any) -> None:
    """The ends of token counts were once shown as percentages, a hundred times too large."""
    text = site.get("/snapshots/small?split=test").text
    shown = re.findall(r'<td class="number[^>]*>([0-9.,]+)<span class="second">([0-9.,]+) to ([0-9.,]+)</span>', text)
    assert len(shown) >= 12
    for figure, low, high in ([float(number.replace(",", "")) for number in found] for found in shown):
        assert low <= figure <= high


def test_times_carry_their_zone(site: Any, ids: Ids) -> None:
    for address in ("/snapshots/small", f"/submissions/{ids['patience']}"):
        text = site.get(address).text
        times = text.split("<time ")[1:]
        assert times
        assert all(' UTC"' in time.split(">")[0] for time in times)
