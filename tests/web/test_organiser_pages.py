"""The organiser's console in a real browser: every page, in both widths and schemes, and what its forms do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect
from sqlalchemy import text

from app.evaluator.scorers import SCORERS
from app.evaluator.strategies import Strategy
from app.files.snapshot import Snapshot, write_snapshot
from app.services import rescoring
from app.services.accounts import ensure_account
from app.services.rescoring_jobs import rescore_submission
from app.services.snapshot_imports import run_import
from tests.other_scorer import score_with_penalty
from tests.signing_in import sign_in_link

ARTEFACTS = Path(__file__).resolve().parents[1] / "artefacts"
PAGES = ("", "/submissions", "/flags", "/snapshots", "/rescorings", "/allowances", "/work", "/audit")
Open = Callable[..., Any]


def sign_in(site: Any, visit: Open, path: str, **options: Any) -> Any:
    """Open a page with the local account, which is an operator."""
    visited = visit(sign_in_link(site.sessions, path), is_own=True, **options)
    visited.page.locator("main").get_by_role("button", name="Sign in").click()
    visited.page.wait_for_url(f"**{path}")
    return visited


def find_published(site: Any) -> str:
    rows = site.get_json("/leaderboard?snapshot=small&split=test&strategy=dynamic_early_exit")["rows"]
    return str(next(row["submission_id"] for row in rows if not row["is_control"]))


def test_the_console_is_for_organisers(site: Any) -> None:
    for page in PAGES:
        assert site.get(f"/console{page}").status_code == 401
    assert 'href="/console"' not in site.get("/").text


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_pages_are_drawn_without_fault_inside_the_window(site: Any, visit: Open, width: int, scheme: str) -> None:
    with site.sessions.begin() as session:
        session.execute(text("INSERT INTO procrastinate_workers (last_heartbeat) VALUES (now() - interval '3 hours')"))
    ARTEFACTS.mkdir(exist_ok=True)
    visited = sign_in(site, visit, "/console", width=width, scheme=scheme)
    for path in PAGES:
        visited.page.goto(f"{site.url}/console{path}")
        expect(visited.page.locator("h1")).to_have_count(1)
        name = path.strip("/") or "overview"
        visited.page.screenshot(path=ARTEFACTS / f"console-{name}-{width}-{scheme}.png", full_page=True)
        assert visited.page.evaluate("document.documentElement.scrollWidth") <= width, path
    visited.page.goto(f"{site.url}/submissions/{find_published(site)}")
    visited.page.screenshot(path=ARTEFACTS / f"console-submission-{width}-{scheme}.png", full_page=True)
    assert visited.page.evaluate("document.documentElement.scrollWidth") <= width
    assert visited.faults == []
    assert visited.hosts == {site.url.removeprefix("http://")}


@pytest.mark.browser
def test_an_entry_is_flagged_on_its_page_and_the_flag_taken_back(site: Any, visit: Open) -> None:
    submission_id = find_published(site)
    visited = sign_in(site, visit, f"/submissions/{submission_id}")
    page = visited.page
    page.get_by_label("Flag, with a public reason").fill("reads the labels")
    page.get_by_role("button", name="Flag", exact=True).click()
    expect(page.get_by_text("Flagged by an organiser", exact=False).first).to_be_visible()
    board = site.get("/?snapshot=small&split=test&strategy=dynamic_early_exit").text
    assert 'title="reads the labels">flagged</span>' in board
    page.goto(f"{site.url}/console/flags")
    expect(page.get_by_role("row", name="reads the labels")).to_be_visible()
    page.goto(f"{site.url}/submissions/{submission_id}")
    page.get_by_role("button", name="Take the flag back").click()
    expect(page.get_by_label("Flag, with a public reason")).to_be_visible()
    page.goto(f"{site.url}/console/audit?action=unflag_submission")
    expect(page.get_by_role("row", name=submission_id)).to_be_visible()
    assert visited.faults == []
    public = site.get(f"/submissions/{submission_id}").text
    assert 'id="organising"' not in public


@pytest.mark.browser
def test_a_snapshot_is_imported_in_the_browser_and_removed_again(
    site: Any, visit: Open, make_board_snapshot: Callable[..., Snapshot], tmp_path: Path
) -> None:
    path = tmp_path / "fresh.zip"
    write_snapshot(make_board_snapshot("fresh", seed=5), path)
    page = sign_in(site, visit, "/console/snapshots").page
    page.get_by_label("The zip of a snapshot").set_input_files(path)
    page.get_by_role("button", name="Upload and import").click()
    expect(page.get_by_text("It waits for a worker")).to_be_visible()
    page.evaluate("window.isStillTheSame = true")
    run_import(site.sessions, int(page.url.rpartition("/")[2]), config=site.config)
    expect(page.get_by_text("It is imported")).to_be_visible()
    assert page.evaluate("window.isStillTheSame")
    page.goto(f"{site.url}/console/snapshots")
    row = page.get_by_role("row", name="fresh").first
    row.get_by_label("test").check()
    row.get_by_role("button", name="Set").click()
    page.wait_for_load_state()
    assert site.get_json("/snapshots/fresh")["hidden_splits"] == ["test"]
    expect(row.get_by_role("button", name="Freeze for good")).to_be_visible()
    row.get_by_role("button", name="Remove").click()
    expect(page.get_by_role("link", name="fresh", exact=True)).to_have_count(1)
    assert site.get("/snapshots/fresh").status_code == 404


def test_a_rescoring_is_previewed_and_applied_on_its_page(site: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    author = ensure_author(site)
    caps = "\n".join(
        ["model,benchmark,question_id,action"]
        + [
            f"{cell.model},{cell.benchmark},{question},150"
            for cell in site.measurements.select("validation").cells
            for question in cell.question_ids
        ]
    )
    submission_id = site.submit(
        caps.encode(), method="capped", account=author, strategy=Strategy.FIXED_BUDGET, split="validation"
    )
    site.score(submission_id)
    site.publish(submission_id, account=author)
    monkeypatch.setitem(SCORERS, "2", score_with_penalty)
    board = "/?snapshot=small&split=validation&strategy=fixed_budget"
    assert "This board was made by scorer version 1" in site.get(board).text
    cookies = {"Authorization": f"Bearer {site.token}"}
    assert "Re-score small" in site.get("/console/rescorings", headers=cookies).text
    with site.sessions.begin() as session:
        status = rescoring.start_rescoring(
            session, snapshot_name="small", split="validation", strategy=Strategy.FIXED_BUDGET, actor="local"
        )
    rescore_submission(site.sessions, submission_id, config=site.config)
    shown = site.get(f"/console/rescorings/{status.id}", headers=cookies).text
    assert "Let the boards show version 2" in shown
    assert "<del>" in shown
    with site.sessions.begin() as session:
        rescoring.apply_rescoring(session, status.id, leave_out_failed=False, actor="local")
    assert "This board was made by" not in site.get(board).text
    assert "This board was made by scorer version 1" in site.get(f"{board}&scorer_version=1").text
    page = site.get(f"/submissions/{submission_id}").text
    assert "Scores by" in page


def ensure_author(site: Any) -> Any:
    with site.sessions.begin() as session:
        return ensure_account(session, name="rita", team="rescored", is_control=False)
