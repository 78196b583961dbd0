"""Workers killed while they re-score: every submission gets the new version once, and the old scores stay."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from app.evaluator.scorers import SCORERS
from app.evaluator.strategies import Strategy
from app.services import rescoring
from app.services.leaderboard import Leaderboard, get_leaderboard
from app.services.scoring import score_submission
from app.services.submissions import publish_submission
from tests.other_scorer import score_with_penalty

REPOSITORY = Path(__file__).resolve().parents[2]
# A worker of a release that scores with version 2.
WORKER = f"""
import sys

sys.path.insert(0, {str(REPOSITORY)!r})
from app.evaluator.scorers import SCORERS
from tests.other_scorer import score_with_penalty

SCORERS["2"] = score_with_penalty
from worker.main import main

sys.exit(main([]))
"""
# Where a worker stands still, by a lock that the test holds.
POINTS = {
    "while it computes": "LOCK TABLE cell_frontiers IN ACCESS EXCLUSIVE MODE",
    "while it writes the score": "LOCK TABLE scores IN SHARE MODE",
    "between score and item": "LOCK TABLE board_scores IN SHARE MODE",
}
CAPS = (100, 200, 300)


def read_board(site: Any) -> Leaderboard:
    target: dict[str, Any] = {"snapshot": "small", "split": "test", "strategy": Strategy.FIXED_BUDGET}
    with site.sessions() as session:
        return get_leaderboard(session, **target, model=None, benchmark=None)


def publish(site: Any, content: bytes, *, method: str) -> None:
    submission_id = site.submit(content, method=method)
    score_submission(site.sessions, submission_id, config=site.config, actor="worker")
    with site.sessions.begin() as session:
        publish_submission(session, submission_id, account=site.account)


def start_rescoring(site: Any) -> int:
    with site.sessions.begin() as session:
        started = rescoring.start_rescoring(session, snapshot_name="small", split=None, strategy=None, actor="olga")
        # Nothing else is on the queue that a worker could take up before.
        session.execute(text("DELETE FROM procrastinate_jobs WHERE task_name <> 'rescore_submission'"))
        return started.id


def test_each_submission_gets_the_new_version_once(
    site: Any,
    make_caps: Callable[[int], bytes],
    wait_until: Callable[[Callable[[], bool]], None],
    kill: Callable[[subprocess.Popen[str]], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The same submission is lost at each point; how often that may be is tested elsewhere.
    monkeypatch.setenv("OTBOARD_SCORING_ATTEMPTS", str(len(POINTS) + 1))
    for cap in CAPS:
        publish(site, make_caps(cap), method=f"m{cap}")
    old = "SELECT md5(string_agg(scores::text, '' ORDER BY id)) FROM scores WHERE scorer_version = '1'"
    before, shown = site.ask(old), read_board(site)
    monkeypatch.setitem(SCORERS, "2", score_with_penalty)
    number = start_rescoring(site)
    is_held = "SELECT EXISTS (SELECT FROM rescoring_items WHERE state = 'scoring')"
    for statement in POINTS.values():
        with site.hold(statement):
            worker = site.start("-c", WORKER)
            wait_until(lambda: site.someone_waits() and site.ask(is_held))
            kill(worker)
        assert site.ask("SELECT count(*) FROM scores WHERE scorer_version = '2'") == 0
        board = read_board(site)
        assert (board.scorer_version, board.rows) == ("1", shown.rows)
    site.start("-c", WORKER)
    wait_until(lambda: site.ask("SELECT state FROM rescorings") == "ready")
    new = "SELECT count(*) FROM scores WHERE scorer_version = '2'"
    assert (site.ask(new), site.ask(new.replace("*", "DISTINCT submission_id"))) == (3, 3)
    assert site.ask("SELECT count(*) FROM rescoring_items WHERE state = 'done'") == 3
    assert site.ask("SELECT sum(attempts) FROM rescoring_items") == 3 + len(POINTS)
    assert site.ask(old) == before
    # Until it is applied the board shows the old version, then the new one and no other.
    assert read_board(site).scorer_version == "1"
    with site.sessions.begin() as session:
        rescoring.apply_rescoring(session, number, leave_out_failed=False, actor="olga")
    board = read_board(site)
    areas = {row.method: row.area for row in shown.rows}
    assert board.scorer_version == "2"
    assert {row.method: row.area for row in board.rows} == {name: 0.9 * area for name, area in areas.items()}
