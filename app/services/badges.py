"""What the badge of a submission says: its figure and rank, from the same board that everybody reads."""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.db import models
from app.evaluator.strategies import Strategy
from app.plots.badge import Badge
from app.plots.captions import STRATEGY_NOUNS, format_percent
from app.plots.palette import INK, MUTED, STRATEGY_TEXT_TONES
from app.services.leaderboard import BoardRow, get_leaderboard
from app.services.submissions import UnknownSubmissionError

LABEL = "OTBoard"
SHOWN_STATES = ("published", "withdrawn")


def get_badge(session: Session, submission_id: str) -> Badge:
    """Return the badge of a submission that is, or was, published; the same for every reader.

    One that has given way to a later one of its method says so, and so do a flagged and a withdrawn one.

    Raises
    ------
    UnknownSubmissionError : never published.
    """
    submission, snapshot, method = models.Submission, models.Snapshot, models.Method
    query = (
        select(submission.split, submission.strategy, submission.state, snapshot.name, method.name.label("method"))
        .join(snapshot, snapshot.id == submission.snapshot_id)
        .join(method, method.id == submission.method_id)
        .where(
            submission.id == submission_id,
            submission.state.in_(SHOWN_STATES),
            submission.published_at.is_not(None),
        )
    )
    found = session.execute(query).one_or_none()
    if found is None:
        raise UnknownSubmissionError(f"There is no submission {submission_id!r}, or it is not published.")
    place = f"{found.method} on {found.name}, {'all splits' if found.split == 'all' else f'{found.split} split'}"
    if found.state == "withdrawn":
        return Badge(LABEL, "withdrawn", MUTED.light, f"{place}: withdrawn")
    strategy = Strategy(found.strategy)
    board = get_leaderboard(
        session, snapshot=found.name, split=found.split, strategy=strategy, model=None, benchmark=None
    )
    row = next((row for row in board.rows if row.submission_id == submission_id), None)
    message = "replaced by a later one" if row is None else describe_row(row)
    ground = MUTED.light if row is None or row.rank is None else STRATEGY_TEXT_TONES[strategy].light
    synthetic = " Synthetic measurements." if board.kind == "synthetic" else ""
    return Badge(
        LABEL, message, ground if row is None or not row.is_control else INK.light, f"{place}: {message}.{synthetic}"
    )


def describe_row(row: BoardRow) -> str:
    """Return a row's figure and rank in a few words."""
    if row.rank_reason == "flagged":
        return "flagged by an organiser"
    noun = STRATEGY_NOUNS[row.strategy]
    if row.realised_potential is None:
        return f"{noun}: nothing to realise"
    told = f"{format_percent(row.realised_potential)} of {noun} realised"
    if row.rank is None:
        return f"{told}, {'a control' if row.rank_reason == 'control' else 'no rank'}"
    is_shared = row.last_rank is not None and row.last_rank != row.rank
    return f"{told}, rank {row.rank}{f'–{row.last_rank}' if is_shared else ''}"
