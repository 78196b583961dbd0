"""The board: which submission stands for a method, in which order, with which rank; the same digits everywhere."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from dataclasses import fields, replace
from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import event
from sqlalchemy.orm import Session

from app.db import models
from app.evaluator.scorers import current_scorer_version
from app.evaluator.strategies import Strategy
from app.files.csv_fields import guard_formula
from app.services import leaderboard, submissions
from app.services.accounts import Identity, ensure_account
from app.services.leaderboard import BoardRow, Leaderboard, UnknownBoardError, assign_ranks, format_csv
from app.services.snapshots import UnknownSnapshotError

Caps = Callable[..., bytes]

ROW = BoardRow(
    rank=None,
    last_rank=None,
    rank_reason=None,
    submission_id="abcdefghijkl",
    method="m",
    version=None,
    team="t",
    is_anonymous=False,
    is_control=False,
    is_baseline=False,
    is_verified=False,
    flag_reason=None,
    code_url=None,
    strategy=Strategy.FIXED_BUDGET,
    n_settings=1,
    realised_potential=0.5,
    realised_potential_low=None,
    realised_potential_high=None,
    area=0.5,
    uninformed_area=0.4,
    oracle_area=0.6,
    gap=0.1,
    max_accuracy=0.7,
    beta_match=None,
    tokens_saved=None,
    accuracy_25=0.1,
    accuracy_50=0.2,
    accuracy_75=0.3,
    best_e3=None,
    reason=None,
    scorer_version="1",
    actions_sha256="0" * 64,
    published_at=datetime(2026, 7, 21, 9, 30, tzinfo=UTC),
)


def get_board(session: Session, **changes: Any) -> Leaderboard:
    chosen = {
        "snapshot": "small",
        "split": "test",
        "strategy": Strategy.FIXED_BUDGET,
        "model": None,
        "benchmark": None,
        **changes,
    }
    return leaderboard.get_leaderboard(session, **chosen)


def publish(session: Session, desk: Any, account: Identity, content: Any, **target: Any) -> str:
    submission_id: str = desk.submit(account, content, **target)
    desk.score(submission_id)
    submissions.publish_submission(session, submission_id, account=account)
    session.commit()
    return submission_id


def test_ranks_count_the_better_methods_and_ties_share() -> None:
    potentials = [0.9, 0.5, 0.5, 0.1]
    rows = [replace(ROW, realised_potential=p) for p in potentials]
    ranked = assign_ranks(rows, most_questions=20)
    assert [(row.rank, row.last_rank) for row in ranked] == [(1, 1), (2, 3), (2, 3), (4, 4)]


def test_ranks_are_by_full_precision() -> None:
    """Rounding for show once changed the order (codabench#1171)."""
    rows = [replace(ROW, realised_potential=0.1 + 0.2), replace(ROW, realised_potential=0.3)]
    assert [row.rank for row in assign_ranks(rows, most_questions=20)] == [1, 2]


def test_controls_and_the_undefined_have_no_rank_and_take_none() -> None:
    rows = [
        replace(ROW, is_control=True, realised_potential=1.0),
        replace(ROW, realised_potential=0.5),
        replace(ROW, is_control=True, realised_potential=0.4),
        replace(ROW, realised_potential=0.3),
        replace(ROW, realised_potential=None, reason="no_potential"),
    ]
    ranked = assign_ranks(rows, most_questions=20)
    assert [row.rank for row in ranked] == [None, 1, None, 2, None]
    assert [row.rank_reason for row in ranked] == ["control", None, "control", None, "no_potential"]


def test_no_rank_where_every_cell_is_small() -> None:
    ranked = assign_ranks([ROW, replace(ROW, is_control=True)], most_questions=19)
    assert [row.rank_reason for row in ranked] == ["too_few_questions", "control"]


def test_boards_of_small_cells_have_no_rank(session: Session, desk: Any, author: Identity) -> None:
    """`math` has 21 questions in the test split, `logic` 3; the whole board has a cell that is large enough."""
    publish(session, desk, author, desk.write("random"))
    assert get_board(session).rows[0].rank == 1
    assert get_board(session, benchmark="math").rows[0].rank == 1
    for board in (get_board(session, benchmark="logic"), get_board(session, model="alpha", benchmark="logic")):
        assert (board.rows[0].rank, board.rows[0].rank_reason) == (None, "too_few_questions")


def test_only_published_submissions_stand_on_the_board(
    session: Session, desk: Any, author: Identity, make_caps: Caps
) -> None:
    """A second rank query once showed failed entries too (kernelbot PR#493)."""
    desk.submit(author, make_caps(1), method="received")
    scored = desk.submit(author, make_caps(200), method="scored")
    desk.score(scored)
    withdrawn = publish(session, desk, author, make_caps(300), method="withdrawn")
    submissions.withdraw_submission(session, withdrawn, account=author)
    published = publish(session, desk, author, make_caps(400), method="published")
    assert [row.submission_id for row in get_board(session).rows] == [published]
    assert get_board(session, strategy=Strategy.DYNAMIC_ROUTING).rows == ()
    assert get_board(session, split="validation").rows == ()


def test_a_method_has_one_row_its_latest_or_the_one_marked_current(
    session: Session, desk: Any, author: Identity, make_caps: Caps
) -> None:
    first = publish(session, desk, author, make_caps(200))
    second = publish(session, desk, author, make_caps(400))
    session.get_one(models.Submission, first).published_at = datetime(2020, 1, 1, tzinfo=UTC)
    session.flush()
    assert [row.submission_id for row in get_board(session).rows] == [second]
    session.get_one(models.Submission, first).is_current = True
    session.flush()
    assert [row.submission_id for row in get_board(session).rows] == [first]
    submissions.withdraw_submission(session, first, account=author)
    assert [row.submission_id for row in get_board(session).rows] == [second]


def test_the_oracle_leads_and_constants_trail(session: Session, desk: Any, author: Identity) -> None:
    controls = ensure_account(session, name="controls", team="controls", is_control=True)
    publish(session, desk, controls, desk.write("oracle"), method="oracle")
    publish(session, desk, controls, desk.write("uninformed"), method="constants")
    publish(session, desk, author, desk.write("random"), method="mine")
    rows = get_board(session).rows
    assert rows[0].method == "oracle"
    assert [row.rank for row in rows if not row.is_control] == [1]
    potentials = [row.realised_potential for row in rows if row.realised_potential is not None]
    assert potentials == sorted(potentials, reverse=True)
    assert 0.99 <= potentials[0] <= 1
    constants = next(row for row in rows if row.method == "constants")
    assert constants.realised_potential is not None
    assert constants.realised_potential <= 0


def test_an_undefined_potential_comes_last(session: Session, desk: Any, author: Identity, make_caps: Caps) -> None:
    """n/a was once ranked first (codabench#1284)."""
    publish(session, desk, author, make_caps(200), method="defined")
    undefined = desk.submit(author, make_caps(5000), method="undefined")
    submission = session.get_one(models.Submission, undefined)
    submission.scored_at = submission.published_at = submission.created_at
    submission.state = "published"
    score = models.Score(submission_id=undefined, scorer_version=current_scorer_version(), document={})
    session.add(score)
    session.flush()
    figures = {f.name: getattr(ROW, f.name) for f in fields(ROW) if f.name in models.BoardScore.__table__.columns}
    figures |= {"realised_potential": None, "reason": "no_potential", "area": 1.0, "oracle_area": 1.0}
    session.add(
        models.BoardScore(score_id=score.id, n_cells=4, min_questions=3, curve_beta=[0], curve_accuracy=[1], **figures)
    )
    session.flush()
    assert [(row.method, row.rank, row.rank_reason) for row in get_board(session).rows] == [
        ("defined", 1, None),
        ("undefined", None, "no_potential"),
    ]


def test_csv_has_the_digits_of_the_board(session: Session, desk: Any, author: Identity) -> None:
    publish(session, desk, author, desk.write("random"), method="=1+2")
    board = get_board(session)
    (line,) = csv.DictReader(io.StringIO(format_csv(board)))
    (row,) = board.rows
    assert line["method"] == "'=1+2"
    assert line["rank"] == "1"
    assert line["rank_reason"] == ""
    for name in ("realised_potential", "area", "oracle_area", "uninformed_area", "gap", "accuracy_50", "max_accuracy"):
        assert float(line[name]) == getattr(row, name), name
        assert line[name] == repr(getattr(row, name)), name
    assert (line["model"], line["benchmark"], line["snapshot"], line["kind"]) == ("", "", "small", "synthetic")


@pytest.mark.parametrize("text", ["=1", "+1", "-1", "@x", "\t=1", "\r=1"])
def test_text_that_a_spreadsheet_would_run_is_guarded(text: str) -> None:
    assert guard_formula(text) == f"'{text}"


def test_negative_numbers_are_not_text() -> None:
    board = Leaderboard("s", "0" * 64, "measured", "test", Strategy.FIXED_BUDGET, None, None, "1", True, ())
    (line,) = csv.DictReader(io.StringIO(format_csv(replace(board, rows=(replace(ROW, realised_potential=-0.25),)))))
    assert line["realised_potential"] == "-0.25"


def test_curves_belong_to_the_board_s_rows(session: Session, desk: Any, author: Identity) -> None:
    submission_id = publish(session, desk, author, desk.write("random"))
    board = get_board(session, model="alpha")
    curves = leaderboard.list_board_curves(session, board)
    assert list(curves) == [submission_id]
    curve = curves[submission_id]
    assert curve.beta[0] == 0
    assert curve.accuracy[-1] == board.rows[0].max_accuracy


@pytest.mark.parametrize(
    "unknown", [{"split": "dev"}, {"model": "gamma"}, {"benchmark": "chess"}, {"model": "alpha", "benchmark": ""}]
)
def test_boards_that_do_not_exist(session: Session, desk: Any, unknown: dict[str, str]) -> None:
    with pytest.raises(UnknownBoardError):
        get_board(session, **unknown)
    with pytest.raises(UnknownSnapshotError):
        get_board(session, snapshot="nowhere")


def test_the_number_of_queries_does_not_grow_with_the_rows(
    session: Session, desk: Any, author: Identity, make_caps: Caps
) -> None:
    def count() -> int:
        statements: list[str] = []

        def note(_: Any, __: Any, statement: str, *___: Any) -> None:
            statements.append(statement)

        session.expire_all()
        connection = session.connection()
        event.listen(connection, "before_cursor_execute", note)
        board = get_board(session)
        leaderboard.list_board_curves(session, board)
        event.remove(connection, "before_cursor_execute", note)
        return len(statements)

    publish(session, desk, author, make_caps(100), method="one")
    one = count()
    for cap in range(3):
        publish(session, desk, author, make_caps(200 + cap), method=f"more {cap}")
    assert count() == one
    assert one <= 7
