"""Intervals and ranks as a board gets them: computed by jobs, stored, stale after a withdrawal, the same everywhere."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sqlalchemy import select, text
from sqlalchemy.orm import Session, sessionmaker

from app.config import Config
from app.db import models
from app.evaluator.ranks import compare_pairs
from app.evaluator.replicate_frontiers import compute_replicates
from app.evaluator.scoring import score_actions
from app.evaluator.strategies import Strategy
from app.evaluator.submission_intervals import bootstrap_submission
from app.files.actions import read_actions
from app.files.documents import intervals_document
from app.services import jobs, snapshots, submissions
from app.services.accounts import Identity, ensure_account
from app.services.bootstrap import begin_bootstrap, run_slice
from app.services.intervals import resample_submission
from app.services.leaderboard import Leaderboard, StoredRank, format_csv, get_leaderboard, take_stored_ranks
from app.services.ranks import rank_boards
from app.services.scoring import get_score

N_REPLICATES = 120
JOBS = (jobs.BOOTSTRAP_SPLIT, jobs.RESAMPLE_SUBMISSION, jobs.RANK_BOARDS)


@pytest.fixture
def config(config: Config) -> Config:
    """Few replicates, in more than one block."""
    return replace(config, bootstrap_replicates=N_REPLICATES)


@pytest.fixture
def work(session: Session, sessions: sessionmaker[Session], config: Config) -> Callable[[], list[str]]:
    """A function that does what the queued jobs of this module do, in the queue's order.

    It returns their names, once where several of a kind follow one another.
    """

    def fetch() -> Any:
        query = text(
            "DELETE FROM procrastinate_jobs WHERE id = (SELECT id FROM procrastinate_jobs WHERE task_name = ANY(:names)"
            " ORDER BY priority DESC, id LIMIT 1) RETURNING task_name, args"
        )
        return session.execute(query, {"names": list(JOBS)}).one_or_none()

    def run() -> list[str]:
        done: list[str] = []
        while (found := fetch()) is not None:
            name, arguments = found
            if done[-1:] != [name]:
                done.append(name)
            session.commit()
            if name == jobs.BOOTSTRAP_SPLIT:
                run_slice(sessions, **arguments, config=config)
            elif name == jobs.RESAMPLE_SUBMISSION:
                resample_submission(sessions, **arguments, config=config)
            else:
                rank_boards(sessions, **{**arguments, "strategy": Strategy(arguments["strategy"])})
            session.expire_all()
        return done

    return run


@pytest.fixture
def publish(session: Session, desk: Any, author: Identity) -> Callable[..., str]:
    """A function that submits, scores and publishes a file, and runs no other job."""

    def run(content: Any, *, method: str, account: Identity = author) -> str:
        submission_id: str = desk.submit(account, content, method=method)
        desk.score(submission_id)
        submissions.publish_submission(session, submission_id, account=account)
        session.commit()
        return submission_id

    return run


@pytest.fixture
def resampled(session: Session, frozen: models.Snapshot, config: Config, work: Callable[[], Any]) -> None:
    """The replicates of the test split."""
    begin_bootstrap(session, frozen, split="test", config=config)
    work()


def get_board(session: Session, *, model: str | None = None, benchmark: str | None = None) -> Leaderboard:
    return get_leaderboard(
        session, snapshot="small", split="test", strategy=Strategy.FIXED_BUDGET, model=model, benchmark=benchmark
    )


def count_intervals(session: Session) -> int:
    return len(session.scalars(select(models.BoardInterval.id)).all())


def show_ranks(board: Leaderboard) -> dict[str, tuple[int | None, int | None]]:
    return {row.method: (row.rank, row.last_rank) for row in board.rows}


def test_whoever_comes_last_queues_the_intervals(
    session: Session,
    frozen: models.Snapshot,
    config: Config,
    work: Callable[[], list[str]],
    publish: Callable[..., str],
    make_caps: Callable[..., bytes],
) -> None:
    """The first submission is scored before the replicates are there, the second one after."""
    publish(make_caps(200), method="early")
    assert work() == [jobs.RANK_BOARDS]
    board = get_board(session)
    assert board.ranks_are_provisional
    assert board.rows[0].realised_potential_low is None
    begin_bootstrap(session, frozen, split="test", config=config)
    assert work() == [jobs.BOOTSTRAP_SPLIT, jobs.RESAMPLE_SUBMISSION, jobs.RANK_BOARDS]
    assert not get_board(session).ranks_are_provisional
    publish(make_caps(300), method="late")
    assert get_board(session).ranks_are_provisional
    assert work() == [jobs.RANK_BOARDS, jobs.RESAMPLE_SUBMISSION, jobs.RANK_BOARDS]
    board = get_board(session)
    assert not board.ranks_are_provisional
    for row in board.rows:
        assert row.realised_potential_low is not None
        assert row.realised_potential_high is not None
        assert row.realised_potential_low <= row.realised_potential_high


@pytest.mark.usefixtures("resampled")
def test_intervals_are_those_of_the_evaluator(
    session: Session,
    config: Config,
    desk: Any,
    author: Identity,
    work: Callable[[], list[str]],
) -> None:
    path = desk.write("random")
    submission_id = desk.submit(author, path)
    desk.score(submission_id)
    figures = json.loads(get_score(session, submission_id, account=author).text)
    assert not get_score(session, submission_id, account=author).has_intervals
    work()
    scored = get_score(session, submission_id, account=author)
    assert scored.has_intervals
    measurements = desk.measurements.select("test")
    table = read_actions(path, desk.measurements, strategy=Strategy.FIXED_BUDGET, split="test").table
    snapshot = snapshots.get_snapshot(session, "small")
    references = snapshots.get_references(
        session, snapshot, split="test", strategy=Strategy.FIXED_BUDGET, data_dir=config.data_dir
    )
    replicates = compute_replicates(measurements, range(N_REPLICATES))
    score = score_actions(measurements, table, references)
    expected = bootstrap_submission(measurements, table, score, replicates, n_replicates=N_REPLICATES)
    document = json.loads(scored.text)
    assert [board["intervals"] for board in document["boards"]] == [intervals_document(b) for b in expected.boards]
    assert document["summary"]["intervals"] == document["boards"][0]["intervals"]
    by_name = {(board["model"], board["benchmark"]): board["intervals"] for board in document["boards"]}
    assert by_name[None, "logic"] is None
    assert by_name["alpha", "math"]["accuracy_at"]["0.5"][0] <= by_name["alpha", "math"]["accuracy_at"]["0.5"][1]
    # Nothing else of the document changed.
    for board in (*document["boards"], document["summary"]):
        board["intervals"] = None
    assert document == figures


@pytest.mark.usefixtures("resampled")
def test_ranks_are_those_of_the_paired_differences(
    session: Session, work: Callable[[], list[str]], publish: Callable[..., str], make_caps: Callable[..., bytes]
) -> None:
    """Two files of the same caps under two names of a setting are the same method, so they share their rank."""
    contents = {"a": make_caps(300), "b": make_caps(300, setting="two"), "c": make_caps(1), "d": make_caps(150)}
    ids = {method: publish(content, method=method) for method, content in contents.items()}
    work()
    board = get_board(session)
    assert not board.ranks_are_provisional
    interval, score, of_board = models.BoardInterval, models.Score, models.BoardScore
    values = []
    for row in board.rows:
        query = (
            select(interval.replicates)
            .join(of_board, of_board.id == interval.board_score_id)
            .join(score, score.id == of_board.score_id)
            .where(score.submission_id == row.submission_id, of_board.model.is_(None), of_board.benchmark.is_(None))
        )
        values.append(np.frombuffer(session.scalars(query).one(), "<f8"))
    assert [row.rank for row in board.rows] == compare_pairs(np.stack(values)).tolist()
    shown = show_ranks(board)
    assert shown["a"] == shown["b"]
    assert shown["a"][1] is not None
    assert shown["a"][0] is not None
    assert shown["a"][1] > shown["a"][0]
    assert set(ids.values()) == {row.submission_id for row in board.rows}


@pytest.mark.usefixtures("resampled")
def test_a_withdrawal_ranks_anew(
    session: Session,
    author: Identity,
    work: Callable[[], list[str]],
    publish: Callable[..., str],
    desk: Any,
    make_caps: Callable[..., bytes],
) -> None:
    best = publish(desk.write("oracle"), method="best")
    publish(make_caps(1), method="worst")
    work()
    assert show_ranks(get_board(session)) == {"best": (1, 1), "worst": (2, 2)}
    submissions.withdraw_submission(session, best, account=author)
    session.commit()
    # Until the job has run the stored ranks are those of other methods, and are not shown.
    board = get_board(session)
    assert board.ranks_are_provisional
    assert show_ranks(board) == {"worst": (1, 1)}
    assert work() == [jobs.RANK_BOARDS]
    board = get_board(session)
    assert not board.ranks_are_provisional
    assert show_ranks(board) == {"worst": (1, 1)}


@pytest.mark.usefixtures("resampled")
def test_a_method_that_falls_back_to_an_older_submission_is_ranked_anew(
    session: Session,
    author: Identity,
    work: Callable[[], list[str]],
    publish: Callable[..., str],
    make_caps: Callable[..., bytes],
) -> None:
    publish(make_caps(1), method="mine")
    publish(make_caps(200), method="other")
    work()
    newer = publish(make_caps(300), method="mine")
    work()
    ranked = session.scalars(select(models.BoardRank.n_ranked)).all()
    assert set(ranked) == {2}
    submissions.withdraw_submission(session, newer, account=author)
    session.commit()
    assert get_board(session).ranks_are_provisional
    work()
    assert not get_board(session).ranks_are_provisional


@pytest.mark.usefixtures("resampled")
def test_controls_and_small_boards_have_no_rank(
    session: Session,
    work: Callable[[], list[str]],
    publish: Callable[..., str],
    desk: Any,
    make_caps: Callable[..., bytes],
) -> None:
    controls = ensure_account(session, name="controls", team="controls", is_control=True)
    publish(desk.write("oracle"), method="oracle", account=controls)
    publish(make_caps(200), method="mine")
    work()
    rows = {row.method: row for row in get_board(session).rows}
    assert (rows["oracle"].rank, rows["oracle"].rank_reason) == (None, "control")
    assert rows["oracle"].realised_potential_low is not None
    assert (rows["mine"].rank, rows["mine"].last_rank) == (1, 1)
    small = get_board(session, benchmark="logic")
    assert not small.ranks_are_provisional
    assert {row.rank_reason for row in small.rows} == {"control", "too_few_questions"}
    assert {row.realised_potential_low for row in small.rows} == {None}


@pytest.mark.usefixtures("resampled")
def test_doing_it_again_changes_nothing(
    session: Session,
    sessions: sessionmaker[Session],
    config: Config,
    frozen: models.Snapshot,
    work: Callable[[], list[str]],
    publish: Callable[..., str],
    make_caps: Callable[..., bytes],
) -> None:
    submission_id = publish(make_caps(200), method="mine")
    work()
    n_intervals = count_intervals(session)
    # The whole board, two models, one benchmark and two cells; the others have three questions.
    assert n_intervals == 6
    assert len(session.scalars(select(models.BoardRank.rank)).all()) == 6
    resample_submission(sessions, submission_id, config=config)
    assert rank_boards(sessions, frozen.id, split="test", strategy=Strategy.FIXED_BUDGET) == 0
    assert count_intervals(session) == n_intervals
    assert work() == []


@pytest.mark.usefixtures("resampled")
def test_ranking_gives_way_after_a_board_and_goes_on_later(
    session: Session,
    sessions: sessionmaker[Session],
    frozen: models.Snapshot,
    work: Callable[[], list[str]],
    publish: Callable[..., str],
    make_caps: Callable[..., bytes],
) -> None:
    publish(make_caps(200), method="mine")
    work()
    session.execute(text("DELETE FROM board_ranks"))
    session.execute(text("DELETE FROM procrastinate_jobs"))
    jobs.defer_scoring(session, "abcdefghijkl")
    session.commit()
    target: dict[str, Any] = {"split": "test", "strategy": Strategy.FIXED_BUDGET}
    assert rank_boards(sessions, frozen.id, **target) == 1
    assert rank_boards(sessions, frozen.id, **target) == 1
    session.execute(text("DELETE FROM procrastinate_jobs WHERE task_name = 'score_submission'"))
    assert work() == [jobs.RANK_BOARDS]
    assert len(session.scalars(select(models.BoardRank.rank)).all()) == 6


@pytest.mark.usefixtures("resampled")
def test_a_withdrawn_submission_gets_no_intervals(
    session: Session, author: Identity, desk: Any, work: Callable[[], list[str]], make_caps: Callable[..., bytes]
) -> None:
    submission_id = desk.submit(author, make_caps(200))
    desk.score(submission_id)
    submissions.withdraw_submission(session, submission_id, account=author)
    session.commit()
    assert work() == [jobs.RESAMPLE_SUBMISSION]
    assert count_intervals(session) == 0


@pytest.mark.usefixtures("resampled")
def test_csv_has_the_digits_of_ranks_and_intervals(
    session: Session, work: Callable[[], list[str]], publish: Callable[..., str], make_caps: Callable[..., bytes]
) -> None:
    publish(make_caps(200), method="mine")
    work()
    board = get_board(session)
    (line,) = csv.DictReader(io.StringIO(format_csv(board)))
    (row,) = board.rows
    for name in ("realised_potential_low", "realised_potential_high", "rank", "last_rank"):
        assert line[name] == repr(getattr(row, name)), name
    assert line["ranks_are_provisional"] == "false"


def test_stored_ranks_order_the_rows(session: Session, publish: Callable[..., str], make_caps: Any, desk: Any) -> None:
    """A method that is far ahead in the data alone may still be one of those that cannot be told apart."""
    publish(desk.write("oracle"), method="first")
    publish(make_caps(200), method="second")
    rows = get_board(session).rows
    assert [row.method for row in rows] == ["first", "second"]
    first, second = (row.submission_id for row in rows)
    stored = {first: StoredRank(2, 2, 2), second: StoredRank(1, 1, 2)}
    shown = take_stored_ranks(rows, stored)
    assert shown is not None
    assert [(row.method, row.rank) for row in shown] == [("second", 1), ("first", 2)]
    assert take_stored_ranks(rows, {**stored, first: None}) is None
    assert take_stored_ranks(rows, {**stored, first: StoredRank(2, 2, 3)}) is None
