"""The life of a submission: what may follow what, who may do it, and that nothing is lost or doubled."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import func, select, text
from sqlalchemy.exc import DatabaseError
from sqlalchemy.orm import Session

from app.db import models
from app.errors import ForbiddenError
from app.files.snapshot import Snapshot, UnknownSplitError
from app.services import snapshots, submissions
from app.services.accounts import Identity
from app.services.snapshots import SnapshotNotFrozenError, UnknownSnapshotError
from app.services.submissions import (
    TRANSITIONS,
    HiddenLabelsError,
    InvalidSubmissionError,
    SubmissionState,
    TransitionError,
    UnknownSubmissionError,
)

Caps = Callable[..., bytes]
S = SubmissionState

# Written out once more, by hand, from the description of the states.
ALLOWED = {
    (S.RECEIVED, S.VALIDATING),
    (S.RECEIVED, S.FAILED),
    (S.RECEIVED, S.WITHDRAWN),
    (S.VALIDATING, S.SCORING),
    (S.VALIDATING, S.REJECTED),
    (S.VALIDATING, S.RECEIVED),
    (S.VALIDATING, S.FAILED),
    (S.VALIDATING, S.WITHDRAWN),
    (S.SCORING, S.SCORED),
    (S.SCORING, S.WITHHELD),
    (S.SCORING, S.RECEIVED),
    (S.SCORING, S.FAILED),
    (S.SCORING, S.WITHDRAWN),
    (S.SCORED, S.PUBLISHED),
    (S.SCORED, S.WITHDRAWN),
    (S.WITHHELD, S.SCORED),
    (S.WITHHELD, S.WITHDRAWN),
    (S.PUBLISHED, S.WITHDRAWN),
    (S.REJECTED, S.WITHDRAWN),
    (S.FAILED, S.RECEIVED),
    (S.FAILED, S.WITHDRAWN),
    # Only where it was cancelled: a score stays withdrawn.
    (S.WITHDRAWN, S.RECEIVED),
}


def test_the_table_of_transitions_is_the_contract_s() -> None:
    assert {(before, after) for before, following in TRANSITIONS.items() for after in following} == ALLOWED


def test_every_change_of_state_is_checked_and_written_down(
    session: Session, desk: Any, author: Identity, make_caps: Caps
) -> None:
    submission_id = desk.submit(author, make_caps(100))
    for before, after in itertools.product(S, S):
        submission = submissions.find_locked(session, submission_id)
        assert submission is not None
        submission.scored_at = submission.published_at = submission.created_at
        if before is S.WITHDRAWN:
            submission.scored_at = None
        submission.failure_reason = "a reason"
        submission.state = before.value
        session.flush()
        if (before, after) in ALLOWED:
            submissions.transition(session, submission, after, actor="ada", reason="why not")
            last = submissions.list_events(session, submission_id, account=author)[-1]
            assert (last.from_state, last.to_state, last.actor, last.reason) == (before, after, "ada", "why not")
            assert submission.state == after
        else:
            with pytest.raises(TransitionError, match=f"is {before}"):
                submissions.transition(session, submission, after, actor="ada")
            assert submission.state == before


def test_row_event_and_job_appear_together(session: Session, desk: Any, author: Identity, make_caps: Caps) -> None:
    submission_id = desk.submit(author, make_caps(100))
    details = submissions.get_submission(session, submission_id, account=author)
    assert (details.state, details.queue_place, details.is_mine) == (S.RECEIVED, 1, True)
    events = submissions.list_events(session, submission_id, account=author)
    assert [(e.from_state, e.to_state, e.actor) for e in events] == [(None, S.RECEIVED, "ada")]
    assert events[0].at.tzinfo is not None
    assert count_jobs(session, submission_id) == 1


def test_a_request_that_fails_leaves_neither_row_nor_job(
    session: Session, desk: Any, author: Identity, make_caps: Caps
) -> None:
    savepoint = session.begin_nested()
    accept(session, desk, author, make_caps(100))
    savepoint.rollback()
    assert session.scalar(select(func.count()).select_from(models.Submission)) == 0
    assert session.scalar(text("SELECT count(*) FROM procrastinate_jobs WHERE task_name = 'score_submission'")) == 0


def test_the_same_bytes_are_the_same_submission(
    session: Session, desk: Any, author: Identity, stranger: Identity, make_caps: Caps
) -> None:
    first = desk.submit(author, make_caps(100))
    assert desk.submit(author, make_caps(100), method="another name") == first
    assert count_jobs(session, first) == 1
    assert len(submissions.list_events(session, first, account=author)) == 1
    others = {desk.submit(stranger, make_caps(100)), desk.submit(author, make_caps(101))}
    assert len({first, *others}) == 3


def test_a_failed_submission_is_tried_again_by_uploading_or_asking(
    session: Session, desk: Any, author: Identity, make_caps: Caps
) -> None:
    submission_id = desk.submit(author, make_caps(100))
    for again in (
        lambda: desk.submit(author, make_caps(100)),
        lambda: submissions.retry_submission(session, submission_id, account=author).id,
    ):
        submission = submissions.find_locked(session, submission_id)
        assert submission is not None
        submission.failure_reason, submission.attempts = "the disk was full", 3
        submissions.transition(session, submission, S.FAILED, actor="worker")
        assert again() == submission_id
        details = submissions.get_submission(session, submission_id, account=author)
        assert (details.state, details.attempts, details.failure_reason) == (S.RECEIVED, 0, None)
    assert count_jobs(session, submission_id) == 3


def test_only_frozen_snapshots_and_open_splits_are_scored(
    session: Session,
    desk: Any,
    author: Identity,
    make_caps: Caps,
    make_board_snapshot: Callable[..., Snapshot],
) -> None:
    snapshots.import_snapshot(session, make_board_snapshot("loose", seed=1))
    snapshots.import_snapshot(session, make_board_snapshot("secret", seed=2, hidden_splits=["test"]))
    snapshots.freeze_snapshot(session, "secret")
    with pytest.raises(UnknownSnapshotError):
        desk.submit(author, make_caps(100), snapshot="nowhere")
    with pytest.raises(SnapshotNotFrozenError):
        desk.submit(author, make_caps(100), snapshot="loose")
    with pytest.raises(UnknownSplitError, match="train, validation, test, all"):
        desk.submit(author, make_caps(100), split="dev")
    with pytest.raises(HiddenLabelsError, match="Name one split"):
        desk.submit(author, make_caps(100), snapshot="secret", split="all")
    assert desk.submit(author, make_caps(100, split="validation"), snapshot="secret", split="validation")


@pytest.mark.parametrize("name", ["", "   ", "x" * 201, "two\nlines"])
def test_a_method_needs_a_name_that_can_be_shown(desk: Any, author: Identity, make_caps: Caps, name: str) -> None:
    with pytest.raises(InvalidSubmissionError):
        desk.submit(author, make_caps(100), method=name)


def test_who_sees_and_who_may_change(
    session: Session, desk: Any, author: Identity, stranger: Identity, make_caps: Caps
) -> None:
    submission_id = desk.submit(author, make_caps(100))
    for reader in (stranger, None):
        with pytest.raises(UnknownSubmissionError):
            submissions.get_submission(session, submission_id, account=reader)
    with pytest.raises(UnknownSubmissionError):
        submissions.publish_submission(session, submission_id, account=stranger)
    with pytest.raises(TransitionError, match="received"):
        submissions.publish_submission(session, submission_id, account=author)
    desk.score(submission_id)
    published = submissions.publish_submission(session, submission_id, account=author)
    assert published.state is S.PUBLISHED
    assert published == submissions.publish_submission(session, submission_id, account=author)
    assert submissions.get_submission(session, submission_id, account=None).is_mine is False
    with pytest.raises(ForbiddenError):
        submissions.withdraw_submission(session, submission_id, account=stranger)


def test_withdrawing_leaves_a_tombstone(session: Session, desk: Any, author: Identity, make_caps: Caps) -> None:
    """Elsewhere, deleting an entry removed its team from the board for good (codabench#2018)."""
    submission_id = desk.submit(author, make_caps(100))
    desk.score(submission_id)
    submissions.publish_submission(session, submission_id, account=author)
    gone = submissions.withdraw_submission(session, submission_id, account=author, reason="a mistake")
    assert gone.state is S.WITHDRAWN
    assert gone == submissions.withdraw_submission(session, submission_id, account=author)
    assert submissions.list_events(session, submission_id, account=author)[-1].reason == "a mistake"
    assert submissions.get_submission(session, submission_id, account=None).state is S.WITHDRAWN
    assert desk.submit(author, make_caps(100)) == submission_id
    assert submissions.get_submission(session, submission_id, account=author).state is S.WITHDRAWN
    with pytest.raises(TransitionError):
        submissions.retry_submission(session, submission_id, account=author)


def test_a_cancelled_submission_may_be_sent_again(
    session: Session, desk: Any, author: Identity, make_caps: Caps
) -> None:
    submission_id = desk.submit(author, make_caps(100))
    gone = submissions.withdraw_submission(session, submission_id, account=author)
    assert (gone.state, gone.was_cancelled, gone.queue_place) == (S.WITHDRAWN, True, None)
    desk.score(submission_id)
    assert submissions.get_submission(session, submission_id, account=author).state is S.WITHDRAWN
    assert desk.submit(author, make_caps(100)) == submission_id
    again = submissions.get_submission(session, submission_id, account=author)
    assert (again.state, again.was_cancelled, again.queue_place) == (S.RECEIVED, False, 1)
    submissions.withdraw_submission(session, submission_id, account=author)
    assert submissions.retry_submission(session, submission_id, account=author).state is S.RECEIVED
    desk.score(submission_id)
    assert submissions.get_submission(session, submission_id, account=author).state is S.SCORED


def test_a_rejected_file_stays_withdrawn(session: Session, desk: Any, author: Identity) -> None:
    submission_id = desk.submit(author, b"no,actions\n1,2\n")
    desk.score(submission_id)
    gone = submissions.withdraw_submission(session, submission_id, account=author)
    assert (gone.state, gone.was_cancelled) == (S.WITHDRAWN, False)
    with pytest.raises(TransitionError):
        submissions.retry_submission(session, submission_id, account=author)


def test_pages_hold_each_submission_once(
    session: Session, desk: Any, author: Identity, stranger: Identity, make_caps: Caps
) -> None:
    mine = [desk.submit(author, make_caps(cap)) for cap in range(5)]
    desk.submit(stranger, make_caps(1))
    seen: list[str] = []
    cursor = None
    while True:
        page = submissions.list_submissions(session, account=author, limit=2, cursor=cursor)
        seen += [item.id for item in page.items]
        cursor = page.next_cursor
        if cursor is None:
            break
    assert sorted(seen) == sorted(mine)


def test_events_cannot_be_changed(session: Session, desk: Any, author: Identity, make_caps: Caps) -> None:
    desk.submit(author, make_caps(100))
    with pytest.raises(DatabaseError, match="only ever added"), session.begin_nested():
        session.execute(text("UPDATE submission_events SET actor = 'nobody'"))


def count_jobs(session: Session, submission_id: str) -> int:
    query = text("SELECT count(*) FROM procrastinate_jobs WHERE args->>'submission_id' = :id")
    return int(session.scalar(query, {"id": submission_id}) or 0)


def accept(session: Session, desk: Any, author: Identity, content: bytes) -> None:
    submissions.accept_submission(
        session,
        account=author,
        snapshot_name="small",
        split="test",
        strategy=submissions.Strategy.FIXED_BUDGET,
        method_name="method",
        description=None,
        upload=desk.store(content),
        filename="actions.csv",
    )
