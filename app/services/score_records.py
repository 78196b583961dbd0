"""A score from the stored action file to the stored rows: what scoring and re-scoring have in common."""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from app.config import Config
from app.db import models
from app.errors import NotFoundError, StateError
from app.evaluator.measurements import Measurements
from app.evaluator.scoring import Score
from app.evaluator.strategies import Strategy
from app.files.actions import MAX_SETTINGS, ActionFile, read_actions
from app.files.documents import score_document
from app.services.frontiers import EVALUATOR_VERSION
from app.services.uploads import upload_path


class ActionsGoneError(NotFoundError):
    """The action file is not in the data folder of this server."""

    code = "actions_gone"
    title = "The action file is missing"


class ActionsChangedError(StateError):
    """The action file in the data folder has another hash than its name says."""

    code = "actions_changed"
    title = "The action file was changed"


def read_stored_actions(
    measurements: Measurements,
    *,
    actions_sha256: str,
    strategy: Strategy,
    split: str,
    filename: str,
    config: Config,
    max_settings: int = MAX_SETTINGS,
    progress: Callable[[float], None] | None = None,
) -> ActionFile:
    """Read a stored action file, and make sure that it is the one that was uploaded."""
    path = upload_path(config.data_dir, actions_sha256)
    if not path.is_file():
        raise ActionsGoneError("The action file is not in the data folder of the scoring worker.")
    actions = read_actions(
        path,
        measurements,
        strategy=strategy,
        split=split,
        filename=filename,
        max_settings=max_settings,
        progress=progress,
    )
    if actions.sha256 != actions_sha256:
        raise ActionsChangedError("The stored action file is not the one that was uploaded.")
    return actions


def store_score(session: Session, submission_id: str, score: Score, *, actions: ActionFile) -> bool:
    """Store a score and its boards; where there is one of its version it stays as it is. Return whether it was added.

    Boards that the release policy holds back are those of the submission, whatever version they are scored by.
    """
    document = score_document(score, actions_sha256=actions.sha256, warnings=actions.warnings)
    added = insert(models.Score).values(
        submission_id=submission_id,
        scorer_version=score.scorer_version,
        evaluator_version=EVALUATOR_VERSION,
        document=document,
    )
    unless_there = added.on_conflict_do_nothing(index_elements=["submission_id", "scorer_version"])
    score_id = session.scalar(unless_there.returning(models.Score.id))
    if score_id is None:
        return False
    session.add_all(_build_boards(score, score_id=score_id))
    session.flush()
    return True


def _build_boards(score: Score, *, score_id: int) -> list[models.BoardScore]:
    return [
        models.BoardScore(
            score_id=score_id,
            model=board.model,
            benchmark=board.benchmark,
            n_settings=board.n_settings,
            n_cells=board.n_cells,
            min_questions=board.min_questions,
            realised_potential=board.realised_potential,
            area=board.area,
            uninformed_area=board.uninformed_area,
            oracle_area=board.oracle_area,
            gap=board.gap,
            max_accuracy=board.max_accuracy,
            beta_match=board.beta_match,
            tokens_saved=board.tokens_saved,
            accuracy_25=board.accuracy_at["0.25"],
            accuracy_50=board.accuracy_at["0.5"],
            accuracy_75=board.accuracy_at["0.75"],
            best_e3=board.best_e3,
            reason=board.reason,
            curve_beta=board.curve.beta.tolist(),
            curve_accuracy=board.curve.accuracy.tolist(),
        )
        for board in score.boards
    ]
