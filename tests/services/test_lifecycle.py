"""No submission is left behind: lost jobs, clocks that jump, work that was cancelled, and how long the wait is."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import func, select, text
from sqlalchemy.orm import Session

from app.db import models
from app.services import score_records, scoring, submissions
from app.services.accounts import Identity
from app.services.scoring import reap_submissions, score_submission
from app.services.submissions import QUEUE_DEADLINE, SubmissionState
from app.services.waiting import find_wait

Caps = Callable[..., bytes]
S = SubmissionState
DAY = timedelta(days=1)


def look(session: Session, submission_id: str) -> models.Submission:
    found = submissions.find_locked(session, submission_id)
    assert found is not None
    return found


def lose_jobs(session: Session) -> None:
    session.execute(text("DELETE FROM procrastinate_jobs WHERE task_name = 'score_submission'"))
    session.commit()


def count_jobs(session: Session, submission_id: str) -> int:
    query = text("SELECT count(*) FROM procrastinate_jobs WHERE args->>'submission_id' = :id AND status = 'todo'")
    return session.scalar(query, {"id": submission_id}) or 0


def test_what_waits_without_a_job_is_queued_again(
    session: Session, desk: Any, author: Identity, make_caps: Caps
) -> None:
    """A job that failed where it could not even say so, as when the database was away, leaves its submission behind."""
    lost, kept = desk.submit(author, make_caps(1)), desk.submit(author, make_caps(2))
    session.execute(text("DELETE FROM procrastinate_jobs WHERE args->>'submission_id' = :id"), {"id": lost})
    assert reap_submissions(session, config=desk.config) == 1
    assert (count_jobs(session, lost), count_jobs(session, kept)) == (1, 1)
    assert reap_submissions(session, config=desk.config) == 0


def test_what_was_worked_on_without_a_job_gets_its_next_attempt(
    session: Session, desk: Any, author: Identity, make_caps: Caps
) -> None:
    submission_id = desk.submit(author, make_caps(1))
    scoring._begin(desk.sessions, submission_id, config=desk.config, actor="worker")
    assert reap_submissions(session, config=desk.config) == 0
    lose_jobs(session)
    assert reap_submissions(session, config=desk.config) == 1
    shown = look(session, submission_id)
    assert (shown.state, shown.attempts, count_jobs(session, submission_id)) == (S.RECEIVED, 1, 1)
    events = submissions.list_events(session, submission_id, account=author)
    assert (events[-1].actor, events[-1].reason) == ("system", "its job was lost")
    desk.score(submission_id)
    assert look(session, submission_id).state == S.SCORED


def test_a_clock_that_jumps_loses_and_doubles_nothing(
    session: Session, desk: Any, author: Identity, make_caps: Caps
) -> None:
    """Days ahead and back, at every step: each submission ends scored, once."""
    now = datetime.now(UTC)
    jumps = [timedelta(0), 400 * DAY, -400 * DAY, 2 * DAY, -1 * DAY, timedelta(hours=23)]
    made = [desk.submit(author, make_caps(cap)) for cap in range(len(jumps))]
    for submission_id, jump in zip(made, jumps, strict=True):
        scoring._begin(desk.sessions, submission_id, config=desk.config, actor="worker", now=now + jump)
        session.expire_all()
        for other in jumps:
            reap_submissions(session, config=desk.config, now=now + other)
            session.commit()
    for submission_id in made:
        score_submission(desk.sessions, submission_id, config=desk.config, actor="worker", now=now)
        score_submission(desk.sessions, submission_id, config=desk.config, actor="worker", now=now - 9 * DAY)
        session.expire_all()
        shown = look(session, submission_id)
        is_over = shown.state == S.SCORED or (shown.state == S.FAILED and shown.failure_reason)
        assert is_over, shown.state
    n_scored = sum(look(session, submission_id).state == S.SCORED for submission_id in made)
    assert session.scalar(select(func.count()).select_from(models.Score)) == n_scored > 0


def test_a_deadline_set_by_a_clock_that_ran_ahead_is_brought_back(
    session: Session, desk: Any, author: Identity, make_caps: Caps
) -> None:
    now = datetime.now(UTC)
    waiting, held = desk.submit(author, make_caps(1)), desk.submit(author, make_caps(2))
    look(session, waiting).deadline = now + 400 * DAY
    scoring._begin(desk.sessions, held, config=desk.config, actor="worker", now=now + 400 * DAY)
    session.expire_all()
    assert reap_submissions(session, config=desk.config, now=now) == 0
    session.expire_all()
    assert look(session, waiting).deadline == now + QUEUE_DEADLINE
    assert look(session, held).deadline == now + timedelta(seconds=desk.config.scoring_deadline_seconds)
    later = now + timedelta(seconds=desk.config.scoring_deadline_seconds + 1)
    assert reap_submissions(session, config=desk.config, now=later) == 1
    assert look(session, held).state == S.RECEIVED


def test_a_cancelled_run_stops_while_it_reads(
    session: Session, desk: Any, author: Identity, make_caps: Caps, monkeypatch: pytest.MonkeyPatch
) -> None:
    submission_id = desk.submit(author, make_caps(1))
    monkeypatch.setattr(scoring, "PROGRESS_SECONDS", 0.0)
    read_actions = score_records.read_actions
    seen: list[float] = []

    def cancel_midway(*arguments: Any, progress: Any, **keywords: Any) -> Any:
        def watch(share: float) -> None:
            if not seen:
                submissions.withdraw_submission(session, submission_id, account=author)
                session.commit()
            seen.append(share)
            progress(share)

        return read_actions(*arguments, progress=watch, **keywords)

    monkeypatch.setattr(score_records, "read_actions", cancel_midway)
    desk.score(submission_id)
    # It was told at its next word of progress, and read no further.
    assert len(seen) == 1
    shown = look(session, submission_id)
    assert (shown.state, shown.n_settings, shown.progress) == (S.WITHDRAWN, None, None)
    assert session.scalar(select(func.count()).select_from(models.Score)) == 0
    assert [e.to_state for e in submissions.list_events(session, submission_id, account=author)][-1] == S.WITHDRAWN


def test_the_wait_is_estimated_where_it_can_be(session: Session, desk: Any, author: Identity, make_caps: Caps) -> None:
    def wait(submission_id: str) -> Any:
        return find_wait(session, submissions.get_submission(session, submission_id, account=author))

    first, second, third = (desk.submit(author, make_caps(cap)) for cap in range(3))
    assert (wait(first).worker_alive, wait(first).seconds) == (False, None)
    for _ in range(2):
        session.execute(text("SELECT procrastinate_register_worker_v1()"))
    # Nothing has been scored yet, so nobody knows how long it takes.
    assert (wait(first).worker_alive, wait(first).seconds) == (True, None)
    desk.score(first)
    assert wait(first) is None
    usual = wait(second).seconds
    assert usual > 0
    # Two workers: the first two in the queue are scored side by side, the next one after them.
    fourth = desk.submit(author, make_caps(4))
    # In a test's one transaction all of them were made at the same time; their order is that of their making.
    for age, submission_id in enumerate((fourth, third, second)):
        look(session, submission_id).created_at -= timedelta(seconds=age)
    session.flush()
    assert (wait(third).seconds, wait(fourth).seconds) == (usual, 2 * usual)
