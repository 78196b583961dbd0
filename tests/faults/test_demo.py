"""The demo's data is made once, whatever interrupts it, and every board then has something true on it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from sqlalchemy import select

from app.db import models
from app.evaluator.strategies import Strategy
from app.files.snapshot import Snapshot, write_snapshot
from app.services.demo import run_demo
from app.services.demo_progress import find_demo_progress
from app.services.leaderboard import get_leaderboard

Wait = Callable[[Callable[[], bool]], None]

SCALE = 0.01
SPLITS = ("test",)


def test_killed_and_started_again_the_demo_is_complete(site: Any, wait_until: Wait, kill: Any, tmp_path: Path) -> None:
    site.start_worker()
    none = tmp_path / "none"
    killed = site.start("-m", "app.services.demo", "--scale", str(SCALE), "--splits", *SPLITS, "--shipped", str(none))
    wait_until(lambda: site.ask("SELECT count(*) FROM submissions WHERE state = 'published'") >= 2)
    kill(killed)
    check_progress(site, state="running")
    run_demo(site.sessions, site.config, scale=SCALE, splits=SPLITS, shipped=none)
    check_progress(site, state="done")
    n_submissions = site.ask("SELECT count(*) FROM submissions")
    assert site.ask("SELECT count(*) FROM submissions WHERE state = 'published'") == n_submissions
    with site.sessions.begin() as session:
        name = session.scalars(select(models.Snapshot.name).where(models.Snapshot.name != "small")).one()
        for strategy in Strategy:
            board = get_leaderboard(session, snapshot=name, split="test", strategy=strategy, model=None, benchmark=None)
            check_board(board)
    run_demo(site.sessions, site.config, scale=SCALE, splits=SPLITS, shipped=none)
    assert site.ask("SELECT count(*) FROM submissions") == n_submissions
    assert site.ask("SELECT count(*) FROM snapshots") == 2


def test_measured_snapshots_are_shown_with_their_controls_and_none_is_left_out_in_silence(
    site: Any, make_board_snapshot: Callable[..., Snapshot], tmp_path: Path
) -> None:
    folder = tmp_path / "shipped"
    folder.mkdir()
    measured = make_board_snapshot("measured-one", seed=3, kind="measured", hidden_splits=["validation"])
    write_snapshot(measured, folder / "measured-one.zip")
    write_snapshot(make_board_snapshot("measured-two", seed=5, kind="measured"), folder / "measured-two.zip")
    # The database has another snapshot of this name, and the third file is none.
    write_snapshot(make_board_snapshot("small", seed=4, kind="measured"), folder / "small.zip")
    (folder / "torn.zip").write_bytes(b"PK")
    site.start_worker()
    run_demo(site.sessions, site.config, scale=SCALE, splits=(), shipped=folder)
    progress = find_demo_progress(site.config.data_dir)
    assert progress is not None
    assert (progress.state, progress.step, progress.n_steps) == ("done", 11, 11)
    assert "small.zip was left out: The database has another snapshot named small" in progress.message
    assert "torn.zip was left out" in progress.message
    with site.sessions.begin() as session:
        # Examples are fitted on the training questions, which are a part of all splits.
        for name, split, has_examples in (
            ("measured-one", "test", True),
            ("measured-two", "validation", True),
            ("measured-two", "all", False),
        ):
            for strategy in Strategy:
                board = get_leaderboard(
                    session, snapshot=name, split=split, strategy=strategy, model=None, benchmark=None
                )
                assert board.kind == "measured"
                assert {row.method for row in board.rows if row.is_control} == {"oracle", "uninformed", "random"}
                assert any(not row.is_control for row in board.rows) is has_examples
        # What the board shows first is the synthetic one.
        newest = session.scalars(select(models.Snapshot.kind).order_by(models.Snapshot.id.desc()).limit(1)).one()
        assert newest == "synthetic"
    # Nothing is asked of a split whose labels are hidden, nor of all splits, which hold it.
    query = "SELECT string_agg(DISTINCT split, ' ') FROM submissions s JOIN snapshots t ON t.id = s.snapshot_id"
    assert site.ask(f"{query} WHERE t.name = 'measured-one'") == "test"
    n_submissions = site.ask("SELECT count(*) FROM submissions")
    run_demo(site.sessions, site.config, scale=SCALE, splits=(), shipped=folder)
    assert site.ask("SELECT count(*) FROM submissions") == n_submissions


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
