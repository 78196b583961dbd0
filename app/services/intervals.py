"""Intervals of scored submissions: computed by jobs in slices, from the replicates of their split, then stored."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sqlalchemy import and_, delete, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session, sessionmaker

from app.config import Config
from app.db import models
from app.evaluator.centring import INTERVAL_VERSION
from app.evaluator.measurements import Measurements
from app.evaluator.replicate_frontiers import ReplicateFrontiers
from app.evaluator.resampled_boards import BoardIntervals, BoardNames
from app.evaluator.resampled_settings import Stops, find_stops
from app.evaluator.scorers import current_scorer_version
from app.evaluator.strategies import Strategy
from app.evaluator.submission_intervals import (
    RANKED_FIGURES,
    SubmissionIntervals,
    list_blocks,
    prepare_submission,
    resample_rows,
    summarise_submission,
)
from app.files.actions import read_actions
from app.files.documents import intervals_document
from app.services import interval_parts, jobs
from app.services.bootstrap import load_split_replicates
from app.services.interval_parts import RESAMPLED_STATES
from app.services.measurements import load_measurements
from app.services.release import spread_intervals
from app.services.uploads import upload_path

Sessions = sessionmaker[Session]
SLICE_SECONDS = 5.0
"""A slice ends after the block that passes this, and after any block while another job waits."""


@dataclass(frozen=True, eq=False)
class _Needs:
    """What the intervals of a submission are computed from, where they belong, and where unfinished ones are kept."""

    submission: models.Submission
    snapshot: models.Snapshot
    measurements: Measurements
    replicates: ReplicateFrontiers
    boards: dict[BoardNames, models.BoardScore]
    folder: Path


def resample_submission(sessions: Sessions, submission_id: str, *, config: Config) -> None:
    """Compute some seconds' worth of a scored submission's intervals and queue the rest.

    With the last block the intervals are stored and the ranks of the submission's boards are queued. Does nothing where
    intervals are stored already, and where the replicates are not there yet: whoever finishes those queues this again.
    What a killed worker had kept is not computed again. Boards all of whose cells have fewer than 20 questions have no
    intervals.
    """
    with sessions.begin() as session:
        needs = _collect(session, submission_id, config=config)
    if needs is None:
        return
    resampled = _resample(sessions, needs, config=config)
    if resampled is None:
        return
    told = [_spread(board, needs) for board in resampled.boards]
    rows = [
        _describe(board, needs.boards[board.model, board.benchmark].id, resampled.n_replicates)
        for board in told
        if intervals_document(board) is not None
    ]
    with sessions.begin() as session:
        _remove_outdated(session, needs)
        if rows:
            added = insert(models.BoardInterval).values(rows)
            session.execute(added.on_conflict_do_nothing(index_elements=["board_score_id"]))
        submission = needs.submission
        # Also before it is published: that may have happened while this was being computed.
        jobs.defer_ranking(session, submission.snapshot_id, split=submission.split, strategy=submission.strategy)
    interval_parts.remove_parts(config.data_dir, submission_id)


def fill_intervals(session: Session, document: dict[str, Any], *, score_id: int) -> int:
    """Put the stored intervals into the boards of a score document, and return how many boards have them."""
    board, interval = models.BoardScore, models.BoardInterval
    query = (
        select(board.model, board.benchmark, interval.intervals)
        .join(interval, interval.board_score_id == board.id)
        .where(board.score_id == score_id, interval.version == INTERVAL_VERSION)
    )
    found = {(model, benchmark): intervals for model, benchmark, intervals in session.execute(query)}
    summary: Sequence[dict[str, Any]] = [document["summary"]] if document.get("summary") else []
    for shown in (*document.get("boards", ()), *summary):
        shown["intervals"] = found.get((shown["model"], shown["benchmark"]))
    return len(found)


def _collect(session: Session, submission_id: str, *, config: Config) -> _Needs | None:
    submission = session.get(models.Submission, submission_id)
    if submission is None or submission.state not in RESAMPLED_STATES:
        return None
    board, score, interval = models.BoardScore, models.Score, models.BoardInterval
    query = (
        select(board, interval.id)
        .join(score, score.id == board.score_id)
        .outerjoin(interval, and_(interval.board_score_id == board.id, interval.version == INTERVAL_VERSION))
        .where(score.submission_id == submission_id, score.scorer_version == current_scorer_version())
    )
    boards = session.execute(query).all()
    if not boards or any(interval_id is not None for _, interval_id in boards):
        return None
    snapshot = session.get_one(models.Snapshot, submission.snapshot_id)
    measurements = load_measurements(session, snapshot, data_dir=config.data_dir)
    replicates = load_split_replicates(session, snapshot, measurements.select(submission.split), config=config)
    if replicates is None:
        return None
    return _Needs(
        submission=submission,
        snapshot=snapshot,
        measurements=measurements,
        replicates=replicates,
        boards={(board.model, board.benchmark): board for board, _ in boards},
        folder=interval_parts.parts_folder(config.data_dir, submission_id),
    )


def _resample(sessions: Sessions, needs: _Needs, *, config: Config) -> SubmissionIntervals | None:
    """Compute blocks until the slice is over; return the intervals once no block is missing, else queue the rest."""
    ends_at = time.monotonic() + SLICE_SECONDS
    measurements = needs.measurements.select(needs.submission.split)
    stops = interval_parts.find_kept_stops(needs.folder) or _read_stops(needs, measurements, config=config)
    prepared = prepare_submission(measurements, Strategy(needs.submission.strategy), stops)
    blocks = list_blocks(needs.replicates.n_replicates)
    parts = []
    n_computed = 0
    for rows in blocks:
        values = interval_parts.find_part(needs.folder, rows)
        if values is None:
            # At least one block a slice, or a busy board would never have intervals.
            if n_computed > 0 and _is_over(sessions, ends_at):
                with sessions.begin() as session:
                    jobs.defer_resampling(session, needs.submission.id)
                return None
            values = resample_rows(prepared, needs.replicates, rows)
            n_computed += 1
            # The only block there is, is stored at once.
            if len(blocks) > 1:
                interval_parts.save_part(needs.folder, rows, values)
        parts.append(values)
    estimates = {
        names: {name: getattr(board, name) for name in RANKED_FIGURES} for names, board in needs.boards.items()
    }
    return summarise_submission(prepared, needs.replicates, np.concatenate(parts, axis=2), estimates)


def _read_stops(needs: _Needs, measurements: Measurements, *, config: Config) -> tuple[Stops, ...]:
    """Read the submission's file, and keep what the next slices need of it."""
    submission = needs.submission
    actions = read_actions(
        upload_path(config.data_dir, submission.actions_sha256),
        needs.measurements,
        strategy=Strategy(submission.strategy),
        split=submission.split,
        filename=submission.filename,
    )
    stops = find_stops(measurements, actions.table)
    if len(list_blocks(needs.replicates.n_replicates)) > 1:
        interval_parts.save_stops(needs.folder, stops)
    return stops


def _is_over(sessions: Sessions, ends_at: float) -> bool:
    with sessions.begin() as session:
        return time.monotonic() > ends_at or jobs.is_ahead(session, priority=jobs.RESAMPLING_PRIORITY)


def _spread(board: BoardIntervals, needs: _Needs) -> BoardIntervals:
    """Return a board's intervals as they are stored."""
    submission, stored = needs.submission, needs.boards[board.model, board.benchmark]
    strategy = Strategy(submission.strategy)
    return spread_intervals(needs.snapshot, board, stored, split=submission.split, strategy=strategy)


def _remove_outdated(session: Session, needs: _Needs) -> None:
    """Remove intervals that were made in another way, which the new ones take the place of."""
    table = models.BoardInterval
    session.execute(
        delete(table).where(
            table.board_score_id.in_([board.id for board in needs.boards.values()]), table.version != INTERVAL_VERSION
        )
    )


def _describe(board: BoardIntervals, board_score_id: int, n_replicates: int) -> dict[str, Any]:
    potential = board.intervals["realised_potential"]
    return {
        "board_score_id": board_score_id,
        "version": INTERVAL_VERSION,
        "n_replicates": n_replicates,
        "intervals": intervals_document(board),
        "realised_potential_low": None if potential is None else potential.low,
        "realised_potential_high": None if potential is None else potential.high,
        "replicates": board.values["realised_potential"].astype(np.dtype("<f8")).tobytes(),
    }
