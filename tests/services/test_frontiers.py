"""Frontiers and figures are computed once from a frozen snapshot, stored exactly, and reused."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path
from threading import Barrier

import numpy as np
import pytest
from sqlalchemy import event, func, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session, sessionmaker

from app.db import models
from app.db.session import make_engine, session_factory
from app.evaluator.curves import find_beta_match, find_beta_sat, max_accuracy, mean_accuracy_at, mean_area
from app.evaluator.fast_frontier import check_frontier
from app.evaluator.frontier import solve_frontier
from app.evaluator.overthinking import summarise_overthinking
from app.evaluator.reference import CellReference, build_uninformed
from app.evaluator.strategies import Strategy
from app.files.documents import dump_json, overthinking_document
from app.files.snapshot import LabelsHiddenError, Snapshot, load_measurements, make_public, read_snapshot
from app.services import measurements as service_measurements
from app.services import snapshots

MakeSnapshot = Callable[..., Snapshot]


def count_cells(session: Session) -> int:
    return session.scalar(select(func.count()).select_from(models.CellFrontier)) or 0


def assert_same(found: tuple[CellReference, ...], expected: tuple[CellReference, ...]) -> None:
    assert len(found) == len(expected) > 0
    for one, other in zip(found, expected, strict=True):
        assert (one.frontier.model, one.frontier.benchmark) == (other.frontier.model, other.frontier.benchmark)
        assert one.frontier.strategy is other.frontier.strategy
        assert one.frontier.full_correct == other.frontier.full_correct
        for curve, same in ((one.frontier.curve, other.frontier.curve), (one.uninformed, other.uninformed)):
            assert curve.cost.tolist() == same.cost.tolist()
            assert curve.correct.tolist() == same.correct.tolist()
            assert curve.area() == same.area()
            assert (curve.total_thinking_tokens, curve.total_probes) == (same.total_thinking_tokens, same.total_probes)


@pytest.mark.parametrize("strategy", list(Strategy))
def test_references_are_exact_and_stored(
    session: Session, frozen: models.Snapshot, board_snapshot: Snapshot, tmp_path: Path, strategy: Strategy
) -> None:
    cells = load_measurements(board_snapshot, "test").cells
    expected = tuple(CellReference(solve_frontier(cell, strategy), build_uninformed(cell, strategy)) for cell in cells)
    computed = snapshots.get_references(session, frozen, split="test", strategy=strategy, data_dir=tmp_path)
    assert_same(computed, expected)
    assert count_cells(session) == 4
    stored = snapshots.get_references(session, frozen, split="test", strategy=strategy, data_dir=tmp_path)
    assert stored is not computed
    assert_same(stored, expected)
    assert count_cells(session) == 4
    # From now on the process knows them.
    assert snapshots.get_references(session, frozen, split="test", strategy=strategy, data_dir=tmp_path) is stored


@pytest.mark.parametrize("strategy", list(Strategy))
def test_certificates_are_stored_with_the_frontiers(
    session: Session, frozen: models.Snapshot, board_snapshot: Snapshot, tmp_path: Path, strategy: Strategy
) -> None:
    cells = load_measurements(board_snapshot, "test").cells
    for source in ("computed", "stored"):
        references = snapshots.get_references(session, frozen, split="test", strategy=strategy, data_dir=tmp_path)
        for cell, reference in zip(cells, references, strict=True):
            assert check_frontier(cell, reference.frontier) == (), source
    row = session.scalars(select(models.CellFrontier).limit(1)).one()
    assert row.certificate_band is not None
    assert len(row.certificate_band) + 1 == len(row.certificate_cost or ())


def test_frontiers_of_an_earlier_version_have_no_certificate(
    session: Session, frozen: models.Snapshot, tmp_path: Path
) -> None:
    strategy = Strategy.FIXED_BUDGET
    snapshots.get_references(session, frozen, split="test", strategy=strategy, data_dir=tmp_path)
    columns = ("certificate_cost", "certificate_correct", "certificate_band", "certificate_needed")
    session.execute(update(models.CellFrontier).values(dict.fromkeys(columns)))
    stored = snapshots.get_references(session, frozen, split="test", strategy=strategy, data_dir=tmp_path)
    assert [reference.frontier.certificate for reference in stored] == [None] * 4


@pytest.mark.parametrize(
    ("column", "values", "check"),
    [
        ("certificate_cost", None, "whole_certificate"),
        ("certificate_cost", [0], "certificate_length"),
        ("certificate_band", [math.nan] * 2, "certificate_bands"),
        ("certificate_needed", [-1.0] * 2, "certificate_bands"),
    ],
)
def test_certificates_that_cannot_be_are_refused(
    session: Session, frozen: models.Snapshot, tmp_path: Path, column: str, values: list[float] | None, check: str
) -> None:
    strategy = Strategy.FIXED_BUDGET
    snapshots.get_references(session, frozen, split="test", strategy=strategy, data_dir=tmp_path)
    row = session.scalars(select(models.CellFrontier).limit(1)).one()
    bands = [1.0] * 2
    changed = {
        "certificate_cost": [0, 1, 2],
        "certificate_correct": [0, 1, 2],
        "certificate_band": bands,
        "certificate_needed": bands,
    }
    of_row = update(models.CellFrontier).where(models.CellFrontier.id == row.id)
    session.execute(of_row.values(changed))
    with pytest.raises(IntegrityError, match=f"ck_cell_frontiers_{check}"):
        session.execute(of_row.values({**changed, column: values}))


def test_boards_are_those_of_the_exact_curves(
    session: Session, frozen: models.Snapshot, board_snapshot: Snapshot, tmp_path: Path
) -> None:
    references = snapshots.get_references(
        session, frozen, split="all", strategy=Strategy.FIXED_BUDGET, data_dir=tmp_path
    )
    boards = snapshots.list_board_frontiers(session, frozen, split="all", strategy=Strategy.FIXED_BUDGET)
    names = [(board.model, board.benchmark) for board in boards]
    assert names[0] == (None, None)
    assert sorted(names, key=str) == sorted(
        ((m, b) for m in (None, "alpha", "beta") for b in (None, "math", "logic")), key=str
    )
    for board in boards:
        chosen = [
            r
            for r in references
            if board.model in (None, r.frontier.model) and board.benchmark in (None, r.frontier.benchmark)
        ]
        curves = [r.frontier.curve for r in chosen]
        shares = [Fraction(r.frontier.full_correct, r.frontier.total_probes) for r in chosen]
        full = sum(shares, Fraction(0)) / len(shares)
        match = find_beta_match(curves, full)
        assert board.n_cells == len(chosen)
        assert board.min_questions == (7 if board.benchmark != "math" else 28)
        assert board.full_accuracy == float(full)
        assert board.beta_match == (None if match is None else float(match))
        assert board.max_accuracy == float(max_accuracy(curves))
        assert board.beta_sat == float(find_beta_sat(curves))
        assert board.area == float(mean_area(curves))
        assert board.uninformed_area == float(mean_area([r.uninformed for r in chosen]))
        assert len(board.grid_accuracy) == len(board.uninformed_grid) == 1001
        for idx in (0, 1, 137, 500, 1000):
            expected = float(mean_accuracy_at(curves, Fraction(idx, 1000)))
            assert board.grid_accuracy[idx] == pytest.approx(expected, abs=1e-12)


def test_hierarchy_holds_on_every_board(session: Session, frozen: models.Snapshot, tmp_path: Path) -> None:
    for strategy in Strategy:
        snapshots.get_references(session, frozen, split="test", strategy=strategy, data_dir=tmp_path)
    boards = snapshots.list_board_frontiers(session, frozen, split="test")
    grids = {(board.strategy, board.model, board.benchmark): np.array(board.grid_accuracy) for board in boards}
    assert len(grids) == 27
    for name in {(board.model, board.benchmark) for board in boards}:
        routing, budget, early = (grids[(strategy.value, *name)] for strategy in Strategy)
        assert (routing <= budget + 1e-12).all()
        assert (budget <= early + 1e-12).all()


def test_figures_of_the_real_snapshot(session: Session, real_snapshot: Path, tmp_path: Path) -> None:
    """The published figures of the 14B and the 8B model."""
    snapshot = read_snapshot(real_snapshot)
    snapshots.import_snapshot(session, snapshot)
    stored = snapshots.freeze_snapshot(session, snapshot.manifest.name)
    found = {}
    for strategy in Strategy:
        references = snapshots.get_references(session, stored, split="all", strategy=strategy, data_dir=tmp_path)
        assert [len(r.frontier.cost) for r in references] == {
            Strategy.DYNAMIC_ROUTING: [2, 6],
            Strategy.FIXED_BUDGET: [203, 260],
            Strategy.DYNAMIC_EARLY_EXIT: [360, 416],
        }[strategy]
        for board in snapshots.list_board_frontiers(session, stored, split="all", strategy=strategy):
            if board.model is not None and board.benchmark is None:
                found[strategy, board.model[-3:]] = (board.max_accuracy, board.beta_sat, board.area)
    assert {key: tuple(round(value, 4) for value in values) for key, values in found.items()} == {
        (Strategy.DYNAMIC_ROUTING, "14B"): (0.751, 0.1624, 0.7482),
        (Strategy.FIXED_BUDGET, "14B"): (0.8835, 0.2845, 0.8771),
        (Strategy.DYNAMIC_EARLY_EXIT, "14B"): (0.942, 0.2860, 0.9296),
        (Strategy.DYNAMIC_ROUTING, "-8B"): (0.663, 0.2811, 0.648),
        (Strategy.FIXED_BUDGET, "-8B"): (0.7435, 0.5202, 0.7259),
        (Strategy.DYNAMIC_EARLY_EXIT, "-8B"): (0.8305, 0.4403, 0.8074),
    }
    document = snapshots.get_overthinking(session, stored, split="all", data_dir=tmp_path)
    shown = {cell["model"][-3:]: cell for cell in document["cells"]}
    assert round(shown["14B"]["overthinking_ratio"], 4) == 0.7034
    assert round(shown["-8B"]["accuracy_degradation"], 4) == 0.3305


def test_overthinking_is_stored_to_the_digit(
    session: Session, frozen: models.Snapshot, board_snapshot: Snapshot, tmp_path: Path
) -> None:
    measurements = load_measurements(board_snapshot, "train")
    expected = overthinking_document(summarise_overthinking(measurements), measurements)
    assert snapshots.get_overthinking(session, frozen, split="train", data_dir=tmp_path) == expected
    session.expire_all()
    stored = snapshots.get_overthinking(session, frozen, split="train", data_dir=tmp_path)
    assert dump_json(stored) == dump_json(expected)
    assert session.scalar(select(func.count()).select_from(models.SnapshotFigure)) == 1


def test_only_frozen_snapshots_have_figures(session: Session, board_snapshot: Snapshot, tmp_path: Path) -> None:
    stored = snapshots.import_snapshot(session, board_snapshot)
    with pytest.raises(snapshots.SnapshotNotFrozenError):
        snapshots.get_overthinking(session, stored, split="test", data_dir=tmp_path)
    with pytest.raises(snapshots.SnapshotNotFrozenError):
        snapshots.get_references(session, stored, split="test", strategy=Strategy.FIXED_BUDGET, data_dir=tmp_path)


@pytest.mark.parametrize("split", ["test", "all"])
def test_labels_that_are_not_here_have_no_figures(
    session: Session, make_board_snapshot: MakeSnapshot, tmp_path: Path, split: str
) -> None:
    snapshots.import_snapshot(session, make_public(make_board_snapshot(hidden_splits=["test"])))
    stored = snapshots.freeze_snapshot(session, "small")
    with pytest.raises(LabelsHiddenError):
        snapshots.get_overthinking(session, stored, split=split, data_dir=tmp_path)
    with pytest.raises(LabelsHiddenError):
        snapshots.get_references(session, stored, split=split, strategy=Strategy.FIXED_BUDGET, data_dir=tmp_path)
    assert snapshots.list_board_frontiers(session, stored, split=split) == []
    assert snapshots.get_references(session, stored, split="train", strategy=Strategy.FIXED_BUDGET, data_dir=tmp_path)


def test_prepare_split(
    session: Session, sessions: sessionmaker[Session], frozen: models.Snapshot, tmp_path: Path
) -> None:
    for _ in range(2):
        snapshots.prepare_split(sessions, frozen.id, split="validation", data_dir=tmp_path)
        assert len(snapshots.list_board_frontiers(session, frozen, split="validation")) == 27
        assert count_cells(session) == 12
    assert snapshots.list_board_frontiers(session, frozen, split="test") == []


def test_two_who_ask_at_once_compute_once(committed_database: str, board_snapshot: Snapshot, tmp_path: Path) -> None:
    """Both find nothing; the second waits for the first and reads what that stored."""
    engine = make_engine(committed_database)
    sessions = session_factory(engine)
    inserts: list[str] = []
    event.listen(engine, "before_cursor_execute", lambda *args: inserts.append(args[2]))
    barrier = Barrier(2)

    def ask() -> tuple[CellReference, ...]:
        with sessions.begin() as session:
            stored = snapshots.get_snapshot(session, "small")
            barrier.wait(timeout=30)
            return snapshots.get_references(
                session, stored, split="test", strategy=Strategy.DYNAMIC_EARLY_EXIT, data_dir=tmp_path
            )

    try:
        with sessions.begin() as session:
            snapshots.import_snapshot(session, board_snapshot)
            snapshots.freeze_snapshot(session, "small")
        with ThreadPoolExecutor(2) as pool:
            first, second = [future.result() for future in [pool.submit(ask), pool.submit(ask)]]
        assert_same(first, second)
        assert sum("INSERT INTO board_frontiers" in statement for statement in inserts) == 1
        with sessions() as session:
            assert count_cells(session) == 4
    finally:
        engine.dispose()


@pytest.fixture
def forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process that has just started: nothing is kept in memory."""
    monkeypatch.setattr(service_measurements, "_memory", OrderedDict())
    monkeypatch.setattr(service_measurements, "SNAPSHOTS_IN_MEMORY", 0)


def test_measurements_are_those_of_the_files(
    session: Session, frozen: models.Snapshot, board_snapshot: Snapshot, tmp_path: Path, forgetful: None
) -> None:
    expected = load_measurements(board_snapshot)
    for source in ("database", "disk"):
        found = snapshots.load_measurements(session, frozen, data_dir=tmp_path)
        assert [path.suffix for path in tmp_path.rglob("*") if path.is_file()] == [".npz"], source
        for name in service_measurements.WHOLE_FIELDS:
            assert getattr(found, name) == getattr(expected, name)
        for one, other in zip(found.cells, expected.cells, strict=True):
            assert (one.question_ids, one.question_splits) == (other.question_ids, other.question_splits)
            for name in service_measurements.CELL_ARRAYS:
                assert getattr(one, name).dtype == getattr(other, name).dtype
                assert getattr(one, name).tolist() == getattr(other, name).tolist()


@pytest.mark.parametrize("damage", [lambda data: data[: len(data) // 2], lambda data: b"", lambda data: b"x" * 400])
def test_damaged_cache_is_made_anew(
    session: Session,
    frozen: models.Snapshot,
    tmp_path: Path,
    forgetful: None,
    damage: Callable[[bytes], bytes],
) -> None:
    """Cut short by a full disk or a power cut."""
    expected = snapshots.load_measurements(session, frozen, data_dir=tmp_path)
    (path,) = tmp_path.rglob("*.npz")
    whole = path.read_bytes()
    path.write_bytes(damage(whole))
    found = snapshots.load_measurements(session, frozen, data_dir=tmp_path)
    assert found.cells[0].retained_tokens.tolist() == expected.cells[0].retained_tokens.tolist()
    assert path.stat().st_size == len(whole)


def test_unwritable_cache_is_no_failure(
    session: Session, frozen: models.Snapshot, tmp_path: Path, forgetful: None
) -> None:
    (tmp_path / "cache").write_text("a file where the folder should be")
    assert snapshots.load_measurements(session, frozen, data_dir=tmp_path).cells


def test_measurements_in_memory_are_shared(session: Session, frozen: models.Snapshot, tmp_path: Path) -> None:
    first = snapshots.load_measurements(session, frozen, data_dir=tmp_path)
    assert snapshots.load_measurements(session, frozen, data_dir=tmp_path) is first


def test_measurements_that_may_change_are_not_kept(session: Session, board_snapshot: Snapshot, tmp_path: Path) -> None:
    stored = snapshots.import_snapshot(session, board_snapshot)
    first = snapshots.load_measurements(session, stored, data_dir=tmp_path)
    assert snapshots.load_measurements(session, stored, data_dir=tmp_path) is not first
    assert list(tmp_path.rglob("*")) == []
