"""The demo: snapshots with their controls and example methods, made while the board is already served."""

from __future__ import annotations

import argparse
import logging
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from sqlalchemy import select
from sqlalchemy.orm import Session, sessionmaker

from app.baselines import BASELINE_NAMES, build_baseline
from app.baselines.examples import build_example, list_examples
from app.config import Config, load_config
from app.db import models
from app.db.embedded import open_database
from app.db.migrations import upgrade_database
from app.db.session import make_engine, session_factory
from app.errors import AppError
from app.evaluator.measurements import ALL_SPLITS, Measurements
from app.evaluator.strategies import ActionTable, Strategy
from app.files.actions import write_actions
from app.files.snapshot import Snapshot, load_measurements
from app.files.synthetic import draw_snapshot
from app.log import configure_logging
from app.processes import stop_with_parent
from app.services.accounts import CONTROL_TEAM, Identity, ensure_account
from app.services.demo_progress import DemoProgress, write_demo_progress
from app.services.demo_snapshots import (
    SHIPPED_FOLDER,
    can_fit,
    ensure_frozen,
    list_shipped,
    list_shown_splits,
    store_shipped,
)
from app.services.submissions import (
    SubmissionState,
    accept_submission,
    get_submission,
    publish_submission,
)
from app.services.uploads import store_upload

# Its own name also where the module is run as a program.
logger = logging.getLogger("app.services.demo")

Sessions = sessionmaker[Session]
EXAMPLE_TEAM = "examples"
SPLITS = ("test", "validation")
POLL_SECONDS = 0.5
# Leaves the processor to the pages and the scoring worker.
NICENESS = 10
CONTROL_DESCRIPTIONS = {
    "oracle": "Control: knows every outcome. Points of the exact frontier, so nothing can lie above it.",
    "uninformed": "Control: the constant policies, which know nothing of the question.",
    "random": "Control: random settings, to show what choosing among many settings with hindsight buys.",
}
TITLES = {
    Strategy.DYNAMIC_ROUTING: "dynamic routing",
    Strategy.FIXED_BUDGET: "fixed budgets",
    Strategy.DYNAMIC_EARLY_EXIT: "dynamic early exit",
}


@dataclass(frozen=True)
class _Entry:
    """A submission that the demo makes."""

    account: Identity
    method: str
    description: str
    strategy: Strategy
    split: str
    build: Callable[[], ActionTable]


def run_demo(
    sessions: Sessions,
    config: Config,
    *,
    scale: float = 1.0,
    splits: Sequence[str] = SPLITS,
    shipped: Path = SHIPPED_FOLDER,
) -> None:
    """Make whatever of the demo is not there yet: snapshots, their submissions, scored by a worker and published.

    The measured snapshots that are shipped, small ones, come first; one that cannot be used is named in the log and in
    the demo's progress. The synthetic one comes last, so that it is the one that the board shows at first. Killed at
    any point, it goes on from there at its next start.
    """
    paths = list_shipped(shipped)
    steps = _Steps(config.data_dir, n_steps=2 * len(paths) + 3 + len(splits) * len(Strategy))
    with sessions.begin() as session:
        controls = ensure_account(session, name=CONTROL_TEAM, team=CONTROL_TEAM, is_control=True)
        examples = ensure_account(session, name=EXAMPLE_TEAM, team=EXAMPLE_TEAM, is_control=False)
    desk = _Desk(sessions, config, controls, examples)
    left_out = [reason for path in paths if (reason := _show_shipped(desk, steps, path)) is not None]
    steps.begin("drawing synthetic measurements")
    snapshot = draw_snapshot(scale=scale)
    steps.begin("storing them in the database")
    ensure_frozen(sessions, snapshot)
    measurements = load_measurements(snapshot)
    for split in splits:
        for strategy in reversed(Strategy):
            steps.begin(f"writing action files of {TITLES[strategy]} for the {split} split")
            desk.submit(snapshot, measurements, split=split, strategy=strategy)
    steps.begin("scoring")
    desk.publish_all()
    steps.finish(left_out)


def _show_shipped(desk: _Desk, steps: _Steps, path: Path) -> str | None:
    """Store a shipped snapshot and submit its controls and examples; return why not where that cannot be done."""
    steps.begin(f"storing the measured snapshot in {path.name}")
    try:
        snapshot = store_shipped(desk.sessions, path)
    except AppError as exc:
        logger.error("the measured snapshot in %s is left out: %s", path, exc.detail)
        steps.begin(f"leaving out {path.name}")
        return f"{path.name} was left out: {exc.detail}"
    measurements = load_measurements(snapshot)
    steps.begin(f"writing action files for {snapshot.manifest.name}")
    for split in list_shown_splits(snapshot):
        for strategy in reversed(Strategy):
            desk.submit(snapshot, measurements, split=split, strategy=strategy)
    return None


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the demo's data with the configuration of the environment, then end."""
    parser = argparse.ArgumentParser(prog="python -m app.services.demo", description=main.__doc__)
    parser.add_argument("--stop-with-parent", action="store_true", help="stop when standard input ends")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the questions of the full snapshot")
    parser.add_argument("--splits", nargs="+", default=SPLITS, help="the splits to submit to")
    parser.add_argument("--shipped", type=Path, default=SHIPPED_FOLDER, help="the folder of measured snapshots")
    chosen = parser.parse_args(arguments)
    if chosen.stop_with_parent:
        stop_with_parent()
    os.nice(NICENESS)
    config = load_config()
    configure_logging(config.log_level)
    try:
        with open_database(config) as url:
            engine = make_engine(url)
            upgrade_database(engine)
            sessions = session_factory(engine)
            run_demo(sessions, config, scale=chosen.scale, splits=chosen.splits, shipped=chosen.shipped)
            engine.dispose()
    except AppError as exc:
        logger.error("the demo's data could not be made: %s", exc.detail)
        write_demo_progress(config.data_dir, DemoProgress(0, 0, exc.detail, "failed"))
        return 1
    return 0


class _Steps:
    """Says in the log and in a file which step is under way."""

    def __init__(self, data_dir: Path, *, n_steps: int) -> None:
        self._data_dir = data_dir
        self._n_steps = n_steps
        self._step = 0

    def begin(self, message: str) -> None:
        self._step += 1
        logger.info("demo data, step %d of %d: %s", self._step, self._n_steps, message)
        write_demo_progress(self._data_dir, DemoProgress(self._step, self._n_steps, message, "running"))

    def finish(self, left_out: Sequence[str]) -> None:
        message = "; ".join(["complete", *left_out])
        logger.info("the demo's data: %s", message)
        write_demo_progress(self._data_dir, DemoProgress(self._n_steps, self._n_steps, message, "done"))


class _Desk:
    """Submits what the demo shows, and publishes it once it is scored."""

    def __init__(self, sessions: Sessions, config: Config, controls: Identity, examples: Identity) -> None:
        self.sessions = sessions
        self._config = config
        self._controls = controls
        self._examples = examples
        self._made: list[tuple[str, _Entry]] = []

    def submit(self, snapshot: Snapshot, measurements: Measurements, *, split: str, strategy: Strategy) -> None:
        """Submit the entries of one board that are not there yet."""
        entries = _list_entries(snapshot, measurements, self._controls, self._examples, split=split, strategy=strategy)
        for entry in entries:
            self._made.append((_submit(self.sessions, self._config, snapshot, measurements, entry), entry))
            _publish_scored(self.sessions, self._made)

    def publish_all(self) -> None:
        """Wait until everything is scored, and publish it."""
        while self._made:
            _publish_scored(self.sessions, self._made)
            time.sleep(POLL_SECONDS)


def _list_entries(
    snapshot: Snapshot,
    measurements: Measurements,
    controls: Identity,
    examples: Identity,
    *,
    split: str,
    strategy: Strategy,
) -> Iterator[_Entry]:
    """Yield the submissions of one board, the quick ones first: the oracle's actions take the longest."""
    # What is fitted on the training questions is not shown on them, as a part of all splits.
    shown = list_examples(snapshot) if split != ALL_SPLITS and can_fit(snapshot) else ()
    for example in shown:
        if example.strategy is strategy:
            yield _Entry(
                examples,
                example.name,
                f"Example: {example.description}",
                strategy,
                split,
                partial(build_example, example.name, snapshot, split=split),
            )
    for name in sorted(BASELINE_NAMES, key=lambda name: name == "oracle"):
        yield _Entry(
            controls,
            name,
            CONTROL_DESCRIPTIONS[name],
            strategy,
            split,
            partial(build_baseline, name, measurements, strategy=strategy, split=split),
        )


def _submit(sessions: Sessions, config: Config, snapshot: Snapshot, measurements: Measurements, entry: _Entry) -> str:
    """Return the submission of an entry; made anew only where there is none."""
    with sessions.begin() as session:
        found = _find_submission(session, snapshot.manifest.name, entry)
    if found is not None:
        return found
    table = entry.build()
    filename = f"{entry.method.replace(' ', '-')}-{entry.strategy}-{entry.split}.parquet"
    with tempfile.TemporaryDirectory(prefix="otboard-demo-") as folder:
        path = Path(folder) / filename
        write_actions(path, table, measurements.select(entry.split))
        with path.open("rb") as stream:
            upload = store_upload(stream, data_dir=config.data_dir, limit_bytes=sys.maxsize)
    with sessions.begin() as session:
        accepted = accept_submission(
            session,
            account=entry.account,
            snapshot_name=snapshot.manifest.name,
            split=entry.split,
            strategy=entry.strategy,
            method_name=entry.method,
            description=entry.description,
            upload=upload,
            filename=filename,
        )
    return accepted.submission_id


def _find_submission(session: Session, snapshot_name: str, entry: _Entry) -> str | None:
    submission, method = models.Submission, models.Method
    query = (
        select(submission.id)
        .join(method, method.id == submission.method_id)
        .join(models.Snapshot, models.Snapshot.id == submission.snapshot_id)
        .where(
            models.Snapshot.name == snapshot_name,
            method.team_id == entry.account.team_id,
            method.name == entry.method,
            submission.strategy == entry.strategy.value,
            submission.split == entry.split,
        )
        .order_by(submission.created_at)
        .limit(1)
    )
    return session.scalar(query)


def _publish_scored(sessions: Sessions, made: list[tuple[str, _Entry]]) -> None:
    """Publish what has been scored meanwhile and take it off the list; a rejected file is our bug and is named."""
    for submission_id, entry in list(made):
        with sessions.begin() as session:
            details = get_submission(session, submission_id, account=entry.account)
            if details.state.is_waiting:
                continue
            if details.state is SubmissionState.SCORED:
                publish_submission(session, submission_id, account=entry.account)
            elif details.state not in (SubmissionState.PUBLISHED, SubmissionState.WITHDRAWN):
                logger.error("the demo's %s is %s: %s", entry.method, details.state, details.problems)
        made.remove((submission_id, entry))


if __name__ == "__main__":
    sys.exit(main())
