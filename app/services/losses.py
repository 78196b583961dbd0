"""The questions on which a submission loses most: where it stops is kept by a job, what it loses is read from that."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from sqlalchemy.orm import Session, sessionmaker

from app.config import Config
from app.db import models
from app.errors import NotFoundError
from app.evaluator.fast_policies import solve_policies_fast
from app.evaluator.measurements import Cell, IntArray, Measurements
from app.evaluator.operating_points import measure_operating_points
from app.evaluator.question_losses import QuestionLosses, measure_question_losses
from app.evaluator.reference import CellReference
from app.evaluator.resampled_settings import Stops, find_stops
from app.evaluator.strategies import ActionTable, CellActions, Strategy
from app.files.actions import read_actions
from app.report_examples import CurveExample, show_curve
from app.services import jobs
from app.services.accounts import Identity
from app.services.board_lines import BoardKey
from app.services.frontiers import EVALUATOR_VERSION, get_references
from app.services.interval_parts import find_kept_stops, save_stops
from app.services.measurements import load_measurements
from app.services.release import are_labels_told, require_told_labels
from app.services.scoring import get_score
from app.services.snapshots import get_snapshot
from app.services.submissions import SubmissionState, get_submission
from app.services.uploads import upload_path

logger = logging.getLogger(__name__)

Sessions = sessionmaker[Session]
MAX_QUESTIONS = 50
KEPT_STATES = (SubmissionState.SCORED, SubmissionState.PUBLISHED, SubmissionState.WITHDRAWN)


class UnknownSettingError(NotFoundError):
    """The submission has no such setting, or it does not cover the board."""

    code = "unknown_setting"
    title = "No such setting"


@dataclass(frozen=True)
class TrajectoryStop:
    """Where one trajectory stops: the setting's position, the oracle's at the same cost, k*, and what is lost."""

    trajectory: int
    position: int
    oracle_position: int
    reference: int
    n_steps: int
    lost_probes: int


@dataclass(frozen=True)
class QuestionLoss:
    """What a setting loses on one question: means over its trajectories, accuracies as fractions, tokens as counts."""

    model: str
    benchmark: str
    question_id: str
    early_loss: float
    late_loss: float
    wasted_tokens: float
    forgone_tokens: float
    stops: tuple[TrajectoryStop, ...]
    worst: CurveExample


@dataclass(frozen=True)
class Losses:
    """The questions on which one setting loses most on a board, worst first; of equals, the first in the snapshot."""

    submission_id: str
    setting: str
    model: str | None
    benchmark: str | None
    n_questions: int
    questions: tuple[QuestionLoss, ...]


def find_losses(
    session: Session,
    submission_id: str,
    *,
    account: Identity | None,
    setting: str,
    board: BoardKey,
    limit: int,
    config: Config,
) -> Losses | None:
    """Return the questions on which a setting loses most, that is, the largest early and late loss together.

    None until a job has worked out where the submission stops, which whoever asks first sets going.

    Raises
    ------
    HiddenLabelsError : on a split whose labels are hidden there are no figures of single questions.
    NotScoredError : it has no score, or none that this reader may see.
    UnknownSettingError : no such setting, or one that covers no cell of the board.
    """
    submission = get_submission(session, submission_id, account=account)
    snapshot = get_snapshot(session, submission.snapshot)
    require_told_labels(snapshot, submission.split, what="no question's loss is shown")
    # Whoever may not see the score, as of a withdrawn submission, may not see what it is made of either.
    get_score(session, submission_id, account=account)
    folder = stops_folder(config.data_dir, submission_id)
    settings, own, oracle = _read_settings(folder), find_kept_stops(folder / "own"), find_kept_stops(folder / "oracle")
    if settings is None or own is None or oracle is None:
        begin_keeping(session, submission_id)
        return None
    if setting not in settings:
        raise UnknownSettingError(f"Submission {submission_id} has no setting {setting!r}.")
    measurements = load_measurements(session, snapshot, data_dir=config.data_dir).select(submission.split)
    found = [
        loss
        for cell, stops, best in zip(measurements.cells, own, oracle, strict=True)
        if board.model in (None, cell.model) and board.benchmark in (None, cell.benchmark)
        for loss in _list_cell(cell, stops, best, row=settings.index(setting))
    ]
    if not found:
        raise UnknownSettingError(f"Setting {setting!r} covers no cell of this board.")
    worst = sorted(found, key=lambda loss: -loss.n_lost)[: min(limit, MAX_QUESTIONS)]
    return Losses(
        submission_id=submission_id,
        setting=setting,
        model=board.model,
        benchmark=board.benchmark,
        n_questions=len(found),
        questions=tuple(_describe(loss) for loss in worst if loss.n_lost > 0),
    )


def begin_keeping(session: Session, submission_id: str) -> None:
    """Queue the job that keeps where a submission stops, unless one is on its way or has failed."""
    if not jobs.is_stops_queued(session, submission_id):
        jobs.defer_stops(session, submission_id)


def keep_stops(sessions: Sessions, submission_id: str, *, config: Config) -> None:
    """Read a submission's file and keep where each setting stops, and where the oracle would at the same cost."""
    with sessions.begin() as session:
        submission = session.get(models.Submission, submission_id)
        if submission is None or submission.state not in KEPT_STATES:
            return
        snapshot = session.get_one(models.Snapshot, submission.snapshot_id)
        if not are_labels_told(snapshot, submission.split):
            return
        strategy = Strategy(submission.strategy)
        everything = load_measurements(session, snapshot, data_dir=config.data_dir)
        references = get_references(
            session, snapshot, split=submission.split, strategy=strategy, data_dir=config.data_dir
        )
    path = upload_path(config.data_dir, submission.actions_sha256)
    actions = read_actions(path, everything, strategy=strategy, split=submission.split, filename=submission.filename)
    measurements = everything.select(submission.split)
    folder = stops_folder(config.data_dir, submission_id)
    save_stops(folder / "own", find_stops(measurements, actions.table))
    save_stops(folder / "oracle", find_stops(measurements, match_oracle(measurements, actions.table, references)))
    # Last of all, since its being there says that everything is.
    (folder / "settings.txt").write_text("\n".join(actions.table.settings), encoding="utf-8")
    logger.info("where submission %s stops is kept", submission_id)


def match_oracle(measurements: Measurements, table: ActionTable, references: Sequence[CellReference]) -> ActionTable:
    """Return the oracle's actions at the cost of every setting, cell by cell: the best point of at most that cost."""
    cells = []
    for cell, actions, reference in zip(measurements.cells, table.cells, references, strict=True):
        rows = actions.actions[actions.covered]
        points = measure_operating_points(cell, table.strategy, rows)
        rewards = reference.frontier.curve.correct_at_cost(points.cost)
        wanted, place = np.unique(rewards, return_inverse=True)
        matched = np.zeros_like(actions.actions)
        if len(rows):
            matched[actions.covered] = solve_policies_fast(cell, table.strategy, wanted.tolist())[place]
        cells.append(CellActions(actions.covered, matched))
    return ActionTable(table.strategy, table.settings, tuple(cells))


def stops_folder(data_dir: Path, submission_id: str) -> Path:
    """Return where it is kept how a submission stops; another version of the evaluator keeps it elsewhere."""
    key = hashlib.sha256(f"{submission_id}/{EVALUATOR_VERSION}".encode()).hexdigest()
    return data_dir / "cache" / "stops" / key


def _read_settings(folder: Path) -> list[str] | None:
    try:
        return (folder / "settings.txt").read_text(encoding="utf-8").split("\n")
    except FileNotFoundError:
        return None


@dataclass(frozen=True, eq=False)
class _Found:
    """A question's loss before it is written out."""

    cell: Cell
    question: int
    losses: QuestionLosses
    positions: IntArray
    oracle: IntArray

    @property
    def n_lost(self) -> float:
        """Accuracy lost on the question's trajectories, comparable between cells."""
        lost = int(self.losses.early_loss[self.question]) + int(self.losses.late_loss[self.question])
        return lost / (self.cell.trajectories_per_question * self.cell.probes_per_position)


def _list_cell(cell: Cell, own: Stops, oracle: Stops, *, row: int) -> list[_Found]:
    if not own.covered[row]:
        return []
    at = int(np.count_nonzero(own.covered[:row]))
    positions = own.positions[at].astype(np.int64)
    losses = measure_question_losses(cell, positions)
    best = oracle.positions[at].astype(np.int64)
    return [_Found(cell, question, losses, positions, best) for question in range(cell.n_questions)]


def _describe(found: _Found) -> QuestionLoss:
    cell, question, n = found.cell, found.question, found.cell.trajectories_per_question
    first = question * n
    curves = [show_curve(cell, first + number) for number in range(n)]
    lost = found.losses.trajectory_loss[first : first + n]
    stops = tuple(
        TrajectoryStop(
            trajectory=number,
            position=int(found.positions[first + number]),
            oracle_position=int(found.oracle[first + number]),
            reference=curve.reference,
            n_steps=len(curve.retained_tokens) - 1,
            lost_probes=int(lost[number]),
        )
        for number, curve in enumerate(curves)
    )
    n_probes = n * cell.probes_per_position
    return QuestionLoss(
        model=cell.model,
        benchmark=cell.benchmark,
        question_id=cell.question_ids[question],
        early_loss=int(found.losses.early_loss[question]) / n_probes,
        late_loss=int(found.losses.late_loss[question]) / n_probes,
        wasted_tokens=int(found.losses.wasted[question]) / n,
        forgone_tokens=int(found.losses.forgone[question]) / n,
        stops=stops,
        worst=curves[int(np.argmax(lost))],
    )
