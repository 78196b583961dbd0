"""Several teams on a hidden split, from their files to shared ranks: told in steps, and the same wherever one looks."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from sqlalchemy import select, text
from sqlalchemy.orm import Session, sessionmaker

from app.config import Config
from app.db import models
from app.evaluator.scorers import SCORERS
from app.evaluator.strategies import Strategy
from app.files.snapshot import Snapshot, build_snapshot, load_measurements
from app.services import jobs, rescoring, snapshots, submissions
from app.services.accounts import ensure_account
from app.services.badges import get_badge
from app.services.bootstrap import begin_bootstrap, run_slice
from app.services.comparison import compare_submissions
from app.services.intervals import resample_submission
from app.services.leaderboard import Leaderboard, format_csv, get_leaderboard
from app.services.ranks import rank_boards
from app.services.release import HiddenLabelsError
from app.services.rescoring_jobs import rescore_submission
from app.services.rescoring_preview import preview_rescoring
from app.services.scoring import get_score
from tests.other_scorer import score_with_penalty
from tests.services.conftest import Desk

N_QUESTIONS = 400
N_REPLICATES = 600
R = M = 2
QUANTUM = 0.003
"""1 / 400 = 0.25 points, rounded up to a tenth."""
# Shares of the questions that a team routes wrongly: two are as good as each other, one is not.
TEAMS = {"engines": 0.10, "others": 0.12, "thirds": 0.35}


def draw_gains() -> np.ndarray:
    """Draw on which questions thinking helps: on all others it harms."""
    return np.random.default_rng(5).random(N_QUESTIONS) < 0.6


def build_split(name: str) -> Snapshot:
    """Return a snapshot of one cell with a hidden split in which thinking helps or harms every question."""
    rng = np.random.default_rng(6)
    questions, trajectories = [], []
    for number, helps in enumerate(draw_gains().tolist()):
        question_id = f"q{number:03d}"
        questions.append({"benchmark": "b", "question_id": question_id, "split": "test"})
        for trajectory in range(R):
            length = int(rng.integers(80, 120))
            trajectories.append(
                {
                    "model": "m",
                    "benchmark": "b",
                    "question_id": question_id,
                    "trajectory": trajectory,
                    "thinking_tokens": length,
                    "original_correct": bool(helps),
                    "retained_tokens": [0, length],
                    "correct_probes": [0, M] if helps else [M, 0],
                }
            )
    described = {
        "format": "stp-snapshot/1",
        "name": name,
        "title": "A hidden split",
        "kind": "synthetic",
        "probes_per_position": M,
        "trajectories_per_question": R,
        "models": [{"name": "m"}],
        "benchmarks": [{"name": "b", "title": "b"}],
        "hidden_splits": ["test"],
    }
    return build_snapshot(described, pa.Table.from_pylist(questions), pa.Table.from_pylist(trajectories))


def write_routes(wrong: float, *, seed: int) -> bytes:
    """Write a file that routes a share of the questions wrongly."""
    rng = np.random.default_rng(seed)
    routes = draw_gains() ^ (rng.random(N_QUESTIONS) < wrong)
    lines = [f"m,b,q{number:03d},{int(route)}" for number, route in enumerate(routes)]
    return "\n".join(["model,benchmark,question_id,action", *lines]).encode()


@pytest.fixture
def config(config: Config) -> Config:
    return replace(config, bootstrap_replicates=N_REPLICATES)


@pytest.fixture
def ranked(session: Session, sessions: sessionmaker[Session], config: Config) -> dict[str, str]:
    """Three teams' submissions, scored, published and ranked by the jobs; their ids by team."""
    made = build_split("veiled")
    snapshots.import_snapshot(session, made)
    stored = snapshots.freeze_snapshot(session, "veiled")
    session.commit()
    desk = Desk(session, sessions, config, load_measurements(made))
    ids = {}
    for seed, (team, wrong) in enumerate(TEAMS.items()):
        account = ensure_account(session, name=f"of {team}", team=team, is_control=False)
        content = write_routes(wrong, seed=seed)
        ids[team] = desk.submit(
            account, content, snapshot="veiled", strategy=Strategy.DYNAMIC_ROUTING, method=f"of {team}"
        )
        desk.score(ids[team])
        submissions.publish_submission(session, ids[team], account=account)
        session.commit()
    begin_bootstrap(session, stored, split="test", config=config)
    work(session, sessions, config)
    return ids


def work(session: Session, sessions: sessionmaker[Session], config: Config) -> None:
    """Do what the queued jobs do, in the queue's order."""
    query = text(
        "DELETE FROM procrastinate_jobs WHERE id = (SELECT id FROM procrastinate_jobs WHERE task_name = ANY(:names)"
        " ORDER BY priority DESC, id LIMIT 1) RETURNING task_name, args"
    )
    names = [jobs.BOOTSTRAP_SPLIT, jobs.RESAMPLE_SUBMISSION, jobs.RANK_BOARDS]
    while (found := session.execute(query, {"names": names}).one_or_none()) is not None:
        session.commit()
        if found.task_name == jobs.BOOTSTRAP_SPLIT:
            run_slice(sessions, **found.args, config=config)
        elif found.task_name == jobs.RESAMPLE_SUBMISSION:
            resample_submission(sessions, **found.args, config=config)
        else:
            rank_boards(sessions, **{**found.args, "strategy": Strategy(found.args["strategy"])})
        session.expire_all()


def get_board(session: Session) -> Leaderboard:
    return get_leaderboard(
        session, snapshot="veiled", split="test", strategy=Strategy.DYNAMIC_ROUTING, model=None, benchmark=None
    )


def count_steps(width: float, step: float) -> float:
    return round(width / 2 / step, 6)


def test_teams_that_cannot_be_told_apart_share_a_rank(session: Session, ranked: dict[str, str]) -> None:
    board = get_board(session)
    assert not board.ranks_are_provisional
    places = {row.team: (row.rank, row.last_rank, row.rank_reason) for row in board.rows}
    assert places == {"engines": (1, 2, None), "others": (1, 2, None), "thirds": (3, 3, None)}
    # Within the rank by the figures as they are told.
    assert [row.realised_potential for row in board.rows] == sorted(
        (row.realised_potential for row in board.rows if row.realised_potential is not None), reverse=True
    )
    rows = list(csv.DictReader(io.StringIO(format_csv(board))))
    assert [(row["team"], int(row["rank"])) for row in rows] == [(row.team, row.rank) for row in board.rows]
    badge = get_badge(session, ranked["thirds"])
    assert "rank 3" in badge.message


def test_an_interval_is_a_whole_number_of_steps_about_the_told_figure(session: Session, ranked: dict[str, str]) -> None:
    for row in get_board(session).rows:
        document = json.loads(get_score(session, row.submission_id, account=None).text)["summary"]
        told = document["intervals"]
        assert document["quantum"] == QUANTUM
        for name in ("area", "uninformed_area", "oracle_area", "max_accuracy"):
            low, high = told[name]
            assert (low + high) / 2 == pytest.approx(document[name]) or high == 1.0
            assert count_steps(high - low, 4 * QUANTUM).is_integer() or high == 1.0
        low, high = told["realised_potential"]
        assert [row.realised_potential_low, row.realised_potential_high] == [low, high]
        assert low < row.realised_potential < high
        for name in ("gap", "beta_match", "tokens_saved", "best_e3"):
            assert told[name] is None
        # What is stored is exact, and what leaves is not it.
        stored = session.execute(
            select(models.BoardInterval.realised_potential_low, models.BoardInterval.realised_potential_high)
            .join(models.BoardScore, models.BoardScore.id == models.BoardInterval.board_score_id)
            .join(models.Score, models.Score.id == models.BoardScore.score_id)
            .where(models.Score.submission_id == row.submission_id, models.BoardScore.model.is_(None))
            .where(models.BoardScore.benchmark.is_(None))
        ).one()
        assert stored[0] is not None
        assert stored[1] is not None
        assert high - low >= stored[1] - stored[0]


def test_ranks_and_comparisons_say_the_same(session: Session, ranked: dict[str, str]) -> None:
    """Both are read off the difference as it is told, so a rank tells nothing that the comparison does not."""
    ids = list(ranked.values())
    compared = compare_submissions(session, ids, account=None)
    better = {(one.first, one.second): one.better for one in compared.boards[0].differences}
    first, second, third = ids
    assert better == {(first, second): "undecided", (first, third): "first", (second, third): "first"}
    for one in compared.boards[0].differences:
        assert one.low is not None
        assert one.high is not None
        assert (one.low + one.high) / 2 == pytest.approx(one.difference)


def test_a_preview_of_a_re_scoring_tells_both_versions_as_coarsely(
    session: Session,
    sessions: sessionmaker[Session],
    config: Config,
    ranked: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The largest changes were once the exact ones: an organiser's page is no way around the policy."""
    monkeypatch.setitem(SCORERS, "2", score_with_penalty)
    status = rescoring.start_rescoring(session, snapshot_name="veiled", split=None, strategy=None, actor="olga")
    session.commit()
    for submission_id in ranked.values():
        rescore_submission(sessions, submission_id, config=config)
    session.expire_all()
    preview = preview_rescoring(session, status.id)
    told = {row.submission_id: row.realised_potential for row in preview.board.old.rows}
    assert told == {row.submission_id: row.realised_potential for row in get_board(session).rows}
    new = {row.submission_id: row.realised_potential for row in preview.board.new.rows}
    whole = [one for one in preview.largest if (one.model, one.benchmark) == (None, None)]
    assert whole
    assert {(one.submission_id, one.old, one.new) for one in whole} <= {(key, told[key], new[key]) for key in told}
    with pytest.raises(HiddenLabelsError, match="scorer version 1 only"):
        get_leaderboard(
            session,
            snapshot="veiled",
            split="test",
            strategy=Strategy.DYNAMIC_ROUTING,
            model=None,
            benchmark=None,
            scorer_version="2",
        )


def test_ranks_are_provisional_once_one_is_withdrawn(session: Session, ranked: dict[str, str]) -> None:
    account = ensure_account(session, name="of others", team="others", is_control=False)
    submissions.withdraw_submission(session, ranked["others"], account=account)
    session.commit()
    board = get_board(session)
    assert board.ranks_are_provisional
    assert [row.team for row in board.rows] == ["engines", "thirds"]
