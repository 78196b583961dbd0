"""The demo's data is made once, whatever interrupts it, and every board then has something true on it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy import select

from app.db import models
from app.evaluator.strategies import Strategy
from app.services.demo import run_demo
from app.services.demo_progress import find_demo_progress
from app.services.leaderboard import get_leaderboard

Wait = Callable[[Callable[[], bool]], None]

SCALE = 0.01
SPLITS = ("test",)


def test_killed_and_started_again_the_demo_is_complete(site: Any, wait_until: Wait, kill: Any) -> None:
    site.start_worker()
    killed = site.start("-m", "app.services.demo", "--scale", str(SCALE), "--splits", *SPLITS)
    wait_until(lambda: site.ask("SELECT count(*) FROM submissions WHERE state = 'published'") >= 2)
    kill(killed)
    check_progress(site, state="running")
    run_demo(site.sessions, site.config, scale=SCALE, splits=SPLITS)
    check_progress(site, state="done")
    n_submissions = site.ask("SELECT count(*) FROM submissions")
    assert site.ask("SELECT count(*) FROM submissions WHERE state = 'published'") == n_submissions
    with site.sessions.begin() as session:
        name = session.scalars(select(models.Snapshot.name).where(models.Snapshot.name != "small")).one()
        for strategy in Strategy:
            board = get_leaderboard(session, snapshot=name, split="test", strategy=strategy, model=None, benchmark=None)
            check_board(board)
    run_demo(site.sessions, site.config, scale=SCALE, splits=SPLITS)
    assert site.ask("SELECT count(*) FROM submissions") == n_submissions
    assert site.ask("SELECT count(*) FROM snapshots") == 2


def check_progress(site: Any, *, state: str) -> None:
    progress = find_demo_progress(site.config.data_dir)
    assert progress is not None
    assert (progress.state, progress.n_steps) == (state, 6)


def check_board(board: Any) -> None:
    assert board.kind == "synthetic"
    assert {row.method for row in board.rows if row.is_control} == {"oracle", "uninformed", "random"}
    assert sum(not row.is_control for row in board.rows) >= 2
    oracle = next(row for row in board.rows if row.method == "oracle")
    assert oracle.gap < 0.01
    uninformed = next(row for row in board.rows if row.method == "uninformed")
    assert uninformed.realised_potential is None or uninformed.realised_potential <= 0
