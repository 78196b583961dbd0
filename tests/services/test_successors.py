"""A snapshot that takes the place of another one: boards and lists of the old one say so."""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy.orm import Session

from app.db import models
from app.evaluator.strategies import Strategy
from app.files.snapshot import Snapshot, build_snapshot, make_public
from app.services import snapshots
from app.services.leaderboard import format_csv, get_leaderboard
from app.services.snapshot_summaries import get_summary, list_summaries
from app.services.successors import find_successor, list_successors

MakeSnapshot = Callable[..., Snapshot]


def add(session: Session, snapshot: Snapshot) -> models.Snapshot:
    snapshots.import_snapshot(session, snapshot)
    return snapshots.freeze_snapshot(session, snapshot.manifest.name)


def name_old(*old: Snapshot) -> list[dict[str, str]]:
    return [{"name": one.manifest.name, "sha256": one.full_sha256} for one in old]


def test_a_snapshot_says_what_takes_its_place(session: Session, make_board_snapshot: MakeSnapshot) -> None:
    first = make_board_snapshot("first", seed=1)
    second = make_board_snapshot("second", seed=2, supersedes=name_old(first))
    old = add(session, first)
    assert find_successor(session, old) is None
    snapshots.import_snapshot(session, second)
    # What may still change has no say yet.
    assert find_successor(session, old) is None
    snapshots.freeze_snapshot(session, "second")
    assert find_successor(session, old) == "second"
    assert {item.name: item.superseded_by for item in list_summaries(session).items} == {
        "first": "second",
        "second": None,
    }
    assert get_summary(session, "first").superseded_by == "second"
    board = get_leaderboard(
        session, snapshot="first", split="test", strategy=Strategy.FIXED_BUDGET, model=None, benchmark=None
    )
    assert board.superseded_by == "second"
    assert "superseded_by" in format_csv(board).splitlines()[0].split(",")


def test_the_end_of_a_chain_takes_the_place(session: Session, make_board_snapshot: MakeSnapshot) -> None:
    first, other = make_board_snapshot("first", seed=1), make_board_snapshot("other", seed=5)
    second = make_board_snapshot("second", seed=2, supersedes=name_old(first, other))
    third = make_board_snapshot("third", seed=3, supersedes=name_old(second))
    for one in (first, other, second, third):
        add(session, one)
    assert set(list_successors(session).values()) == {"third"}
    assert len(list_successors(session)) == 3


def test_a_successor_may_stand_alone(session: Session, make_board_snapshot: MakeSnapshot) -> None:
    """The old snapshot may never have been on this server."""
    absent = make_board_snapshot("absent", seed=1)
    add(session, make_board_snapshot("new", seed=2, supersedes=name_old(absent)))
    assert list_successors(session) == {absent.sha256: "new"}


def test_a_public_export_is_superseded_as_the_full_snapshot_is(
    session: Session, make_board_snapshot: MakeSnapshot
) -> None:
    full = make_board_snapshot("first", seed=1, hidden_splits=["test"])
    export = make_public(full)
    assert export.sha256 != full.sha256
    snapshots.import_snapshot(session, export)
    add(session, make_board_snapshot("second", seed=2, supersedes=name_old(full)))
    assert get_summary(session, "first").superseded_by == "second"


def test_exports_that_claim_each_other_end_somewhere(session: Session, make_board_snapshot: MakeSnapshot) -> None:
    """The identity that a public export states is not proven, so two of them can name each other."""
    for name, own, other in (("one", "1" * 64, "2" * 64), ("two", "2" * 64, "1" * 64)):
        supersedes = [{"name": "x", "sha256": other}]
        export = make_public(make_board_snapshot(name, seed=1, hidden_splits=["test"], supersedes=supersedes))
        add(session, build_snapshot({**export.manifest.raw, "full_sha256": own}, export.questions, export.trajectories))
    assert list_successors(session).keys() == {"1" * 64, "2" * 64}
