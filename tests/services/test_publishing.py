"""Which submission stands for its method, what a withdrawal leaves, and what an organiser's marks change."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.orm import Session

from app.evaluator.strategies import Strategy
from app.services import jobs, marks, publishing, submissions
from app.services.accounts import Identity, ensure_account
from app.services.leaderboard import Leaderboard, format_csv, get_leaderboard
from app.services.marks import InvalidReasonError
from app.services.submissions import ForbiddenError, TransitionError, UnknownSubmissionError

Caps = Callable[..., bytes]
Publish = Callable[..., str]


@pytest.fixture
def publish(session: Session, desk: Any, author: Identity) -> Publish:
    """A function that submits, scores and publishes a file."""

    def run(content: Any, *, method: str = "method", account: Identity = author, **target: Any) -> str:
        submission_id: str = desk.submit(account, content, method=method, **target)
        desk.score(submission_id)
        submissions.publish_submission(session, submission_id, account=account)
        session.commit()
        return submission_id

    return run


def get_board(session: Session, *, split: str = "test") -> Leaderboard:
    return get_leaderboard(
        session, snapshot="small", split=split, strategy=Strategy.FIXED_BUDGET, model=None, benchmark=None
    )


def list_standing(session: Session) -> list[str]:
    return [row.submission_id for row in get_board(session).rows]


def count_rankings(session: Session) -> int:
    query = text("SELECT count(*) FROM procrastinate_jobs WHERE task_name = :task")
    return int(session.scalar(query, {"task": jobs.RANK_BOARDS}) or 0)


def test_the_chosen_submission_stands_whatever_is_published_later(
    session: Session, publish: Publish, author: Identity, make_caps: Caps
) -> None:
    first = publish(make_caps(100))
    second = publish(make_caps(200))
    assert list_standing(session) == [second]
    before = count_rankings(session)
    assert publishing.make_current(session, first, account=author).is_current
    assert count_rankings(session) == before + 1
    assert list_standing(session) == [first]
    third = publish(make_caps(300))
    assert list_standing(session) == [first]
    publishing.make_current(session, third, account=author)
    assert list_standing(session) == [third]
    assert not submissions.get_submission(session, first, account=author).is_current


def test_choosing_the_current_one_again_changes_nothing(
    session: Session, publish: Publish, author: Identity, make_caps: Caps
) -> None:
    chosen = publish(make_caps(100))
    publishing.make_current(session, chosen, account=author)
    events = submissions.list_events(session, chosen, account=author)
    assert events[-1].reason == "chosen to stand for its method"
    rankings = count_rankings(session)
    publishing.make_current(session, chosen, account=author)
    assert submissions.list_events(session, chosen, account=author) == events
    assert count_rankings(session) == rankings


def test_each_target_has_a_current_one_of_its_own(
    session: Session, publish: Publish, author: Identity, make_caps: Caps
) -> None:
    on_test = publish(make_caps(100))
    on_validation = publish(make_caps(100, split="validation"), split="validation")
    for submission_id in (on_test, on_validation):
        publishing.make_current(session, submission_id, account=author)
    for submission_id in (on_test, on_validation):
        assert submissions.get_submission(session, submission_id, account=author).is_current


def test_the_row_goes_to_the_latest_published_one_when_the_current_one_is_withdrawn(
    session: Session, publish: Publish, author: Identity, stranger: Identity, make_caps: Caps
) -> None:
    """Deleting an entry once removed the team from the board for good (codabench#2018)."""
    first, second, third = (publish(make_caps(cap)) for cap in (100, 200, 300))
    publishing.make_current(session, first, account=author)
    submissions.withdraw_submission(session, first, account=author, reason="wrong checkpoint")
    assert list_standing(session) == [third]
    submissions.withdraw_submission(session, third, account=author)
    assert list_standing(session) == [second]
    for reader in (None, stranger):
        tombstone = submissions.get_submission(session, first, account=reader)
        assert (tombstone.state, tombstone.is_current) == ("withdrawn", False)
        assert submissions.list_events(session, first, account=reader)[-1].reason == "wrong checkpoint"


def test_only_a_published_one_of_one_s_own_can_be_chosen(
    session: Session, desk: Any, publish: Publish, author: Identity, stranger: Identity, make_caps: Caps
) -> None:
    draft = desk.submit(author, make_caps(100))
    desk.score(draft)
    with pytest.raises(TransitionError, match="only a published one"):
        publishing.make_current(session, draft, account=author)
    with pytest.raises(UnknownSubmissionError):
        publishing.make_current(session, draft, account=stranger)
    with pytest.raises(UnknownSubmissionError):
        publishing.make_current(session, "AAAAAAAAAAAA", account=author)
    published = publish(make_caps(200))
    with pytest.raises(ForbiddenError):
        publishing.make_current(session, published, account=stranger)
    submissions.withdraw_submission(session, published, account=author)
    with pytest.raises(TransitionError):
        publishing.make_current(session, published, account=author)


def test_a_flagged_entry_stays_with_its_reason_and_takes_no_rank(
    session: Session, desk: Any, publish: Publish, author: Identity, make_caps: Caps
) -> None:
    best = publish(desk.write("oracle"), method="best")
    other = publish(make_caps(200), method="other")
    rankings = count_rankings(session)
    flagged = marks.flag_submission(session, best, reason=" reads the labels ", account=author)
    assert flagged.flag_reason == "reads the labels"
    assert flagged.flagged_at is not None
    rows = {row.submission_id: row for row in get_board(session).rows}
    assert (rows[best].rank, rows[best].rank_reason, rows[best].flag_reason) == (None, "flagged", "reads the labels")
    assert (rows[other].rank, rows[other].last_rank) == (1, 1)
    lines = list(csv.DictReader(io.StringIO(format_csv(get_board(session)))))
    assert [(line["flag_reason"], line["rank"]) for line in lines] == [("reads the labels", ""), ("", "1")]
    assert count_rankings(session) == rankings + 1
    marks.flag_submission(session, best, reason="reads the labels", account=author)
    assert count_rankings(session) == rankings + 1
    assert marks.unflag_submission(session, best, account=author).flag_reason is None
    assert [row.rank for row in get_board(session).rows] == [1, 2]
    assert count_rankings(session) == rankings + 2
    reasons = [event.reason for event in submissions.list_events(session, best, account=None)]
    assert reasons[-2:] == ["flagged: reads the labels", "no longer flagged"]


@pytest.mark.parametrize("reason", ["", "  ", "x" * 501, "two\nlines"])
def test_a_flag_needs_a_reason(
    session: Session, publish: Publish, author: Identity, make_caps: Caps, reason: str
) -> None:
    submission_id = publish(make_caps(100))
    with pytest.raises(InvalidReasonError):
        marks.flag_submission(session, submission_id, reason=reason, account=author)


def test_baselines_and_verified_entries_are_shown_and_ranked(
    session: Session, publish: Publish, author: Identity, make_caps: Caps
) -> None:
    submission_id = publish(make_caps(100), method="mine")
    other = ensure_account(session, name="eve", team="thirds", is_control=False)
    publish(make_caps(200), method="mine", account=other)
    marks.mark_baseline(session, submission_id, account=author)
    marks.verify_submission(session, submission_id, account=author)
    shown = {row.team: (row.is_baseline, row.is_verified, row.rank is not None) for row in get_board(session).rows}
    # A method of the same name of another team is another method.
    assert shown == {"engines": (True, True, True), "thirds": (False, False, True)}
    newer = publish(make_caps(300), method="mine")
    row = next(row for row in get_board(session).rows if row.submission_id == newer)
    # A baseline is the method, whichever file stands for it; what was verified is one file.
    assert (row.is_baseline, row.is_verified) == (True, False)
    marks.unmark_baseline(session, submission_id, account=author)
    assert not marks.unverify_submission(session, submission_id, account=author).is_verified
    assert not any(row.is_baseline for row in get_board(session).rows)


def test_marks_of_what_does_not_exist(session: Session, author: Identity, desk: Any) -> None:
    for act in (marks.unflag_submission, marks.verify_submission, marks.unverify_submission, marks.mark_baseline):
        with pytest.raises(UnknownSubmissionError):
            act(session, "AAAAAAAAAAAA", account=author)
    with pytest.raises(UnknownSubmissionError):
        marks.flag_submission(session, "AAAAAAAAAAAA", reason="x", account=author)
