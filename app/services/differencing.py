"""Whether a file on a hidden split is too close to what anybody has been told before; no label is looked at."""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from app.config import Config
from app.db import models
from app.evaluator.closeness import Closeness, FileStops, Verdict
from app.evaluator.measurements import Measurements
from app.evaluator.resampled_settings import find_stops
from app.evaluator.strategies import ActionTable, Strategy
from app.files.actions import ActionFile, read_actions
from app.services.interval_parts import find_kept_stops, save_stops
from app.services.uploads import upload_path

logger = logging.getLogger(__name__)

NOT_CLOSE = Verdict(is_close=False, close_boards=frozenset())
CONTROLS_WITHOUT_LABELS = ("random", "uninformed")
"""Controls whose actions anybody can compute; where the oracle stops follows from the labels."""
WITHHELD_REASON = (
    "The file, or a setting of it, differs too little from what has been told before on this split, or from a constant "
    "policy; the organiser can release it."
)


@dataclass(frozen=True)
class EarlierFile:
    """A file whose figures some team has been told."""

    submission_id: str
    strategy: Strategy
    actions_sha256: str
    filename: str


class ToldComparison:
    """Compares one file with those whose figures some team was told, as they come to be known."""

    def __init__(
        self, measurements: Measurements, actions: ActionFile, *, snapshot_sha256: str, split: str, config: Config
    ) -> None:
        self._whole = measurements
        self._split = measurements.select(split)
        self._place = (snapshot_sha256, split)
        self._config = config
        self._compared: set[str] = set()
        self._is_incomparable = False
        file = _stop(self._split, actions.table)
        self._closeness = Closeness(self._split, file)
        self._keep(file, actions.table.strategy, actions.sha256)

    def find_missing(self, session: Session, submission: models.Submission) -> list[EarlierFile]:
        """Return the files that were not compared yet; while the transaction lasts, none is added."""
        _lock_split(session, submission)
        return [file for file in list_earlier(session, submission) if file.submission_id not in self._compared]

    def compare(self, earlier: EarlierFile) -> None:
        """Compare with one more file; one at a time is in memory. One that is lost counts as too close."""
        self._compared.add(earlier.submission_id)
        stops = find_kept_stops(self._folder(earlier.strategy, earlier.actions_sha256))
        file = None if stops is None else FileStops(stops, earlier.strategy.unit_is_trajectory)
        file = file or self._read(earlier)
        if file is None:
            self._is_incomparable = True
            return
        self._closeness.compare(file)

    def conclude(self) -> Verdict:
        """Return what the file is too close to."""
        verdict = self._closeness.conclude()
        return Verdict(verdict.is_close or self._is_incomparable, verdict.close_boards)

    def _read(self, earlier: EarlierFile) -> FileStops | None:
        path = upload_path(self._config.data_dir, earlier.actions_sha256)
        if not path.is_file():
            logger.warning(
                "the file of submission %s is gone, so nothing can be compared with it", earlier.submission_id
            )
            return None
        actions = read_actions(
            path, self._whole, strategy=earlier.strategy, split=self._split.split, filename=earlier.filename
        )
        file = _stop(self._split, actions.table)
        self._keep(file, earlier.strategy, earlier.actions_sha256)
        return file

    def _keep(self, file: FileStops, strategy: Strategy, actions_sha256: str) -> None:
        try:
            save_stops(self._folder(strategy, actions_sha256), file.cells)
        except OSError as exc:
            # Without it the next comparison reads the upload again.
            logger.warning("where a file stops could not be kept: %s", exc)

    def _folder(self, strategy: Strategy, actions_sha256: str) -> Path:
        key = "/".join((*self._place, strategy.value, actions_sha256))
        return self._config.cache_dir / "stops" / hashlib.sha256(key.encode()).hexdigest()


def _lock_split(session: Session, submission: models.Submission) -> None:
    """Let one file of a split after the other be told its figures, so that each is compared with those before it."""
    name = f"otboard told {submission.snapshot_id} {submission.split}"
    session.execute(select(func.pg_advisory_xact_lock(func.hashtextextended(name, 0))))


def list_earlier(session: Session, submission: models.Submission) -> list[EarlierFile]:
    """Return the files whose figures were told on a submission's split, to whatever team, withdrawn ones among them.

    One person may have several accounts and teams, so all of them are one. One that was withheld counts from its
    release. Another strategy's files count: policies are compared by where they stop. The controls that follow from
    labels do not, since whether a file is near them would tell labels; the others are public and count.
    """
    table, team, method = models.Submission, models.Team, models.Method
    has_score = select(models.Score.id).where(models.Score.submission_id == table.id).exists()
    query = (
        select(table.id, table.strategy, table.actions_sha256, table.filename)
        .join(team, team.id == table.team_id)
        .join(method, method.id == table.method_id)
        .where(
            table.snapshot_id == submission.snapshot_id,
            table.split == submission.split,
            table.id != submission.id,
            table.scored_at.is_not(None),
            ~team.is_control | method.name.in_(CONTROLS_WITHOUT_LABELS),
            has_score,
        )
        .order_by(table.scored_at, table.id)
    )
    return [
        EarlierFile(submission_id, Strategy(strategy), sha256, filename)
        for submission_id, strategy, sha256, filename in session.execute(query)
    ]


def _stop(measurements: Measurements, table: ActionTable) -> FileStops:
    return FileStops(find_stops(measurements, table), table.strategy.unit_is_trajectory)
