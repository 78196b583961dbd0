"""Scoring jobs: once whatever happens, the file's fault and ours told apart, nothing half-written."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import func, select, text
from sqlalchemy.orm import Session

from app.db import models
from app.errors import ContentError
from app.evaluator.scoring import SCORER_VERSION, score_actions
from app.evaluator.strategies import Strategy
from app.files.actions import ActionFileError, read_actions
from app.files.documents import score_document
from app.services import scoring, snapshots, submissions
from app.services.accounts import Identity
from app.services.scoring import NotScoredError, reap_submissions
from app.services.submissions import SubmissionDetails, SubmissionState

Caps = Callable[..., bytes]


def look(session: Session, submission_id: str, account: Identity) -> SubmissionDetails:
    session.expire_all()
    return submissions.get_submission(session, submission_id, account=account)


def list_states(session: Session, submission_id: str, account: Identity) -> list[str]:
    return [event.to_state.value for event in submissions.list_events(session, submission_id, account=account)]


def count_scores(session: Session, submission_id: str) -> int:
    query = select(func.count()).where(models.Score.submission_id == submission_id)
    return session.scalar(query) or 0


@pytest.mark.parametrize("strategy", Strategy)
def test_the_stored_score_is_the_offline_one(session: Session, desk: Any, author: Identity, strategy: Strategy) -> None:
    path = desk.write("random", strategy=strategy)
    submission_id = desk.submit(author, path, strategy=strategy)
    desk.score(submission_id)
    details = look(session, submission_id, author)
    assert (details.state, details.n_settings, details.attempts) == (SubmissionState.SCORED, 256, 1)
    assert list_states(session, submission_id, author) == ["received", "validating", "scoring", "scored"]
    frozen = snapshots.get_snapshot(session, "small")
    references = snapshots.get_references(
        session, frozen, split="test", strategy=strategy, data_dir=desk.config.data_dir
    )
    actions = read_actions(path, desk.measurements, strategy=strategy, split="test")
    score = score_actions(desk.measurements.select("test"), actions.table, references)
    offline = score_document(score, actions_sha256=actions.sha256, warnings=actions.warnings)
    stored = scoring.get_score(session, submission_id, account=author)
    assert stored.text == json.dumps(offline, ensure_ascii=False)
    assert stored.scorer_version == SCORER_VERSION


def test_scoring_again_changes_nothing(session: Session, desk: Any, author: Identity, make_caps: Caps) -> None:
    submission_id = desk.submit(author, make_caps(100))
    for _ in range(3):
        desk.score(submission_id)
    assert count_scores(session, submission_id) == 1
    assert look(session, submission_id, author).attempts == 1
    assert list_states(session, submission_id, author)[-1] == "scored"


def test_the_file_s_fault_is_rejected_with_its_problems(
    session: Session, desk: Any, author: Identity, make_caps: Caps
) -> None:
    content = make_caps(100).replace(b"math-test-00,one,100", b"math-test-00,one,many", 1)
    submission_id = desk.submit(author, content)
    desk.score(submission_id)
    details = look(session, submission_id, author)
    assert details.state is SubmissionState.REJECTED
    assert details.failure_reason is None
    assert [(p["code"], p["row"], p["column"]) for p in details.problems] == [("not_an_integer", 2, "action")]
    assert count_scores(session, submission_id) == 0
    with pytest.raises(NotScoredError):
        scoring.get_score(session, submission_id, account=author)


def test_warnings_do_not_reject(session: Session, desk: Any, author: Identity, make_caps: Caps) -> None:
    submission_id = desk.submit(author, make_caps(1))
    desk.score(submission_id)
    details = look(session, submission_id, author)
    assert details.state is SubmissionState.SCORED
    assert [w["code"] for w in details.warnings] == ["looks_like_routing"]


def test_our_fault_is_tried_three_times_and_then_named(
    session: Session, desk: Any, author: Identity, make_caps: Caps
) -> None:
    """A run that died on the host's side was once shown as FAILED without a reason (EvalAI#5065)."""
    submission_id = desk.submit(author, make_caps(100))
    shutil.rmtree(desk.config.data_dir / "uploads")
    for attempt in (1, 2):
        desk.score(submission_id)
        details = look(session, submission_id, author)
        assert (details.state, details.attempts, details.failure_reason) == (SubmissionState.RECEIVED, attempt, None)
    desk.score(submission_id)
    details = look(session, submission_id, author)
    assert details.state is SubmissionState.FAILED
    assert (
        details.failure_reason == "The action file is not in the data folder of the scoring worker. (after 3 attempts)"
    )
    assert details.problems == ()
    pauses = session.scalars(
        text(
            "SELECT extract(epoch FROM scheduled_at - now())::int FROM procrastinate_jobs "
            "WHERE args->>'submission_id' = :id AND scheduled_at IS NOT NULL ORDER BY id"
        ),
        {"id": submission_id},
    ).all()
    assert len(pauses) == 2
    assert pauses[1] > 1.5 * pauses[0]


def test_a_lost_worker_s_submission_goes_on(session: Session, desk: Any, author: Identity, make_caps: Caps) -> None:
    submission_id = desk.submit(author, make_caps(100))
    leave_half_done(session, submission_id, attempts=1)
    desk.score(submission_id)
    assert look(session, submission_id, author).attempts == 2
    assert list_states(session, submission_id, author)[-4:] == ["received", "validating", "scoring", "scored"]
    assert count_scores(session, submission_id) == 1


def test_a_file_that_kills_every_worker_fails_in_the_end(
    session: Session, desk: Any, author: Identity, make_caps: Caps
) -> None:
    submission_id = desk.submit(author, make_caps(100))
    leave_half_done(session, submission_id, attempts=desk.config.scoring_attempts)
    desk.score(submission_id)
    details = look(session, submission_id, author)
    assert details.state is SubmissionState.FAILED
    assert details.failure_reason == "its worker was lost (after 3 attempts)"


def test_an_attempt_that_was_given_up_writes_nothing(
    session: Session, desk: Any, author: Identity, make_caps: Caps
) -> None:
    """The worker hangs, another one takes over and scores, then the first one wakes up."""
    submission_id = desk.submit(author, make_caps(100))
    hung = scoring._begin(desk.sessions, submission_id, config=desk.config, actor="hung")
    assert hung is not None
    desk.score(submission_id)
    before = list_states(session, submission_id, author)
    with pytest.raises(scoring._LostAttemptError):
        scoring._run(desk.sessions, hung, config=desk.config, actor="hung")
    scoring._give_back(desk.sessions, hung, config=desk.config, actor="hung", reason="too late")
    assert list_states(session, submission_id, author) == before
    assert before[-1] == "scored"
    assert count_scores(session, submission_id) == 1


def test_withdrawing_while_it_is_scored_ends_the_attempt(
    session: Session, desk: Any, author: Identity, make_caps: Caps
) -> None:
    submission_id = desk.submit(author, make_caps(100))
    attempt = scoring._begin(desk.sessions, submission_id, config=desk.config, actor="worker")
    assert attempt is not None
    submissions.withdraw_submission(session, submission_id, account=author)
    session.commit()
    with pytest.raises(scoring._LostAttemptError):
        scoring._run(desk.sessions, attempt, config=desk.config, actor="worker")
    assert look(session, submission_id, author).state is SubmissionState.WITHDRAWN


def test_the_reaper_moves_what_is_overdue(session: Session, desk: Any, author: Identity, make_caps: Caps) -> None:
    """Elsewhere entries stayed in "Running" for ever (EvalAI#4390, codabench#2141)."""
    waiting, working, worn_out, in_time = (desk.submit(author, make_caps(cap)) for cap in (1, 2, 3, 4))
    leave_half_done(session, working, attempts=1)
    leave_half_done(session, worn_out, attempts=3)
    for submission_id in (waiting, working, worn_out):
        expire(session, submission_id)
    n_jobs = count_jobs(session)
    assert reap_submissions(session, config=desk.config) == 3
    states = {s: look(session, s, author).state.value for s in (waiting, working, worn_out, in_time)}
    assert list(states.values()) == ["received", "received", "failed", "received"]
    assert count_jobs(session) == n_jobs + 2
    assert reap_submissions(session, config=desk.config) == 0


def test_every_state_that_waits_has_a_deadline(session: Session, desk: Any, author: Identity, make_caps: Caps) -> None:
    submission_id = desk.submit(author, make_caps(100))
    assert find_deadline(session, submission_id) is not None
    scoring._begin(desk.sessions, submission_id, config=desk.config, actor="worker")
    deadline = find_deadline(session, submission_id)
    assert deadline is not None
    assert deadline - datetime.now(UTC) <= timedelta(seconds=desk.config.scoring_deadline_seconds)
    desk.score(submission_id)
    assert find_deadline(session, submission_id) is None


def test_a_check_stores_nothing(session: Session, desk: Any, make_caps: Caps) -> None:
    def check(content: bytes) -> scoring.CheckedFile:
        return scoring.check_upload(
            session,
            snapshot_name="small",
            split="test",
            strategy=Strategy.FIXED_BUDGET,
            upload=desk.store(content),
            filename="actions.csv",
            config=desk.config,
        )

    checked = check(make_caps(100))
    assert (checked.n_rows, checked.settings, checked.n_cells_covered, checked.n_cells) == (48, ("one",), 4, 4)
    with pytest.raises(ActionFileError) as caught:
        check(b"model,benchmark\n")
    assert isinstance(caught.value, ContentError)
    assert {problem.code for problem in caught.value.problems} >= {"missing_column"}
    assert session.scalar(select(func.count()).select_from(models.Submission)) == 0


def test_changed_bytes_on_the_disk_are_never_scored(
    session: Session, desk: Any, author: Identity, make_caps: Caps
) -> None:
    submission_id = desk.submit(author, make_caps(100))
    once = replace(desk.config, scoring_attempts=1)
    path = scoring.upload_path(once.data_dir, look(session, submission_id, author).actions_sha256)
    path.write_bytes(make_caps(200))
    scoring.score_submission(desk.sessions, submission_id, config=once, actor="worker")
    details = look(session, submission_id, author)
    assert details.state is SubmissionState.FAILED
    assert details.failure_reason == "The stored action file is not the one that was uploaded. (after 1 attempt)"


def leave_half_done(session: Session, submission_id: str, *, attempts: int) -> None:
    """Leave a submission as a worker does that is killed while it scores."""
    submission = submissions.find_locked(session, submission_id)
    assert submission is not None
    submission.attempts = attempts
    submissions.transition(session, submission, SubmissionState.VALIDATING, actor="dead worker")
    submissions.transition(session, submission, SubmissionState.SCORING, actor="dead worker")
    session.commit()


def expire(session: Session, submission_id: str) -> None:
    submission = submissions.find_locked(session, submission_id)
    assert submission is not None
    submission.deadline = datetime.now(UTC) - timedelta(seconds=1)
    session.commit()


def find_deadline(session: Session, submission_id: str) -> datetime | None:
    session.expire_all()
    return session.get_one(models.Submission, submission_id).deadline


def count_jobs(session: Session) -> int:
    return session.scalar(text("SELECT count(*) FROM procrastinate_jobs WHERE task_name = 'score_submission'")) or 0
