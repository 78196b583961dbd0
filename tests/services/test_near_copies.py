"""Near copies on a hidden split: whoever sends them, as whatever, and whatever became of the first file."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from sqlalchemy import select
from sqlalchemy.orm import Session, sessionmaker

from app.baselines import BASELINE_NAMES, build_baseline
from app.config import Config
from app.db import models
from app.evaluator.scorers import SCORERS
from app.evaluator.strategies import ActionTable, CellActions, Strategy
from app.files.actions import write_actions
from app.files.snapshot import Snapshot, load_measurements
from app.services import rescoring, snapshots, submissions
from app.services.accounts import Identity, Role, act_for_team, ensure_account, find_identity
from app.services.differencing import list_earlier
from app.services.passwords import hash_password
from app.services.profile import delete_account
from app.services.rescoring_jobs import rescore_submission
from app.services.scoring import NotScoredError, WithheldScoreError, get_score
from app.services.submissions import SubmissionState
from app.services.teams import create_team
from app.services.uploads import upload_path
from app.services.withheld import release_submission
from tests.other_scorer import score_with_penalty
from tests.services.conftest import Desk

S = Strategy
MODELS = ("alpha", "beta")
COUNTS = {"math": 21, "logic": 3}
UNITS = [(model, name, n) for model in MODELS for name, count in COUNTS.items() for n in range(count)]
Routes = np.ndarray


@pytest.fixture
def booth(
    session: Session, sessions: sessionmaker[Session], config: Config, make_board_snapshot: Callable[..., Snapshot]
) -> Desk:
    """Makes, submits and scores action files of a snapshot that hides the labels of its test split."""
    made = make_board_snapshot("secret", seed=2, hidden_splits=["test"])
    snapshots.import_snapshot(session, made)
    snapshots.freeze_snapshot(session, "secret")
    session.commit()
    return Desk(session, sessions, config, load_measurements(made))


@pytest.fixture
def organiser(session: Session) -> Identity:
    return ensure_account(session, name="olga", team="organisers", is_control=False, role=Role.ORGANISER)


def draw(seed: int = 1) -> Routes:
    """Draw which of the 48 questions think."""
    return np.random.default_rng(seed).integers(0, 2, len(UNITS))


def flip(routes: Routes, *units: int) -> Routes:
    changed = routes.copy()
    changed[list(units)] ^= 1
    return changed


def write(*settings: Routes, strategy: Strategy = S.DYNAMIC_ROUTING, cap: int = 10**7) -> bytes:
    """Write a file of routes: as routes, or as caps of nothing and of more than there is."""
    lines = ["model,benchmark,question_id,setting,action"]
    for label, routes in enumerate(settings):
        for (model, name, number), route in zip(UNITS, routes.tolist(), strict=True):
            action = route if strategy is S.DYNAMIC_ROUTING else route * cap
            lines.append(f"{model},{name},{name}-test-{number:02d},{label},{action}")
    return "\n".join(lines).encode()


def send(desk: Desk, account: Identity, content: bytes | Path, *, strategy: Strategy = S.DYNAMIC_ROUTING) -> str:
    method = f"method of {account.team} {strategy}"
    submission_id = desk.submit(account, content, snapshot="secret", strategy=strategy, method=method)
    desk.score(submission_id)
    return submission_id


def get_state(desk: Desk, submission_id: str) -> str:
    desk.session.expire_all()
    return desk.session.get_one(models.Submission, submission_id).state


def keep_settings(table: ActionTable) -> ActionTable:
    """Return the first 32 settings, as many as a hidden split takes."""
    cells = tuple(CellActions(cell.covered[:32], cell.actions[:32]) for cell in table.cells)
    return ActionTable(table.strategy, table.settings[:32], cells)


def second_team(session: Session, account: Identity) -> Identity:
    """Return the account as it acts for another team of its own."""
    create_team(session, "second", account=account)
    known = find_identity(session, account.id)
    assert known is not None
    return act_for_team(session, known, "second")


def test_a_near_copy_is_found_under_another_team_of_the_same_person_and_under_another_account(
    session: Session, booth: Desk, author: Identity, stranger: Identity
) -> None:
    routes = draw()
    assert get_state(booth, send(booth, author, write(routes))) == "scored"
    near = send(booth, second_team(session, author), write(flip(routes, 0)))
    assert get_state(booth, near) == "withheld"
    assert get_state(booth, send(booth, stranger, write(flip(routes, 1)))) == "withheld"
    # The same bytes tell nothing new, and a file that is far passes; a withheld one was not told, so it is no measure.
    assert get_state(booth, send(booth, stranger, write(routes))) == "scored"
    assert get_state(booth, send(booth, stranger, write(draw(9)))) == "scored"


def test_a_near_copy_is_found_under_another_strategy_of_another_team(
    booth: Desk, author: Identity, stranger: Identity
) -> None:
    routes = draw()
    send(booth, author, write(routes))
    caps = write(flip(routes, 2), strategy=S.FIXED_BUDGET)
    assert get_state(booth, send(booth, stranger, caps, strategy=S.FIXED_BUDGET)) == "withheld"


def test_withdrawing_the_first_file_does_not_make_room(
    session: Session, booth: Desk, author: Identity, stranger: Identity
) -> None:
    routes = draw()
    first = send(booth, author, write(routes))
    submissions.withdraw_submission(session, first, account=author)
    session.commit()
    assert get_state(booth, send(booth, stranger, write(flip(routes, 0)))) == "withheld"
    # The withdrawn bytes sent again are the submission that exists: nothing is scored or told again.
    assert booth.submit(author, write(routes), snapshot="secret", strategy=S.DYNAMIC_ROUTING) == first
    assert get_state(booth, first) == "withdrawn"


def test_one_that_was_withheld_counts_once_it_is_released(
    session: Session, booth: Desk, author: Identity, stranger: Identity, organiser: Identity
) -> None:
    routes = draw()
    send(booth, author, write(routes))
    near = send(booth, stranger, write(flip(routes, *range(7))))
    assert get_state(booth, near) == "withheld"
    # Eight from the first and one from the withheld one: only the first was told.
    other = write(flip(routes, *range(8)))
    release_submission(session, near, account=organiser)
    session.commit()
    assert get_state(booth, send(booth, author, other)) == "withheld"


def test_deleting_an_account_does_not_make_room(
    session: Session, booth: Desk, author: Identity, stranger: Identity
) -> None:
    """What it had told stays told, though its drafts are withdrawn and their files have no name any more."""
    routes = draw()
    draft = send(booth, author, write(routes))
    account = session.get_one(models.Account, author.id)
    account.password_hash = hash_password("correct horse battery", name=author.name)
    session.flush()
    delete_account(session, author, password="correct horse battery", now=datetime.now(UTC))
    session.commit()
    assert session.get_one(models.Submission, draft).filename == "actions"
    assert get_state(booth, send(booth, stranger, write(flip(routes, 0)))) == "withheld"


def test_a_lost_file_counts_as_close(session: Session, booth: Desk, author: Identity, stranger: Identity) -> None:
    first = send(booth, author, write(draw()))
    sha256 = session.get_one(models.Submission, first).actions_sha256
    upload_path(booth.config.data_dir, sha256).unlink()
    for kept in sorted(booth.config.cache_dir.rglob("*"), reverse=True):
        kept.rmdir() if kept.is_dir() else kept.unlink()
    assert get_state(booth, send(booth, stranger, write(draw(9)))) == "withheld"


def test_public_controls_count_and_the_oracle_does_not(
    session: Session, booth: Desk, author: Identity, tmp_path: Path
) -> None:
    """Anybody can draw the random control again; where the oracle stops, a verdict must not tell."""
    controls = ensure_account(session, name="controls", team="controls", is_control=True)
    found = {}
    for name in BASELINE_NAMES:
        table = build_baseline(name, booth.measurements, strategy=S.DYNAMIC_ROUTING, split="test")
        path = tmp_path / f"{name}.csv"
        write_actions(path, keep_settings(table), booth.measurements.select("test"))
        found[name] = booth.submit(controls, path, snapshot="secret", strategy=S.DYNAMIC_ROUTING, method=name)
        booth.score(found[name])
    submission = session.get_one(models.Submission, booth.submit(author, write(draw()), snapshot="secret"))
    told = {file.submission_id for file in list_earlier(session, submission)}
    assert told == {found["random"], found["uninformed"]}


def test_a_setting_near_a_constant_is_not_hidden_by_one_beside_it(booth: Desk, author: Identity) -> None:
    """The figures of the constants are public: one question that thinks tells its label by the first point told."""
    nothing = np.zeros(len(UNITS), dtype=np.int64)
    assert get_state(booth, send(booth, author, write(flip(nothing, 4), draw()))) == "withheld"


def test_re_scoring_tells_nothing_that_was_withheld_and_one_version_of_the_rest(
    session: Session,
    sessions: sessionmaker[Session],
    booth: Desk,
    author: Identity,
    stranger: Identity,
    organiser: Identity,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    routes = draw()
    first = send(booth, author, write(routes))
    submissions.publish_submission(session, first, account=author)
    near = send(booth, stranger, write(flip(routes, 0)))
    session.commit()
    before = get_score(session, first, account=author).text
    monkeypatch.setitem(SCORERS, "2", score_with_penalty)
    status = rescoring.start_rescoring(session, snapshot_name="secret", split=None, strategy=None, actor="olga")
    session.commit()
    for submission_id in (first, near):
        rescore_submission(sessions, submission_id, config=booth.config)
    session.expire_all()
    assert get_state(booth, near) == "withheld"
    versions = select(models.Score.scorer_version).where(models.Score.submission_id == near)
    assert sorted(session.scalars(versions)) == ["1", "2"]
    for version in (None, "1", "2"):
        with pytest.raises((WithheldScoreError, NotScoredError, submissions.HiddenLabelsError)):
            get_score(session, near, account=stranger, scorer_version=version)
    # Before the organiser applies it the new figures are nobody's, afterwards the old ones are not told beside them.
    assert get_score(session, first, account=author).text == before
    for account in (author, organiser, None):
        with pytest.raises(submissions.HiddenLabelsError, match="scorer version 1 only"):
            get_score(session, first, account=account, scorer_version="2")
    rescoring.apply_rescoring(session, status.id, leave_out_failed=False, actor="olga")
    session.commit()
    assert get_score(session, first, account=author).scorer_version == "2"
    with pytest.raises(submissions.HiddenLabelsError, match="scorer version 2 only"):
        get_score(session, first, account=author, scorer_version="1")
    assert get_state(booth, near) == "withheld"
    # What was told by an older version is told: a near copy is found after the re-scoring too.
    assert get_state(booth, send(booth, stranger, write(flip(routes, 5)))) == "withheld"
    assert get_state(booth, near) == SubmissionState.WITHHELD
