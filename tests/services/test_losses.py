"""The questions where a submission loses most: what a job keeps, and what is read from it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sqlalchemy import text
from sqlalchemy.orm import Session, sessionmaker

from app.baselines import build_baseline
from app.config import Config
from app.db import models
from app.evaluator.fast_frontier import solve_frontiers_fast
from app.evaluator.operating_points import measure_operating_points
from app.evaluator.question_losses import measure_question_losses
from app.evaluator.reference import build_references
from app.evaluator.strategies import Strategy, select_positions
from app.files.snapshot import Snapshot, load_measurements
from app.services.board_lines import WHOLE, BoardKey
from app.services.losses import UnknownSettingError, find_losses, keep_stops, match_oracle
from app.services.submissions import HiddenLabelsError


@pytest.mark.parametrize("strategy", list(Strategy))
def test_losses_of_questions_add_up_to_those_of_the_setting(board_snapshot: Snapshot, strategy: Strategy) -> None:
    measurements = load_measurements(board_snapshot).select("test")
    table = build_baseline("random", load_measurements(board_snapshot), strategy=strategy, split="test")
    for cell, actions in zip(measurements.cells, table.cells, strict=True):
        points = measure_operating_points(cell, strategy, actions.actions[:5])
        for row in range(5):
            found = measure_question_losses(cell, select_positions(cell, strategy, actions.actions[row]))
            for name in ("early_loss", "late_loss", "wasted", "forgone"):
                assert getattr(found, name).sum() == getattr(points, name)[row]
            assert found.trajectory_loss.sum() == points.early_loss[row] + points.late_loss[row]


@pytest.mark.parametrize("strategy", list(Strategy))
def test_the_oracle_stops_at_no_more_cost_and_is_never_worse(board_snapshot: Snapshot, strategy: Strategy) -> None:
    everything = load_measurements(board_snapshot)
    measurements = everything.select("test")
    table = build_baseline("random", everything, strategy=strategy, split="test")
    references = build_references(measurements, strategy, solve_frontiers_fast(measurements, (strategy,)))
    matched = match_oracle(measurements, table, references)
    for cell, own, best, reference in zip(measurements.cells, table.cells, matched.cells, references, strict=True):
        mine = measure_operating_points(cell, strategy, own.actions)
        oracle = measure_operating_points(cell, strategy, best.actions)
        assert (oracle.cost <= mine.cost).all()
        assert (oracle.correct == reference.frontier.curve.correct_at_cost(mine.cost)).all()


def test_positions_of_another_cell_are_refused(board_snapshot: Snapshot) -> None:
    cell = load_measurements(board_snapshot).cells[0]
    for positions in (np.zeros(1, np.int64), cell.n_steps + 1):
        with pytest.raises(ValueError, match="another cell"):
            measure_question_losses(cell, positions)


def test_the_worst_questions_of_a_setting(
    desk: Any, session: Session, sessions: sessionmaker[Session], config: Config, author: Any, make_caps: Any
) -> None:
    submission_id = desk.submit(author, make_caps(120))
    desk.score(submission_id)

    def ask(setting: str = "one", board: BoardKey = WHOLE, limit: int = 50) -> Any:
        return find_losses(
            session, submission_id, account=author, setting=setting, board=board, limit=limit, config=config
        )

    queued = text("SELECT count(*) FROM procrastinate_jobs WHERE task_name = 'keep_stops'")
    # Whoever asks first sets the job going; asking again does not queue it twice.
    assert [ask(), session.scalar(queued), ask(), session.scalar(queued)] == [None, 1, None, 1]
    keep_stops(sessions, submission_id, config=config)
    found = ask()
    lost = [question.early_loss + question.late_loss for question in found.questions]
    assert lost == sorted(lost, reverse=True)
    assert min(lost) > 0
    assert found.n_questions == 48
    for question in found.questions:
        probes = 4 * len(question.stops)
        assert sum(stop.lost_probes for stop in question.stops) / probes == pytest.approx(
            question.early_loss + question.late_loss, abs=1e-12
        )
        assert question.stops[question.worst.trajectory].lost_probes == max(s.lost_probes for s in question.stops)
        for stop in question.stops:
            assert 0 <= stop.oracle_position <= stop.n_steps
    of_cell = ask(board=BoardKey("alpha", "math"), limit=3)
    assert {(q.model, q.benchmark) for q in of_cell.questions} == {("alpha", "math")}
    assert (of_cell.n_questions, len(of_cell.questions)) == (21, 3)
    with pytest.raises(UnknownSettingError, match="no setting 'two'"):
        ask("two")
    with pytest.raises(UnknownSettingError, match="covers no cell"):
        ask(board=BoardKey("gamma", None))


def test_a_hidden_split_keeps_and_shows_no_stops(
    desk: Any,
    session: Session,
    sessions: sessionmaker[Session],
    config: Config,
    author: Any,
    make_caps: Any,
    make_board_snapshot: Any,
) -> None:
    from app.services import snapshots

    submission_id = desk.submit(author, make_caps(120))
    desk.score(submission_id)
    keep_stops(sessions, submission_id, config=config)
    snapshots.import_snapshot(session, make_board_snapshot("secret", seed=2, hidden_splits=["test"]))
    secret = snapshots.freeze_snapshot(session, "secret")
    session.execute(text("UPDATE submissions SET snapshot_id = :id"), {"id": secret.id})
    session.expire_all()
    # Also where stops lie on the disk already.
    with pytest.raises(HiddenLabelsError):
        find_losses(session, submission_id, account=author, setting="one", board=WHOLE, limit=5, config=config)
    before = sorted(path.stat().st_mtime_ns for path in config.data_dir.rglob("settings.txt"))
    keep_stops(sessions, submission_id, config=config)
    assert sorted(path.stat().st_mtime_ns for path in config.data_dir.rglob("settings.txt")) == before
    assert session.get_one(models.Submission, submission_id).snapshot_id == secret.id
