"""The allowance: right to the unit and to the second, for one who waits, one who hurries, and a clock that jumps."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import select
from sqlalchemy.orm import Session

from app.config import Config
from app.db import models
from app.db.session import make_engine, session_factory
from app.evaluator.strategies import Strategy
from app.files.snapshot import Snapshot
from app.services import snapshots, submissions
from app.services.accounts import Identity, ensure_account
from app.services.allowance import (
    DEFAULT_LIMITS,
    AllowanceExhaustedError,
    AllowanceSpentError,
    build_meter,
    find_limits,
    get_allowance,
    require_allowance,
    set_limits,
)
from app.services.submissions import SubmissionState, accept_submission
from app.services.uploads import store_upload

NOON = datetime(2026, 1, 2, 12, 0, 0, tzinfo=UTC)
DAY = timedelta(hours=24)
Caps = Callable[..., bytes]


@pytest.fixture
def secret(session: Session, make_board_snapshot: Callable[..., Snapshot]) -> models.Snapshot:
    """A frozen snapshot that hides the labels of its test split."""
    snapshots.import_snapshot(session, make_board_snapshot("secret", seed=2, hidden_splits=["test"]))
    return snapshots.freeze_snapshot(session, "secret")


def add(session: Session, account: Identity, snapshot: models.Snapshot, **values: Any) -> models.Submission:
    """Put a submission of the account's team there, as it would be."""
    method = session.scalar(select(models.Method).where(models.Method.team_id == account.team_id))
    if method is None:
        method = models.Method(team_id=account.team_id, name="m")
        session.add(method)
        session.flush()
    submission = models.Submission(
        id=models.new_submission_id(),
        team_id=account.team_id,
        method_id=method.id,
        account_id=account.id,
        snapshot_id=snapshot.id,
        strategy="fixed_budget",
        actions_sha256=models.new_submission_id().encode().hex().ljust(64, "0"),
        actions_bytes=1,
        filename="f.csv",
        **{
            "split": "test",
            "charged_at": NOON,
            "scored_at": NOON,
            "published_at": NOON,
            "failure_reason": "f",
            **values,
        },
    )
    session.add(submission)
    session.flush()
    if values.get("state") in ("scored", "withheld", "published"):
        session.add(models.Score(submission_id=submission.id, scorer_version="1", document={}))
        session.flush()
    return submission


def test_a_charge_leaves_the_window_after_24_hours_to_the_second() -> None:
    charged = [NOON - timedelta(hours=3), NOON - timedelta(hours=2), NOON - timedelta(hours=1)]
    meter = build_meter(charged, 3, now=NOON)
    assert (meter.used, meter.left, meter.next_at) == (3, 0, charged[0] + DAY)
    assert build_meter(charged, 3, now=charged[0] + DAY - timedelta(microseconds=1)).left == 0
    assert build_meter(charged, 3, now=charged[0] + DAY).left == 1
    # Over the limit, as after an organiser lowered it: two have to leave before one fits.
    assert build_meter(charged, 2, now=NOON).next_at == charged[1] + DAY
    assert build_meter(charged, 4, now=NOON).next_at is None
    assert build_meter(charged, 0, now=NOON).next_at is None
    assert build_meter(charged, None, now=NOON).left is None


def test_what_counts(session: Session, secret: models.Snapshot, author: Identity, stranger: Identity) -> None:
    for state in ("received", "validating", "scoring", "scored", "withheld", "published"):
        add(session, author, secret, state=state)
    # A withdrawn one that had a score gives nothing back; one without counts as a rejected file.
    scored = add(session, author, secret, state="scored")
    scored.state = "withdrawn"
    add(session, author, secret, state="withdrawn")
    add(session, author, secret, state="rejected")
    add(session, author, secret, state="failed")
    add(session, author, secret, state="scored", charged_at=NOON - DAY)
    add(session, author, secret, state="scored", split="validation")
    add(session, author, secret, state="rejected", split="validation")
    add(session, stranger, secret, state="scored")
    allowance = get_allowance(session, author.team_id, secret, now=NOON)
    assert allowance.hidden_splits == ("test",)
    assert (allowance.hidden_day.used, allowance.hidden_day.left) == (7, 0)
    assert (allowance.hidden_total.used, allowance.hidden_total.left) == (8, 92)
    assert (allowance.rejected_day.used, allowance.rejected_day.left) == (2, 48)
    assert (allowance.open_day.used, allowance.open_day.limit) == (1, None)


def test_one_waits_as_long_as_the_answer_says(session: Session, secret: models.Snapshot, author: Identity) -> None:
    for hours in range(5):
        add(session, author, secret, state="scored", charged_at=NOON + timedelta(hours=hours, milliseconds=300))
    now = NOON + timedelta(hours=6)
    with pytest.raises(
        AllowanceSpentError, match=r"its 5 scored submissions in 24 hours.*2026-01-03 12:00:00 UTC"
    ) as e:
        require_allowance(session, author.team_id, secret, split="test", now=now)
    assert (e.value.status, e.value.retry_after_seconds) == (429, 18 * 3600 + 1)
    require_allowance(session, author.team_id, secret, split="validation", now=now)
    require_allowance(
        session, author.team_id, secret, split="test", now=now + timedelta(seconds=e.value.retry_after_seconds)
    )
    # The clock went back: what was charged in its future still counts, and to no later second than it has to.
    with pytest.raises(AllowanceSpentError) as e:
        require_allowance(session, author.team_id, secret, split="test", now=NOON - DAY)
    assert e.value.retry_after_seconds == 2 * 24 * 3600 + 1


def test_what_waiting_does_not_mend_is_forbidden(session: Session, secret: models.Snapshot, author: Identity) -> None:
    for _ in range(4):
        add(session, author, secret, state="scored", charged_at=NOON - 10 * DAY)
    set_limits(session, secret, team_id=author.team_id, limits={"hidden_total": 4})
    with pytest.raises(AllowanceExhaustedError, match="used 4 of its 4 scored submissions in all") as e:
        require_allowance(session, author.team_id, secret, split="test", now=NOON)
    assert e.value.status == 403
    set_limits(session, secret, team_id=author.team_id, limits={"hidden_total": None})
    require_allowance(session, author.team_id, secret, split="test", now=NOON)
    set_limits(session, secret, team_id=author.team_id, limits={"hidden_per_day": 0})
    with pytest.raises(AllowanceExhaustedError):
        require_allowance(session, author.team_id, secret, split="test", now=NOON)


def test_rejected_files_have_a_limit_of_their_own(session: Session, secret: models.Snapshot, author: Identity) -> None:
    for _ in range(50):
        add(session, author, secret, state="rejected")
    with pytest.raises(AllowanceSpentError, match="its 50 rejected files"):
        require_allowance(session, author.team_id, secret, split="test", now=NOON)
    require_allowance(session, author.team_id, secret, split="validation", now=NOON)


def test_a_team_s_limit_goes_before_the_snapshot_s(
    session: Session, secret: models.Snapshot, author: Identity, stranger: Identity
) -> None:
    assert find_limits(session, author.team_id, secret.id) == DEFAULT_LIMITS
    set_limits(session, secret, team_id=None, limits={"hidden_per_day": 7, "open_per_day": 3})
    set_limits(session, secret, team_id=author.team_id, limits={"hidden_per_day": 9})
    set_limits(session, secret, team_id=author.team_id, limits={"hidden_total": 11})
    mine, theirs = (find_limits(session, one.team_id, secret.id) for one in (author, stranger))
    assert (mine.hidden_per_day, mine.hidden_total, mine.open_per_day, mine.rejected_per_day) == (9, 11, 3, 50)
    assert (theirs.hidden_per_day, theirs.hidden_total) == (7, 100)
    with pytest.raises(ValueError, match="no such limits"):
        set_limits(session, secret, team_id=None, limits={"per_week": 1})


def test_an_upload_over_the_allowance_stores_nothing(
    session: Session, desk: Any, frozen: models.Snapshot, author: Identity, make_caps: Caps
) -> None:
    set_limits(session, frozen, team_id=None, limits={"open_per_day": 1})
    first = desk.submit(author, make_caps(100))
    with pytest.raises(AllowanceSpentError):
        desk.submit(author, make_caps(101))
    session.rollback()
    # The same bytes are the submission that exists, and nothing new.
    assert desk.submit(author, make_caps(100)) == first
    assert len(session.scalars(select(models.Submission.id)).all()) == 1


def test_a_failure_of_ours_gives_the_charge_back_until_it_is_tried_again(
    session: Session, desk: Any, frozen: models.Snapshot, author: Identity, make_caps: Caps
) -> None:
    set_limits(session, frozen, team_id=None, limits={"open_per_day": 1})
    failed = submissions.find_locked(session, desk.submit(author, make_caps(100)))
    assert failed is not None
    failed.failure_reason = "r"
    submissions.transition(session, failed, SubmissionState.FAILED, actor="worker")
    session.commit()
    desk.submit(author, make_caps(101))
    with pytest.raises(AllowanceSpentError):
        submissions.retry_submission(session, failed.id, account=author)
    set_limits(session, frozen, team_id=None, limits={"open_per_day": 2})
    submissions.retry_submission(session, failed.id, account=author)
    assert failed.charged_at > failed.created_at
    with pytest.raises(AllowanceSpentError):
        desk.submit(author, make_caps(102))


def test_twenty_uploads_at_once_do_not_pass_the_quota(
    committed_database: str, config: Config, board_snapshot: Snapshot, make_caps: Caps
) -> None:
    """Each request counted what the others had not committed yet; so they are counted one after the other."""
    engine = make_engine(committed_database, pool_size=20)
    sessions = session_factory(engine)
    with sessions.begin() as session:
        snapshots.import_snapshot(session, board_snapshot)
        set_limits(session, snapshots.freeze_snapshot(session, "small"), team_id=None, limits={"open_per_day": 5})
        account = ensure_account(session, name="ada", team="engines", is_control=False)
    outcomes: list[str] = []
    barrier = threading.Barrier(20)

    def upload(number: int) -> None:
        path = config.data_dir / f"{number}.csv"
        path.write_bytes(make_caps(number))
        with path.open("rb") as stream:
            stored = store_upload(stream, data_dir=config.data_dir, limit_bytes=10**9)
        barrier.wait()
        try:
            with sessions.begin() as session:
                accept_submission(
                    session,
                    account=account,
                    snapshot_name="small",
                    split="test",
                    strategy=Strategy.FIXED_BUDGET,
                    method_name="m",
                    description=None,
                    upload=stored,
                    filename="a.csv",
                )
            outcomes.append("accepted")
        except AllowanceSpentError:
            outcomes.append("spent")

    threads = [threading.Thread(target=upload, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["accepted"] * 5 + ["spent"] * 15
    with sessions.begin() as session:
        assert len(session.scalars(select(models.Submission.id)).all()) == 5
    engine.dispose()
