"""A snapshot that is imported and frozen, accounts, and action files to submit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session, sessionmaker

from app.baselines import build_baseline
from app.config import Config
from app.db import models
from app.evaluator.measurements import Measurements
from app.evaluator.strategies import Strategy
from app.files.actions import write_actions
from app.files.snapshot import Snapshot, load_measurements
from app.services import snapshots
from app.services.accounts import Identity, ensure_account
from app.services.scoring import score_submission
from app.services.submissions import accept_submission
from app.services.uploads import StoredFile, store_upload


@pytest.fixture
def config(tmp_path: Path) -> Config:
    """A configuration whose data folder is this test's own."""
    return Config(data_dir=tmp_path)


@pytest.fixture
def sessions(engine: Engine, session: Session) -> sessionmaker[Session]:
    """A factory whose sessions share the transaction of `session`, so that what they commit is rolled back too."""
    return sessionmaker(session.connection(), join_transaction_mode="create_savepoint", expire_on_commit=False)


@pytest.fixture
def frozen(session: Session, board_snapshot: Snapshot) -> models.Snapshot:
    """The small snapshot, imported and frozen."""
    snapshots.import_snapshot(session, board_snapshot)
    stored = snapshots.freeze_snapshot(session, board_snapshot.manifest.name)
    session.commit()
    return stored


@pytest.fixture
def author(session: Session) -> Identity:
    """An account of a team that submits."""
    return ensure_account(session, name="ada", team="engines", is_control=False)


@pytest.fixture
def stranger(session: Session) -> Identity:
    """An account of another team."""
    return ensure_account(session, name="bob", team="others", is_control=False)


@dataclass
class Desk:
    """Makes, submits and scores action files of the small snapshot."""

    session: Session
    sessions: sessionmaker[Session]
    config: Config
    measurements: Measurements

    def write(
        self, baseline: str = "random", *, strategy: Strategy = Strategy.FIXED_BUDGET, split: str = "test"
    ) -> Path:
        """Write a baseline's action file."""
        path = self.config.data_dir / f"{baseline}-{strategy}-{split}.csv"
        table = build_baseline(baseline, self.measurements, strategy=strategy, split=split)
        write_actions(path, table, self.measurements.select(split))
        return path

    def store(self, content: bytes | Path) -> StoredFile:
        """Store an upload."""
        path = self.config.data_dir / "given"
        path.write_bytes(content if isinstance(content, bytes) else content.read_bytes())
        with path.open("rb") as stream:
            return store_upload(stream, data_dir=self.config.data_dir, limit_bytes=10**9)

    def submit(
        self,
        account: Identity,
        content: bytes | Path,
        *,
        method: str = "method",
        strategy: Strategy = Strategy.FIXED_BUDGET,
        split: str = "test",
        snapshot: str = "small",
    ) -> str:
        """Submit an action file."""
        accepted = accept_submission(
            self.session,
            account=account,
            snapshot_name=snapshot,
            split=split,
            strategy=strategy,
            method_name=method,
            description=None,
            upload=self.store(content),
            filename="actions.csv",
        )
        self.session.commit()
        return accepted.submission_id

    def score(self, submission_id: str) -> None:
        """Do what the scoring job does."""
        score_submission(self.sessions, submission_id, config=self.config, actor="worker")
        self.session.expire_all()


@pytest.fixture
def desk(
    session: Session,
    sessions: sessionmaker[Session],
    config: Config,
    frozen: models.Snapshot,
    board_snapshot: Snapshot,
) -> Desk:
    """Makes, submits and scores action files of the small snapshot."""
    return Desk(session, sessions, config, load_measurements(board_snapshot))


@pytest.fixture
def make_caps() -> Callable[..., bytes]:
    """A function that writes a fixed-budget file of one cap for every question of a split, by hand."""

    def make(cap: int, *, split: str = "test", setting: str = "one") -> bytes:
        counts = {"train": (3, 2), "validation": (4, 2), "test": (21, 3)}[split]
        lines = ["model,benchmark,question_id,setting,action"]
        for model in ("alpha", "beta"):
            for benchmark, count in zip(("math", "logic"), counts, strict=True):
                lines += [f"{model},{benchmark},{benchmark}-{split}-{n:02d},{setting},{cap}" for n in range(count)]
        return "\n".join(lines).encode()

    return make
