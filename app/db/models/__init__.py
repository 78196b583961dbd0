"""The tables. What must hold is said as a named constraint; triggers are in the migrations."""

from __future__ import annotations

from app.db.models.declarative import SLUG_PATTERN, SPLIT_NAMES, STRATEGY_NAMES, Base
from app.db.models.intervals import BoardInterval, BoardRank, SplitReplicates
from app.db.models.snapshots import (
    SNAPSHOT_STATES,
    BoardFrontier,
    CellFrontier,
    Question,
    Snapshot,
    SnapshotBenchmark,
    SnapshotFigure,
    SnapshotModel,
    Trajectory,
)
from app.db.models.submissions import (
    SUBMISSION_STATES,
    Account,
    ApiToken,
    BoardScore,
    Method,
    Score,
    Submission,
    SubmissionEvent,
    Team,
    new_submission_id,
)

__all__ = [
    "SLUG_PATTERN",
    "SNAPSHOT_STATES",
    "SPLIT_NAMES",
    "STRATEGY_NAMES",
    "SUBMISSION_STATES",
    "Account",
    "ApiToken",
    "Base",
    "BoardFrontier",
    "BoardInterval",
    "BoardRank",
    "BoardScore",
    "CellFrontier",
    "Method",
    "Question",
    "Score",
    "Snapshot",
    "SnapshotBenchmark",
    "SnapshotFigure",
    "SnapshotModel",
    "SplitReplicates",
    "Submission",
    "SubmissionEvent",
    "Team",
    "Trajectory",
    "new_submission_id",
]
