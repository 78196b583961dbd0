"""The tables. What must hold is said as a named constraint; triggers are in the migrations."""

from __future__ import annotations

from app.db.models.declarative import SLUG_PATTERN, SPLIT_NAMES, STRATEGY_NAMES, Base
from app.db.models.intervals import BoardInterval, BoardRank, SplitReplicates
from app.db.models.probe_runs import (
    PROBE_ITEM_STATES,
    PROBE_RUN_STATES,
    ModelProfile,
    ProbeItem,
    ProbeRun,
    ProbeRunEvent,
    ProbeTrajectory,
    ProbeWorker,
    QuestionSet,
    QuestionSetItem,
)
from app.db.models.release import AllowanceLimit, HeldBoard
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
    "PROBE_ITEM_STATES",
    "PROBE_RUN_STATES",
    "SLUG_PATTERN",
    "SNAPSHOT_STATES",
    "SPLIT_NAMES",
    "STRATEGY_NAMES",
    "SUBMISSION_STATES",
    "Account",
    "AllowanceLimit",
    "ApiToken",
    "Base",
    "BoardFrontier",
    "BoardInterval",
    "BoardRank",
    "BoardScore",
    "CellFrontier",
    "HeldBoard",
    "Method",
    "ModelProfile",
    "ProbeItem",
    "ProbeRun",
    "ProbeRunEvent",
    "ProbeTrajectory",
    "ProbeWorker",
    "Question",
    "QuestionSet",
    "QuestionSetItem",
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
