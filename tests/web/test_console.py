"""The console in a real browser: a probe run is followed, steered and explained; and what a superseded board says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from app.files.snapshot import Snapshot
from app.services import probe_items, probe_runs, snapshots
from app.services.assembling import Assembly, assemble_runs
from app.web.snapshot_page import read_measured_counts
from tests.measured_runs import create_run, fail_item, make_questions, make_run, measure_items
from tests.signing_in import session_cookie, sign_in_link

ARTEFACTS = Path(__file__).resolve().parents[1] / "artefacts"
CONSOLE = "/console/probe-runs"
Open = Callable[..., Any]


@pytest.fixture(scope="module")
def runs(site: Any) -> None:
    """One run of every kind that looks different."""
    with site.sessions.begin() as session:
        make_run(session, "whole", question_sets=[make_questions(n_questions=3)])
        make_run(session, "assembled", model="small", question_sets=[make_questions(n_questions=3)])
        assemble_runs(session, ["assembled"], assembly=Assembly("assembled"), actor="ada")
        broken = create_run(session, "broken", model="small")
        fail_item(
            session, broken, reason="CUDA out of memory: tried to allocate 2.00 GiB of /very/long/path/" + "x" * 80
        )
        measure_items(session, broken)
        going = create_run(session, "going", question_sets=[make_questions(n_questions=9)])
        measure_items(session, going, n_items=4)
        announce(session, going)
        lease_next(session, going)


def announce(session: Any, run: Any) -> None:
    """Let a worker that serves the run's model give a sign of life."""
    probe_items.announce_worker(session, "worker gpu-1:4312", model=run.model, engine_key=run.engine_key, versions={})


def lease_next(session: Any, run: Any) -> None:
    from sqlalchemy import select

    from app.config import Config
    from app.db import models

    waiting = select(models.ProbeItem.id).where(
        models.ProbeItem.probe_run_id == run.id, models.ProbeItem.state == "waiting"
    )
    item_id = session.scalars(waiting.order_by(models.ProbeItem.idx).limit(1)).one()
    config = Config(data_dir=Path("nowhere"), heartbeat_timeout_seconds=3600)
    assert probe_items.lease_item(session, item_id, actor="worker gpu-1:4312", config=config) is not None


def sign_in(site: Any, visit: Open, path: str, **options: Any) -> Any:
    """Open a page with an account."""
    visited = visit(sign_in_link(site.sessions, path), is_own=True, **options)
    visited.page.locator("main").get_by_role("button", name="Sign in").click()
    visited.page.wait_for_url(f"**{path}")
    return visited


def test_the_console_needs_an_account(site: Any) -> None:
    for path in (CONSOLE, f"{CONSOLE}/going"):
        answer = site.get(path)
        assert answer.status_code == 401
        assert "Sign in" in answer.text
    assert CONSOLE not in site.get("/").text


@pytest.mark.browser
@pytest.mark.usefixtures("runs")
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_pages_are_drawn_without_fault_inside_the_window(site: Any, visit: Open, width: int, scheme: str) -> None:
    ARTEFACTS.mkdir(exist_ok=True)
    visited = sign_in(site, visit, CONSOLE, width=width, scheme=scheme)
    for name in ("", "going", "whole", "assembled", "broken"):
        visited.page.goto(f"{site.url}{CONSOLE}/{name}".rstrip("/"))
        expect(visited.page.locator("h1")).to_have_count(1)
        assert visited.page.evaluate("document.documentElement.scrollWidth") <= width, name
        visited.page.screenshot(path=ARTEFACTS / f"probe-run-{name or 'list'}-{width}-{scheme}.png", full_page=True)
    assert visited.faults == []
    assert visited.hosts == {site.url.removeprefix("http://")}


@pytest.mark.browser
@pytest.mark.usefixtures("runs")
def test_the_list_says_how_far_each_run_is(site: Any, visit: Open) -> None:
    page = sign_in(site, visit, CONSOLE).page
    row = page.get_by_role("row", name="Run going")
    expect(row).to_contain_text("4 of 9")
    expect(row).to_contain_text("Being measured")
    expect(page.get_by_role("row", name="Run broken")).to_contain_text("Stopped: questions failed")
    expect(
        page.get_by_role("row", name="Run assembled").get_by_role("link", name="assembled", exact=True)
    ).to_be_visible()


@pytest.mark.browser
@pytest.mark.usefixtures("runs")
def test_a_run_says_what_went_wrong_and_what_to_do_next(site: Any, visit: Open) -> None:
    page = sign_in(site, visit, f"{CONSOLE}/broken").page
    failed = page.get_by_role("row", name="q0").first
    expect(failed).to_contain_text("CUDA out of memory")
    expect(page.get_by_role("button", name="Try the failed questions again")).to_be_visible()
    page.goto(f"{site.url}{CONSOLE}/whole")
    expect(page.locator("#assemble-command")).to_have_text("otboard probe-run assemble whole --freeze")
    assert page.locator("form[action^='/console']").count() == 0
    with site.sessions.begin() as session:
        announce(session, probe_runs.get_run(session, "going"))
    page.goto(f"{site.url}{CONSOLE}/going")
    expect(page.get_by_role("row", name="worker gpu-1:4312")).to_contain_text("q4")
    # Five are left, two seconds each, one worker.
    expect(page.get_by_text("About 10\N{NO-BREAK SPACE}s left at this pace")).to_be_visible()
    figures = page.locator("dl.figures")
    expect(figures).to_contain_text("90.0\N{NO-BREAK SPACE}%")


@pytest.mark.browser
def test_a_run_is_followed_and_steered_without_a_load_of_the_page(site: Any, visit: Open) -> None:
    with site.sessions.begin() as session:
        create_run(session, "followed")
    visited = sign_in(site, visit, f"{CONSOLE}/followed")
    page = visited.page
    expect(page.get_by_text("0 of 6\N{NO-BREAK SPACE}questions measured")).to_be_visible()
    expect(page.locator("#worker-command")).to_have_text("otboard worker probe --model tiny")
    page.evaluate("window.isStillTheSame = true")
    page.get_by_role("button", name="Pause").focus()
    with site.sessions.begin() as session:
        measure_items(session, probe_runs.get_run(session, "followed"), n_items=2)
    expect(page.get_by_text("2 of 6\N{NO-BREAK SPACE}questions measured")).to_be_visible()
    # The keyboard's place is kept.
    assert page.evaluate("document.activeElement.id") == "pause"
    with site.sessions.begin() as session:
        measure_items(session, probe_runs.get_run(session, "followed"))
    expect(page.get_by_text("All 6\N{NO-BREAK SPACE}questions measured")).to_be_visible()
    expect(page.locator(".state")).to_have_text("Finished, not assembled")
    assert page.evaluate("window.isStillTheSame")
    assert page.locator("[data-refresh]").count() == 0
    assert visited.faults == []


@pytest.mark.browser
@pytest.mark.parametrize("has_scripts", [True, False])
def test_the_buttons_steer_with_and_without_scripts(site: Any, visit: Open, has_scripts: bool) -> None:
    name = f"steered-{'with' if has_scripts else 'without'}"
    with site.sessions.begin() as session:
        create_run(session, name)
    path = f"{CONSOLE}/{name}"
    if has_scripts:
        page = sign_in(site, visit, path).page
    else:
        address, _, code = sign_in_link(site.sessions, path).partition("#")
        page = visit(address, is_own=True, has_scripts=False).page
        page.get_by_label("Code").fill(code)
        page.locator("main").get_by_role("button", name="Sign in").click()
        page.wait_for_url(f"**{path}")
        assert page.locator("noscript meta[http-equiv='refresh'], meta[http-equiv='refresh']").count() == 1
    page.get_by_role("button", name="Pause").click()
    expect(page.locator(".state")).to_have_text("Paused")
    page.get_by_role("button", name="Resume").click()
    expect(page.locator(".state")).to_have_text("Being measured")
    page.get_by_role("button", name="Cancel for good").click()
    expect(page.locator(".state")).to_have_text("Cancelled")
    assert page.locator("form[action^='/console']").count() == 0
    with site.sessions.begin() as session:
        run = probe_runs.get_run(session, name)
        states = [event.to_state for event in probe_runs.list_run_events(session, run)]
    assert states == ["created", "running", "paused", "running", "cancelled"]


def test_an_empty_console_says_what_to_do(empty_site: Any) -> None:
    page = empty_site.get(CONSOLE, headers={"Authorization": f"Bearer {empty_site.token}"})
    assert "otboard probe-run create" in page.text
    assert (
        empty_site.get(f"{CONSOLE}/nowhere", headers={"Authorization": f"Bearer {empty_site.token}"}).status_code == 404
    )


def test_a_measured_snapshot_says_what_its_figures_rest_on(empty_site: Any) -> None:
    with empty_site.sessions.begin() as session:
        make_run(session, "measured")
        assemble_runs(session, ["measured"], assembly=Assembly("measured"), actor="ada")
        counts = snapshots.get_snapshot(session, "measured").manifest["worker"]["counts"][0]
    shown = empty_site.get("/snapshots/measured").text
    assert "How it was measured" in shown
    cut_off = 100 * counts["hit_thinking_limit"] / counts["trajectories"]
    unreadable = 100 * counts["unextracted_answers"] / counts["answers"]
    for figure in (f"{cut_off:.1f}", f"{unreadable:.1f}", str(counts["answers"])):
        assert f'<td class="number">{figure}</td>' in shown


@pytest.mark.parametrize("worker", [None, [], "x", {}, {"counts": 3}, {"counts": [3, {}, {"model": "m"}]}])
def test_a_manifest_may_say_anything_of_its_worker(worker: Any) -> None:
    assert read_measured_counts({"worker": worker}) == ()


def test_a_form_of_another_site_steers_nothing(site: Any) -> None:
    import httpx

    with site.sessions.begin() as session:
        create_run(session, "protected")
    cookie = session_cookie(site.sessions, site.config)
    headers = {"Sec-Fetch-Site": "cross-site"}
    for action in ("pause", "resume", "cancel"):
        answer = httpx.post(f"{site.url}{CONSOLE}/protected/{action}", headers=headers, cookies=cookie, timeout=60)
        assert answer.status_code == 403
    with site.sessions.begin() as session:
        assert probe_runs.get_run(session, "protected").state == "running"


def test_boards_and_pages_of_a_superseded_snapshot_say_so(
    empty_site: Any, make_board_snapshot: Callable[..., Snapshot]
) -> None:
    old = make_board_snapshot("old", seed=1)
    new = make_board_snapshot("new", seed=2, supersedes=[{"name": "old", "sha256": old.sha256}])
    with empty_site.sessions.begin() as session:
        for snapshot in (old, new):
            snapshots.import_snapshot(session, snapshot)
            snapshots.freeze_snapshot(session, snapshot.manifest.name)
    notice = "A newer snapshot takes the place of this one"
    board = empty_site.get("/?snapshot=old&strategy=fixed_budget").text
    assert notice in board
    assert '<a href="/snapshots/new">new</a>' in board
    assert "/?snapshot=new&amp;strategy=fixed_budget" in board
    assert notice in empty_site.get("/snapshots/old").text
    assert notice not in empty_site.get("/?snapshot=new").text
    shown = empty_site.get("/snapshots/new").text
    assert notice not in shown
    assert "Takes the place of" in shown
    assert old.sha256 in shown
    assert "superseded by" in empty_site.get("/snapshots").text
    rest = empty_site.get_json("/leaderboard?snapshot=old&split=test&strategy=fixed_budget")
    assert rest["superseded_by"] == "new"
    assert empty_site.get_json("/snapshots/old")["superseded_by"] == "new"
    assert empty_site.get_json("/snapshots/new")["superseded_by"] is None
