"""Scorer versions: a second one gives new scores beside the old, is previewed, and takes a board over as a whole."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import select, text
from sqlalchemy.orm import Session, sessionmaker

from app.config import Config
from app.db import models
from app.evaluator.scorers import SCORERS, current_scorer_version
from app.evaluator.strategies import Strategy
from app.services import jobs, rescoring, submissions
from app.services.accounts import Identity
from app.services.board_versions import get_board_version
from app.services.bootstrap import begin_bootstrap, run_slice
from app.services.intervals import resample_submission
from app.services.leaderboard import Leaderboard, format_csv, get_leaderboard
from app.services.ranks import rank_boards
from app.services.rescoring import NothingToRescoreError, RescoringStateError, RescoringStatus, UnknownRescoringError
from app.services.rescoring_jobs import reap_rescorings, rescore_submission
from app.services.rescoring_preview import preview_rescoring
from app.services.scoring import NotScoredError, get_score
from app.services.uploads import upload_path
from tests.other_scorer import score_with_penalty

Caps = Callable[..., bytes]
Publish = Callable[..., str]
TASKS = (jobs.BOOTSTRAP_SPLIT, jobs.RESAMPLE_SUBMISSION, jobs.RANK_BOARDS, jobs.RESCORE_SUBMISSION)


@pytest.fixture
def upgrade(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """A function that lets the program be one that scores with version 2, as an upgrade does."""
    return lambda: monkeypatch.setitem(SCORERS, "2", score_with_penalty)


@pytest.fixture
def config(config: Config) -> Config:
    return replace(config, bootstrap_replicates=100)


@pytest.fixture
def publish(session: Session, desk: Any, author: Identity) -> Publish:
    def run(content: Any, *, method: str = "method", account: Identity = author) -> str:
        submission_id: str = desk.submit(account, content, method=method)
        desk.score(submission_id)
        submissions.publish_submission(session, submission_id, account=account)
        session.commit()
        return submission_id

    return run


@pytest.fixture
def work(session: Session, sessions: sessionmaker[Session], config: Config) -> Callable[[], list[str]]:
    """A function that does what the queued jobs do, in the queue's order, and returns their names."""

    def run() -> list[str]:
        done: list[str] = []
        for name, arguments in _fetch_jobs(session):
            done.append(name)
            session.commit()
            if name == jobs.RESCORE_SUBMISSION:
                rescore_submission(sessions, **arguments, config=config)
            elif name == jobs.BOOTSTRAP_SPLIT:
                run_slice(sessions, **arguments, config=config)
            elif name == jobs.RESAMPLE_SUBMISSION:
                resample_submission(sessions, **arguments, config=config)
            else:
                rank_boards(sessions, **{**arguments, "strategy": Strategy(arguments["strategy"])})
            session.expire_all()
        return done

    return run


def _fetch_jobs(session: Session) -> Iterator[Any]:
    query = text(
        "DELETE FROM procrastinate_jobs WHERE id = (SELECT id FROM procrastinate_jobs WHERE task_name = ANY(:names)"
        " ORDER BY priority DESC, id LIMIT 1) RETURNING task_name, args"
    )
    while (found := session.execute(query, {"names": list(TASKS)}).one_or_none()) is not None:
        yield found


def get_board(session: Session, **options: Any) -> Leaderboard:
    target = {"snapshot": "small", "split": "test", "strategy": Strategy.FIXED_BUDGET, "model": None, "benchmark": None}
    return get_leaderboard(session, **{**target, **options})


def start(session: Session) -> RescoringStatus:
    started = rescoring.start_rescoring(session, snapshot_name="small", split=None, strategy=None, actor="olga")
    session.commit()
    return started


def apply(session: Session, rescoring_id: int, *, leave_out_failed: bool = False) -> RescoringStatus:
    status = rescoring.apply_rescoring(session, rescoring_id, leave_out_failed=leave_out_failed, actor="olga")
    session.commit()
    return status


def list_audited(session: Session) -> list[str]:
    return list(session.scalars(select(models.AuditEvent.action).order_by(models.AuditEvent.id)))


def test_a_board_keeps_its_version_until_a_rescoring_is_applied(
    session: Session,
    desk: Any,
    author: Identity,
    publish: Publish,
    work: Callable[[], list[str]],
    make_caps: Caps,
    upgrade: Callable[[], None],
) -> None:
    """A fixed tie bug left old boards as "latest" for two years (helm#2991); versions were mixed (mteb#5228)."""
    first, second = publish(make_caps(200), method="first"), publish(desk.write("oracle"), method="second")
    before = get_board(session)
    assert (before.scorer_version, before.newer_scorer_version, before.n_waiting) == ("1", None, 0)
    upgrade()
    assert current_scorer_version() == "2"
    late = publish(make_caps(300), method="late")
    board = get_board(session)
    assert (board.scorer_version, board.newer_scorer_version, board.n_waiting) == ("1", "2", 1)
    assert board.rows == before.rows
    line = next(csv.DictReader(io.StringIO(format_csv(board))))
    assert (line["scorer_version"], line["newer_scorer_version"], line["n_waiting"]) == ("1", "2", "1")
    status = start(session)
    # What was scored by the new version already is none of its business.
    assert (status.state, status.n_submissions, status.n_waiting, status.n_done) == ("running", 2, 2, 0)
    with pytest.raises(RescoringStateError, match="2 submissions still wait"):
        apply(session, status.id)
    work()
    status = rescoring.get_rescoring(session, status.id)
    assert (status.state, status.n_done, status.n_failed) == ("ready", 2, 0)
    assert get_board(session).rows == before.rows
    applied = apply(session, status.id)
    assert (applied.state, applied.ended_by) == ("applied", "olga")
    board = get_board(session)
    assert (board.scorer_version, board.newer_scorer_version, board.n_waiting) == ("2", None, 0)
    assert {row.scorer_version for row in board.rows} == {"2"}
    assert {row.submission_id for row in board.rows} == {first, second, late}
    old = {row.submission_id: row.area for row in before.rows}
    assert all(row.area == 0.9 * old[row.submission_id] for row in board.rows if row.submission_id in old)
    # What it showed before can still be asked for, and is still what it was.
    assert get_board(session, scorer_version="1").rows == before.rows
    assert list_audited(session)[-2:] == ["start_rescoring", "apply_rescoring"]
    assert apply(session, status.id).state == "applied"
    assert list_audited(session)[-1:] == ["apply_rescoring"]


def test_a_score_of_every_version_can_be_asked_for(
    session: Session,
    author: Identity,
    publish: Publish,
    work: Callable[[], list[str]],
    make_caps: Caps,
    upgrade: Callable[[], None],
) -> None:
    submission_id = publish(make_caps(200))
    old = get_score(session, submission_id, account=None)
    with pytest.raises(NotScoredError, match="scorer version 2"):
        get_score(session, submission_id, account=None, scorer_version="2")
    upgrade()
    status = start(session)
    work()
    assert get_score(session, submission_id, account=None) == old
    new = get_score(session, submission_id, account=None, scorer_version="2")
    assert json.loads(new.text)["scorer_version"] == "2"
    apply(session, status.id)
    assert get_score(session, submission_id, account=None).scorer_version == "2"
    assert get_score(session, submission_id, account=None, scorer_version="1") == old
    stored = list(session.scalars(select(models.Score).order_by(models.Score.id)))
    assert [(score.scorer_version, score.evaluator_version is not None) for score in stored] == [
        ("1", True),
        ("2", True),
    ]


def test_the_preview_says_which_figures_and_ranks_change(
    session: Session,
    frozen: models.Snapshot,
    config: Config,
    desk: Any,
    publish: Publish,
    work: Callable[[], list[str]],
    make_caps: Caps,
    upgrade: Callable[[], None],
) -> None:
    begin_bootstrap(session, frozen, split="test", config=config)
    best, worst = publish(desk.write("oracle"), method="best"), publish(make_caps(1), method="worst")
    work()
    upgrade()
    status = start(session)
    work()
    status = rescoring.get_rescoring(session, status.id)
    assert status.n_resampled == 2
    preview = preview_rescoring(session, status.id)
    (target,) = preview.targets
    n_boards = len(json.loads(get_score(session, best, account=None).text)["boards"])
    assert (target.n_rows, target.n_figures_changed) == (2 * n_boards, 2 * n_boards)
    assert (target.n_added, target.n_removed, target.from_version) == (0, 0, "1")
    assert len(preview.largest) == 10
    sizes = [abs(change.new - change.old) for change in preview.largest if change.old and change.new]
    assert sizes == sorted(sizes, reverse=True)
    board = preview.board
    assert (board.old.ranks_are_provisional, board.new.ranks_are_provisional) == (False, False)
    assert [row.shown.submission_id for row in board.rows] == [best, worst]
    assert board.n_figures_changed == 2
    assert board.n_ranks_changed == sum(
        (row.old.rank, row.old.last_rank) != (row.new.rank, row.new.last_rank)
        for row in board.rows
        if row.old and row.new
    )
    (first, _) = board.rows
    assert first.old is not None
    assert first.new is not None
    assert (first.old.area, first.new.area) == (first.old.area, 0.9 * first.old.area)
    assert {"area", "gap", "realised_potential"} == set(first.changed)
    with pytest.raises(UnknownRescoringError):
        preview_rescoring(session, status.id, split="validation")
    # Intervals and ranks of the new version are there before it is applied.
    apply(session, status.id)
    after = get_board(session)
    assert not after.ranks_are_provisional
    assert after.rows == board.new.rows
    assert all(row.realised_potential_low is not None for row in after.rows)


def test_a_cancelled_rescoring_changes_nothing_and_its_scores_are_not_made_again(
    session: Session, publish: Publish, work: Callable[[], list[str]], make_caps: Caps, upgrade: Callable[[], None]
) -> None:
    for cap in (100, 200):
        publish(make_caps(cap), method=f"m{cap}")
    before = get_board(session)
    upgrade()
    status = start(session)
    with pytest.raises(RescoringStateError, match="is open"):
        start(session)
    work()
    assert rescoring.cancel_rescoring(session, status.id, actor="olga").state == "cancelled"
    assert rescoring.cancel_rescoring(session, status.id, actor="olga").state == "cancelled"
    with pytest.raises(RescoringStateError, match="is cancelled"):
        apply(session, status.id)
    board = get_board(session)
    assert (board.rows, board.scorer_version) == (before.rows, "1")
    again = start(session)
    assert (again.state, again.n_done, again.n_waiting) == ("ready", 2, 0)
    assert jobs.RESCORE_SUBMISSION not in work()


def test_a_rescoring_needs_boards_of_another_version(
    session: Session, publish: Publish, make_caps: Caps, upgrade: Callable[[], None]
) -> None:
    with pytest.raises(NothingToRescoreError):
        start(session)
    publish(make_caps(200))
    with pytest.raises(NothingToRescoreError):
        start(session)
    upgrade()
    with pytest.raises(NothingToRescoreError):
        rescoring.start_rescoring(session, snapshot_name="small", split="train", strategy=None, actor="olga")
    assert [board.split for board in start(session).boards] == ["test"]
    with pytest.raises(UnknownRescoringError):
        rescoring.get_rescoring(session, 999)


def test_what_cannot_be_scored_fails_with_a_reason_and_holds_the_board_back(
    session: Session,
    sessions: sessionmaker[Session],
    config: Config,
    author: Identity,
    publish: Publish,
    work: Callable[[], list[str]],
    make_caps: Caps,
    upgrade: Callable[[], None],
) -> None:
    kept, lost = publish(make_caps(200), method="kept"), publish(make_caps(300), method="lost")
    path = upload_path(config.data_dir, submissions.get_submission(session, lost, account=None).actions_sha256)
    content = path.read_bytes()
    path.unlink()
    upgrade()
    status = start(session)
    for _ in range(config.scoring_attempts):
        work()
    status = rescoring.get_rescoring(session, status.id)
    assert (status.state, status.n_done, status.n_failed) == ("ready", 1, 1)
    assert status.failed[0].submission_id == lost
    assert "not in the data folder" in status.failed[0].reason
    assert "(after 3 attempts)" in status.failed[0].reason
    with pytest.raises(RescoringStateError, match="could not be scored"):
        apply(session, status.id)
    path.write_bytes(content)
    assert rescoring.retry_rescoring(session, status.id, actor="olga").n_waiting == 1
    session.commit()
    path.unlink()
    for _ in range(config.scoring_attempts):
        work()
    apply(session, status.id, leave_out_failed=True)
    assert [row.submission_id for row in get_board(session).rows] == [kept]
    # Its old score is still its own.
    assert get_score(session, lost, account=author).scorer_version == "1"


def test_a_lost_worker_is_followed_by_another_attempt(
    session: Session,
    sessions: sessionmaker[Session],
    config: Config,
    publish: Publish,
    work: Callable[[], list[str]],
    make_caps: Caps,
    upgrade: Callable[[], None],
) -> None:
    publish(make_caps(200))
    upgrade()
    status = start(session)
    # A worker took it up and died; its job is gone with it.
    session.execute(text("DELETE FROM procrastinate_jobs"))
    session.execute(
        text("UPDATE rescoring_items SET state = 'scoring', attempts = 1, deadline = now() - '1s'::interval")
    )
    session.commit()
    with sessions.begin() as reaping:
        assert reap_rescorings(reaping, config=config) == 1
    session.expire_all()
    assert jobs.RESCORE_SUBMISSION in work()
    assert rescoring.get_rescoring(session, status.id).n_done == 1
    session.execute(text("UPDATE rescoring_items SET finished_at = NULL, state = 'scoring', attempts = 3"))
    session.execute(text("UPDATE rescoring_items SET deadline = now() - '1s'::interval"))
    session.commit()
    with sessions.begin() as reaping:
        assert reap_rescorings(reaping, config=config) == 1
    session.expire_all()
    assert "longer than allowed" in rescoring.get_rescoring(session, status.id).failed[0].reason


def test_a_worker_of_another_version_does_not_mix_them(
    session: Session,
    config: Config,
    publish: Publish,
    work: Callable[[], list[str]],
    make_caps: Caps,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    publish(make_caps(200))
    with monkeypatch.context() as newer:
        newer.setitem(SCORERS, "2", score_with_penalty)
        status = start(session)
    for _ in range(config.scoring_attempts):
        work()
    status = rescoring.get_rescoring(session, status.id)
    assert status.n_failed == 1
    assert "scores with version 1" in status.failed[0].reason
    assert list(session.scalars(select(models.Score.scorer_version))) == ["1"]


def test_withdrawn_submissions_leave_a_rescoring(
    session: Session,
    author: Identity,
    publish: Publish,
    work: Callable[[], list[str]],
    make_caps: Caps,
    upgrade: Callable[[], None],
) -> None:
    kept, gone = publish(make_caps(200), method="kept"), publish(make_caps(300), method="gone")
    upgrade()
    status = start(session)
    submissions.withdraw_submission(session, gone, account=author)
    session.commit()
    work()
    status = rescoring.get_rescoring(session, status.id)
    assert (status.state, status.n_submissions) == ("ready", 1)
    apply(session, status.id)
    assert [row.submission_id for row in get_board(session).rows] == [kept]


def test_a_draft_of_an_older_version_is_scored_again_when_it_is_published(
    session: Session,
    desk: Any,
    author: Identity,
    publish: Publish,
    work: Callable[[], list[str]],
    make_caps: Caps,
    upgrade: Callable[[], None],
    frozen: models.Snapshot,
) -> None:
    draft = desk.submit(author, make_caps(100), method="draft")
    desk.score(draft)
    upgrade()
    publish(make_caps(200), method="new")
    target = {"split": "test", "strategy": Strategy.FIXED_BUDGET.value}
    assert get_board_version(session, frozen.id, **target) == "2"
    submissions.publish_submission(session, draft, account=author)
    session.commit()
    assert [row.method for row in get_board(session).rows] == ["new"]
    assert jobs.RESCORE_SUBMISSION in work()
    assert {row.method for row in get_board(session).rows} == {"new", "draft"}
