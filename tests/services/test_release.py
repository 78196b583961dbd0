"""What is told of a hidden split, and that nothing else is: scores, rows, curves, frontiers, overthinking figures."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import select
from sqlalchemy.orm import Session, sessionmaker

import app
from app.baselines import build_baseline
from app.config import Config
from app.db import models
from app.evaluator.curves import StepSeries
from app.evaluator.strategies import Strategy
from app.files.actions import write_actions
from app.files.receipts import canonical_receipt
from app.files.snapshot import Snapshot, load_measurements
from app.services import release, snapshots, submissions
from app.services.accounts import Identity, Role, ensure_account
from app.services.board_lines import WHOLE, BoardKey, find_board_curve, list_frontiers, list_operating_points
from app.services.comparison import compare_submissions
from app.services.leaderboard import get_leaderboard, list_board_curves
from app.services.receipts import get_receipt
from app.services.release import METHOD_INTERVALS
from app.services.scoring import NotScoredError, WithheldScoreError, get_score
from app.services.snapshot_documents import FrontierQuery, get_frontiers_text, get_overthinking_text
from app.services.submissions import HiddenLabelsError, SubmissionState, TransitionError
from app.services.withheld import release_submission
from app.web.compare_page import show_comparison
from tests.services.conftest import Desk

S = Strategy
# Of the whole snapshot: two models, two benchmarks, three questions in the smallest cell.
WHOLE_STEP = 0.084
"""1 / (4 cells x 3 questions) = 8.33 points, rounded up to a tenth."""


@pytest.fixture
def secret(session: Session, make_board_snapshot: Callable[..., Snapshot]) -> models.Snapshot:
    """A frozen snapshot that hides the labels of its test split."""
    snapshots.import_snapshot(session, make_board_snapshot("secret", seed=2, hidden_splits=["test"]))
    stored = snapshots.freeze_snapshot(session, "secret")
    session.commit()
    return stored


@pytest.fixture
def booth(
    session: Session,
    sessions: sessionmaker[Session],
    config: Config,
    secret: models.Snapshot,
    make_board_snapshot: Callable[..., Snapshot],
) -> Desk:
    """Makes, submits and scores action files of the snapshot with a hidden split."""
    return Desk(session, sessions, config, load_measurements(make_board_snapshot("secret", seed=2)))


def write_random(desk: Desk, *, n_settings: int = 8, seed: int = 1, strategy: Strategy = S.FIXED_BUDGET) -> Path:
    """Write a file of random settings for the test split."""
    path = desk.config.data_dir / f"random-{n_settings}-{seed}-{strategy}.csv"
    table = build_baseline("random", desk.measurements, strategy=strategy, split="test", seed=seed)
    # The first ones and the last ones are almost constant.
    chosen = slice(96, 96 + n_settings)
    kept = table.settings[chosen]
    cells = tuple(type(cell)(covered=cell.covered[chosen], actions=cell.actions[chosen]) for cell in table.cells)
    write_actions(path, type(table)(table.strategy, kept, cells), desk.measurements.select("test"))
    return path


def submit(desk: Desk, account: Identity, path: Path, **fields: Any) -> str:
    submission_id = desk.submit(account, path, snapshot="secret", **fields)
    desk.score(submission_id)
    return submission_id


def is_multiple(value: float | None, step: float) -> bool:
    return value is None or value == 1.0 or abs(value / step - round(value / step)) < 1e-9


def test_a_score_is_told_as_board_summaries_in_steps_and_nothing_else(
    session: Session, booth: Desk, author: Identity
) -> None:
    submission_id = submit(booth, author, write_random(booth))
    told = json.loads(get_score(session, submission_id, account=author).text)
    exact = session.scalars(select(models.Score.document)).one()
    assert told["settings"] == []
    whole, stored = told["summary"], exact["summary"]
    assert whole["quantum"] == WHOLE_STEP
    for name in ("area", "uninformed_area", "oracle_area", "max_accuracy"):
        assert is_multiple(whole[name], WHOLE_STEP)
        assert abs(whole[name] - stored[name]) <= WHOLE_STEP / 2 + 1e-12
    assert whole["gap"] == pytest.approx(whole["oracle_area"] - whole["area"])
    curve = whole["curve"]
    assert curve["beta"] == [i / METHOD_INTERVALS for i in range(METHOD_INTERVALS + 1)]
    assert all(is_multiple(value, WHOLE_STEP) for value in curve["accuracy"])
    assert curve["accuracy"] == sorted(curve["accuracy"])
    assert [whole["accuracy_at"][b] for b in ("0.25", "0.5", "0.75")] == [curve["accuracy"][i] for i in (5, 10, 15)]
    assert whole["max_accuracy"] == curve["accuracy"][-1]
    assert whole["beta_match"] in (None, *curve["beta"])
    # Cells of three questions are too small for anything to be told.
    assert {board["benchmark"] for board in told["boards"] if board["model"]} <= {None, "math"}
    reasons = {(board["model"], board["benchmark"]): board["reason"] for board in told["held_back"]}
    assert reasons["alpha", "logic"] == "too_coarse"


def test_page_rest_csv_and_plot_take_the_same_told_figures(
    session: Session, booth: Desk, author: Identity, secret: models.Snapshot
) -> None:
    submission_id = submit(booth, author, write_random(booth))
    submissions.publish_submission(session, submission_id, account=author)
    told = json.loads(get_score(session, submission_id, account=author).text)
    target: dict[str, Any] = {"snapshot": "secret", "split": "test", "strategy": S.FIXED_BUDGET}
    for model, benchmark in ((None, None), ("alpha", None), ("alpha", "math")):
        board = get_leaderboard(session, **target, model=model, benchmark=benchmark)
        document = next(b for b in told["boards"] if (b["model"], b["benchmark"]) == (model, benchmark))
        (row,) = board.rows
        for name in ("realised_potential", "area", "oracle_area", "uninformed_area", "gap", "max_accuracy", "best_e3"):
            assert getattr(row, name) == document[name]
        assert (row.beta_match, row.accuracy_25) == (document["beta_match"], document["accuracy_at"]["0.25"])
        (curve,) = list_board_curves(session, board).values()
        assert curve.accuracy.tolist() == document["curve"]["accuracy"]
        on_page = find_board_curve(session, submission_id, board=BoardKey(model, benchmark), scorer_version="1")
        assert isinstance(on_page, StepSeries)
        assert on_page.accuracy.tolist() == document["curve"]["accuracy"]
        frontier = list_frontiers(session, secret, split="test", board=BoardKey(model, benchmark))[S.FIXED_BUDGET]
        assert frontier.quantum == document["quantum"]
        assert frontier.area == document["oracle_area"]
        # A method's curve never lies above its frontier, told or not.
        assert np.all(np.array(frontier.grid_accuracy)[::5] >= curve.accuracy - 1e-12)
    assert get_leaderboard(session, **target, model="alpha", benchmark="logic").rows == ()
    assert list_operating_points(session, [submission_id], board=BoardKey("alpha", "math"), scorer_version="1") == {}
    assert "logic" not in list_frontiers(session, secret, split="test", board=BoardKey("alpha", "logic"))


def test_a_comparison_on_a_hidden_split_has_told_figures_and_no_settings(
    session: Session, booth: Desk, author: Identity, config: Config
) -> None:
    # Two random files of one team are too close to each other on a snapshot as small as this one.
    other = ensure_account(session, name="other", team="other", is_control=False)
    session.commit()
    ids = []
    for seed, account in enumerate((author, other)):
        ids.append(submit(booth, account, write_random(booth, seed=seed)))
        submissions.publish_submission(session, ids[-1], account=account)
    compared = compare_submissions(session, ids, account=None)
    told = [json.loads(get_score(session, one, account=None).text) for one in ids]
    assert compared.settings == ((), ())
    for board in compared.boards:
        figures = [
            next((b for b in one["boards"] if (b["model"], b["benchmark"]) == (board.model, board.benchmark)), None)
            for one in told
        ]
        assert list(board.figures) == figures
        (difference,) = board.differences
        potentials = [None if one is None else one["realised_potential"] for one in figures]
        assert (difference.difference is None) == (None in potentials)
    page = show_comparison(session, compared, data_dir=config.data_dir)
    assert page.settings == ((), ())
    assert page.figure is not None
    drawn = [trace["y"] for trace in json.loads(page.figure.json)["data"] if trace.get("meta", {}).get("row") in ids]
    assert len(drawn) == len(ids)
    assert all(is_multiple(value / 100, WHOLE_STEP) for line in drawn for value in line)


def test_the_curves_of_a_wider_boards_rows_leave_out_boards_of_which_nothing_is_told(
    session: Session, booth: Desk, author: Identity
) -> None:
    # Plots by model and benchmark took the rows of the whole board and drew boards that the same rows are not told on.
    submission_id = submit(booth, author, write_random(booth))
    submissions.publish_submission(session, submission_id, account=author)
    target: dict[str, Any] = {"snapshot": "secret", "split": "test", "strategy": S.FIXED_BUDGET}
    whole = get_leaderboard(session, **target, model=None, benchmark=None)
    keys = {name: replace(whole, model="alpha", benchmark=name) for name in ("math", "logic")}
    assert list_board_curves(session, keys["math"]).keys() == {submission_id}
    assert list_board_curves(session, keys["logic"]) == {}
    session.add(models.HeldBoard(submission_id=submission_id, model="alpha", benchmark="math"))
    session.flush()
    assert list_board_curves(session, keys["math"]) == {}
    assert list_board_curves(session, whole).keys() == {submission_id}


def test_a_receipt_holds_what_is_told(session: Session, booth: Desk, author: Identity, config: Config) -> None:
    submission_id = submit(booth, author, write_random(booth))
    receipt = json.loads(get_receipt(session, submission_id, account=author, config=config))["receipt"]
    told = json.loads(get_score(session, submission_id, account=author).text)
    assert receipt["boards"] == told["boards"]
    assert b"settings" not in canonical_receipt(receipt).replace(b"n_settings", b"")


def test_frontiers_and_overthinking_are_told_in_steps(
    session: Session, booth: Desk, secret: models.Snapshot, config: Config
) -> None:
    query = FrontierQuery(split="test", strategy=None, model=None, benchmark=None)
    text = get_frontiers_text(session, secret, query, data_dir=config.data_dir)
    told = json.loads(text)
    for word in ("cost", "correct", "certificate"):
        assert f'"{word}"' not in text
    steps = {S.DYNAMIC_ROUTING: 0.048, S.FIXED_BUDGET: 0.048, S.DYNAMIC_EARLY_EXIT: 0.024}
    assert {cell["benchmark"] for cell in told["cells"] if cell["strategy"] != S.DYNAMIC_EARLY_EXIT} == {"math"}
    for cell in told["cells"]:
        if cell["benchmark"] == "math":
            assert cell["quantum"] == steps[cell["strategy"]]
        assert len(cell["accuracy"]) == 101
        assert all(is_multiple(value, cell["quantum"]) for value in cell["accuracy"])
        assert cell["beta_sat"] in [i / 100 for i in range(101)]
    assert all(is_multiple(board["area"], board["quantum"]) for board in told["macro"])
    document = json.loads(get_overthinking_text(session, secret, split="test", data_dir=config.data_dir))
    for cell in document["cells"]:
        assert is_multiple(cell["overthinking_ratio"], cell["quantum"])
        assert is_multiple(cell["endpoint_accuracy"], cell["quantum"])
    with pytest.raises(HiddenLabelsError):
        submissions.check_target(session, secret, split="all")


def test_a_near_file_is_withheld_until_an_organiser_releases_it(
    session: Session, booth: Desk, author: Identity
) -> None:
    organiser = ensure_account(session, name="olga", team="organisers", is_control=False, role=Role.ORGANISER)
    path = write_random(booth, n_settings=1)
    first = submit(booth, author, path)
    lines = path.read_text().splitlines()
    # One question thinks without a limit.
    head, *_ = lines[1].rpartition(",")
    near = booth.config.data_dir / "near.csv"
    near.write_text("\n".join([lines[0], f"{head},9999999", *lines[2:]]))
    second = submit(booth, author, near)
    assert submissions.get_submission(session, first, account=author).state == SubmissionState.SCORED
    details = submissions.get_submission(session, second, account=author)
    assert (details.state, details.scored_at) == (SubmissionState.WITHHELD, None)
    with pytest.raises(WithheldScoreError):
        get_score(session, second, account=author)
    with pytest.raises(TransitionError):
        submissions.publish_submission(session, second, account=author)
    assert find_board_curve(session, second, board=WHOLE, scorer_version="1") is None
    release_submission(session, second, account=organiser)
    assert json.loads(get_score(session, second, account=author).text)["held_back"] is not None
    event = submissions.list_events(session, second, account=author)[-1]
    assert (event.to_state, event.actor, event.reason) == ("scored", "olga", "released by an organiser")
    audit = session.scalars(select(models.AuditEvent)).all()[-1]
    assert (audit.action, audit.subject) == ("release_submission", f"submission {second}")
    with pytest.raises(TransitionError, match="nothing of it is withheld"):
        release_submission(session, second, account=organiser)


def test_a_withheld_file_that_is_withdrawn_stays_untold(session: Session, booth: Desk, author: Identity) -> None:
    path = write_random(booth, n_settings=1)
    submit(booth, author, path)
    near = booth.config.data_dir / "near.csv"
    lines = path.read_text().splitlines()
    near.write_text("\n".join([lines[0], f"{lines[1].rpartition(',')[0]},9999999", *lines[2:]]))
    second = submit(booth, author, near)
    submissions.withdraw_submission(session, second, account=author)
    with pytest.raises((WithheldScoreError, NotScoredError)):
        get_score(session, second, account=author)
    assert booth.submit(author, near, snapshot="secret") == second
    assert submissions.get_submission(session, second, account=author).state == SubmissionState.WITHDRAWN


def test_withdrawn_files_and_other_strategies_count_as_told(session: Session, booth: Desk, author: Identity) -> None:
    path = write_random(booth, n_settings=1, strategy=S.DYNAMIC_ROUTING)
    first = submit(booth, author, path, strategy=S.DYNAMIC_ROUTING)
    submissions.withdraw_submission(session, first, account=author)
    lines = path.read_text().splitlines()
    caps = [lines[0], *(f"{line.rpartition(',')[0]},{9999999 * int(line.rpartition(',')[2])}" for line in lines[1:])]
    flipped = int(lines[1].rpartition(",")[2]) == 0
    caps[1] = f"{lines[1].rpartition(',')[0]},{9999999 if flipped else 0}"
    near = booth.config.data_dir / "caps.csv"
    near.write_text("\n".join(caps))
    second = submit(booth, author, near)
    assert submissions.get_submission(session, second, account=author).state == SubmissionState.WITHHELD


def test_a_hidden_split_takes_32_settings(session: Session, booth: Desk, author: Identity) -> None:
    many = submit(booth, author, write_random(booth, n_settings=33))
    details = submissions.get_submission(session, many, account=author)
    assert details.state == SubmissionState.REJECTED
    assert {problem["code"] for problem in details.problems} == {"too_many_settings"}
    few = submit(booth, author, write_random(booth, n_settings=32))
    assert submissions.get_submission(session, few, account=author).state == SubmissionState.SCORED


# Who may read the exact figures: what computes and stores them, and what passes them through the release policy.
EXACT = {"Score", "BoardScore", "BoardFrontier", "CellFrontier", "BoardInterval", "SnapshotFigure"}
READERS = {
    "services/release.py",
    "services/scoring.py",
    "services/frontiers.py",
    "services/intervals.py",
    "services/interval_parts.py",
    "services/bootstrap.py",
    "services/ranks.py",
    "services/leaderboard.py",
    "services/board_lines.py",
    "services/receipts.py",
    "services/demo.py",
    "services/demo_snapshots.py",
    "services/allowance.py",
    "services/differencing.py",
    "services/comparison.py",
    "services/operating_rows.py",
    "services/analyses.py",
    "services/board_versions.py",
    "services/score_records.py",
    "services/rescoring.py",
    # Only where the labels are open.
    "web/analyses_page.py",
}


def test_nobody_else_reads_exact_figures() -> None:
    """A leak takes an act: a module that reads the tables of exact figures has to be put on the list by hand."""
    root = Path(app.__file__).parent
    found = set()
    for path in (*root.glob("api/*.py"), *root.glob("web/*.py"), *root.glob("services/*.py"), *root.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            is_model = (
                isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "models"
            )
            if is_model and node.attr in EXACT:
                found.add(path.relative_to(root).as_posix())
    assert found <= READERS


# Where labels, or figures that rest on them, come from: tables, readers, what is computed from them.
LABEL_SOURCES = {
    "Trajectory",
    "read_trajectories",
    "load_measurements",
    "export_snapshot",
    "get_references",
    "load_split_replicates",
    "find_part",
    "curve_accuracy",
    "full_correct",
    "select_standing",
    "replicates",
}
# What computes and stores, or hands on to this server's own programs: nothing leaves the server by these.
KEEPERS = {
    "services/analyses.py": {"AnalysisNeeds", "_analyse_intervals", "_list_references", "_store"},
    "services/assembling.py": {"assemble_runs"},
    "services/bootstrap.py": {"run_slice", "_list_outdated"},
    "services/comparison.py": {"compare_submissions", "_load_replicates", "_compare_boards", "_compare_pair"},
    "services/demo.py": {"run_demo", "_show_shipped"},
    "services/frontiers.py": {"get_references", "prepare_split", "_describe_cell", "_full_accuracy"},
    "services/intervals.py": {"_Needs", "_collect", "_resample", "_read_stops"},
    "services/measurements.py": {"_load_from_database"},
    "services/ranks.py": {"_load_replicates"},
    "services/rescoring_jobs.py": {"_compute"},
    "services/scoring.py": {"_run", "check_upload"},
    "services/snapshot_admin.py": {"set_hidden_splits"},
    "services/snapshots.py": {"export_snapshot", "freeze_snapshot"},
    "services/trajectories.py": {"_read_curves"},
    "services/explorer.py": {"_show_curves"},
}


def list_functions_by_source(root: Path) -> dict[tuple[str, str], set[str]]:
    """Return the names that every function and class names that names a source of labels."""
    found = {}
    for path in (*root.glob("api/*.py"), *root.glob("web/*.py"), *root.glob("services/*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if not isinstance(node, ast.FunctionDef | ast.ClassDef):
                continue
            named = {one.attr for one in ast.walk(node) if isinstance(one, ast.Attribute)}
            named |= {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
            if named & LABEL_SOURCES:
                found[path.relative_to(root).as_posix(), node.name] = named
    return found


def test_whatever_reads_labels_passes_the_release_policy() -> None:
    """Operating rows, analyses and the explorer once decided by themselves; a new reader has to ask, or be listed."""
    root = Path(app.__file__).parent
    policy = {name for name in vars(release) if getattr(vars(release)[name], "__module__", "") == release.__name__}
    policy.add("make_public")
    readers = list_functions_by_source(root)
    assert len(readers) > 25
    for (path, function), named in readers.items():
        if path != "services/release.py" and function not in KEEPERS.get(path, ()):
            assert named & policy, f"{path}: {function} reads labels and does not ask app/services/release.py"
    for path, functions in KEEPERS.items():
        assert functions <= {function for of_path, function in readers if of_path == path}, path


def test_one_module_decides_whether_labels_are_hidden() -> None:
    root = Path(app.__file__).parent
    deciding = {
        path.relative_to(root).as_posix()
        for path in root.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if (isinstance(node, ast.Name) and node.id == "labels_hidden")
        or (isinstance(node, ast.Attribute) and node.attr == "labels_hidden")
    }
    assert deciding == {"services/measurements.py", "services/release.py"}
