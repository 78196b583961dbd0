"""Two to six submissions of one target side by side: figures, settings, and paired differences on every board."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import select
from sqlalchemy.orm import Session

from app.db import models
from app.errors import ContentError, Problem
from app.evaluator.centring import INTERVAL_VERSION, Interval
from app.evaluator.strategies import Strategy
from app.files.csv_fields import format_field
from app.services.accounts import Identity
from app.services.release import release_difference
from app.services.scoring import get_score
from app.services.submissions import SubmissionDetails, UnknownSubmissionError, get_submission

FEWEST, MOST = 2, 6
FIRST, SECOND, UNDECIDED = "first", "second", "undecided"

BoardNames = tuple[str | None, str | None]
Document = dict[str, Any]
FloatArray = NDArray[np.float64]


class InvalidComparisonError(ContentError):
    """Not two to six different submissions."""

    code = "invalid_comparison"
    title = "These submissions cannot be compared"


class DifferentTargetsError(ContentError):
    """The submissions are not of one snapshot, split and strategy."""

    code = "different_targets"
    title = "The submissions have different targets"


@dataclass(frozen=True)
class Difference:
    """The first submission's realised potential minus the second's on one board.

    `low` and `high` are the 95 % interval of the paired difference, None where there is none: then nothing is decided.
    `better` is `first` or `second` where the interval lies to one side of zero, else `undecided`.
    """

    model: str | None
    benchmark: str | None
    first: str
    second: str
    difference: float | None
    low: float | None
    high: float | None
    better: str


@dataclass(frozen=True)
class Wins:
    """On how many cells the first or the second is better by more than chance, and on how many merely ahead."""

    first: str
    second: str
    n_cells: int
    n_first_better: int
    n_second_better: int
    n_undecided: int
    n_first_ahead: int
    n_second_ahead: int


@dataclass(frozen=True)
class ComparedBoard:
    """Figures of one board as in the score documents, in the order of the submissions; None where one has none."""

    model: str | None
    benchmark: str | None
    figures: tuple[Document | None, ...]
    differences: tuple[Difference, ...]


@dataclass(frozen=True)
class Comparison:
    """Submissions of one target side by side; `settings` are those of their score documents."""

    snapshot: str
    snapshot_sha256: str
    kind: str
    split: str
    strategy: Strategy
    scorer_version: str
    submissions: tuple[SubmissionDetails, ...]
    boards: tuple[ComparedBoard, ...]
    wins: tuple[Wins, ...]
    settings: tuple[tuple[Document, ...], ...]


def compare_submissions(session: Session, submission_ids: Sequence[str], *, account: Identity | None) -> Comparison:
    """Return two to six submissions side by side, whatever of them the reader may see.

    Raises
    ------
    InvalidComparisonError : fewer than two, more than six, or one twice.
    UnknownSubmissionError : some do not exist or are not published; all are named.
    DifferentTargetsError : they are not of one snapshot, split and strategy.
    NotScoredError : one has no score.
    """
    _check_number(submission_ids)
    details = _find_all(session, submission_ids, account=account)
    _check_targets(details)
    scores = [get_score(session, one.id, account=account) for one in details]
    _check_versions(details, [score.scorer_version for score in scores])
    documents: list[Document] = [json.loads(score.text) for score in scores]
    replicates = _load_replicates(session, submission_ids, scorer_version=scores[0].scorer_version)
    boards = tuple(_compare_boards(submission_ids, documents, replicates))
    first = details[0]
    return Comparison(
        snapshot=first.snapshot,
        snapshot_sha256=first.snapshot_sha256,
        kind=first.kind,
        split=first.split,
        strategy=first.strategy,
        scorer_version=scores[0].scorer_version,
        submissions=details,
        boards=boards,
        wins=tuple(_count_wins(pair, boards) for pair in combinations(submission_ids, 2)),
        settings=tuple(tuple(document.get("settings", ())) for document in documents),
    )


DIFFERENCE_COLUMNS = tuple(field.name for field in fields(Difference))
TARGET_COLUMNS = ("snapshot", "snapshot_sha256", "kind", "split", "strategy", "scorer_version")


def format_differences(comparison: Comparison) -> str:
    """Return the paired differences as CSV: a row for each board and pair, with both realised potentials."""
    named = {one.id: one for one in comparison.submissions}
    ids = [one.id for one in comparison.submissions]
    target = [format_field(getattr(comparison, name)) for name in TARGET_COLUMNS]
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\r\n")
    added = ("first_method", "second_method", "first_realised_potential", "second_realised_potential")
    writer.writerow([*DIFFERENCE_COLUMNS, *added, *TARGET_COLUMNS])
    for board in comparison.boards:
        potentials = {
            key: None if figures is None else figures["realised_potential"]
            for key, figures in zip(ids, board.figures, strict=True)
        }
        for one in board.differences:
            names = (named[one.first].method, named[one.second].method, potentials[one.first], potentials[one.second])
            writer.writerow([*map(format_field, (*astuple(one), *names)), *target])
    return written.getvalue()


def _check_number(submission_ids: Sequence[str]) -> None:
    if not FEWEST <= len(submission_ids) <= MOST:
        n = len(submission_ids)
        raise InvalidComparisonError(
            f"Name two to six submissions, as in ?submissions=one,another; {n} {'was' if n == 1 else 'were'} named."
        )
    twice = sorted({one for one in submission_ids if submission_ids.count(one) > 1})
    if twice:
        raise InvalidComparisonError(f"Each submission may be named once; twice there is {', '.join(twice)}.")


def _find_all(
    session: Session, submission_ids: Sequence[str], *, account: Identity | None
) -> tuple[SubmissionDetails, ...]:
    found, unknown = [], []
    for submission_id in submission_ids:
        try:
            found.append(get_submission(session, submission_id, account=account))
        except UnknownSubmissionError:
            unknown.append(submission_id)
    if unknown:
        raise UnknownSubmissionError(f"There is no submission {', '.join(map(repr, unknown))}, or it is not published.")
    return tuple(found)


def _check_targets(details: Sequence[SubmissionDetails]) -> None:
    targets = [f"{one.snapshot}, {one.split}, {one.strategy}" for one in details]
    if len(set(targets)) == 1:
        return
    problems = [
        Problem(code="different_targets", message=f"{one.id} is of {target}.", unit=one.id)
        for one, target in zip(details, targets, strict=True)
    ]
    told = "; ".join(problem.message.rstrip(".") for problem in problems)
    raise DifferentTargetsError(
        f"Only submissions of one snapshot, split and strategy can be compared: {told}.", problems=problems
    )


def _check_versions(details: Sequence[SubmissionDetails], versions: Sequence[str]) -> None:
    """Figures of two scorer versions are never compared (mteb#5228)."""
    if len(set(versions)) > 1:
        told = "; ".join(f"{one.id} by {version}" for one, version in zip(details, versions, strict=True))
        raise DifferentTargetsError(f"The submissions were scored by different versions: {told}.")


def _load_replicates(
    session: Session, submission_ids: Sequence[str], *, scorer_version: str
) -> Mapping[tuple[str, BoardNames], FloatArray]:
    """Return the realised potential in every replicate of each submission on each board that has one."""
    score, board, interval = models.Score, models.BoardScore, models.BoardInterval
    query = (
        select(score.submission_id, board.model, board.benchmark, interval.replicates)
        .join(board, board.score_id == score.id)
        .join(interval, interval.board_score_id == board.id)
        .where(
            score.submission_id.in_(submission_ids),
            score.scorer_version == scorer_version,
            interval.version == INTERVAL_VERSION,
        )
    )
    return {
        (submission_id, (model, benchmark)): np.frombuffer(stored, dtype="<f8")
        for submission_id, model, benchmark, stored in session.execute(query)
    }


def _compare_boards(
    submission_ids: Sequence[str],
    documents: Sequence[Document],
    replicates: Mapping[tuple[str, BoardNames], FloatArray],
) -> list[ComparedBoard]:
    """Return every board that at least one of the submissions stands on, in the order of the first that has it."""
    by_board = [{(b["model"], b["benchmark"]): b for b in document["boards"]} for document in documents]
    names = list(dict.fromkeys(key for boards in by_board for key in boards))
    names.sort(key=lambda key: (key[0] is not None) + 2 * (key[1] is not None))
    compared = []
    for key in names:
        figures = tuple(boards.get(key) for boards in by_board)
        known = dict(zip(submission_ids, figures, strict=True))
        differences = tuple(
            _compare_pair(pair, key, known=known, replicates=replicates) for pair in combinations(submission_ids, 2)
        )
        compared.append(ComparedBoard(*key, figures, differences))
    return compared


def _compare_pair(
    pair: tuple[str, str],
    board: BoardNames,
    *,
    known: Mapping[str, Document | None],
    replicates: Mapping[tuple[str, BoardNames], FloatArray],
) -> Difference:
    first, second = (None if (figures := known[one]) is None else figures["realised_potential"] for one in pair)
    difference = None if first is None or second is None else first - second
    interval = None
    if difference is not None:
        interval = _find_interval(pair, board, known=known, replicates=replicates)
    if interval is None:
        return Difference(*board, *pair, difference, None, None, UNDECIDED)
    better = FIRST if interval.low > 0 else SECOND if interval.high < 0 else UNDECIDED
    return Difference(*board, *pair, difference, interval.low, interval.high, better)


def _find_interval(
    pair: tuple[str, str],
    board: BoardNames,
    *,
    known: Mapping[str, Document | None],
    replicates: Mapping[tuple[str, BoardNames], FloatArray],
) -> Interval | None:
    first, second = (replicates.get((one, board)) for one in pair)
    figures, others = (known[one] for one in pair)
    if first is None or second is None or figures is None or others is None:
        return None
    return release_difference((first, second), figures=(figures, others))


def _count_wins(pair: tuple[str, str], boards: Sequence[ComparedBoard]) -> Wins:
    cells = [
        one
        for board in boards
        if board.model is not None and board.benchmark is not None
        for one in board.differences
        if (one.first, one.second) == pair
    ]
    verdicts = [one.better for one in cells]
    signs = [np.sign(one.difference) for one in cells if one.difference is not None]
    return Wins(
        *pair,
        n_cells=len(cells),
        n_first_better=verdicts.count(FIRST),
        n_second_better=verdicts.count(SECOND),
        n_undecided=verdicts.count(UNDECIDED),
        n_first_ahead=signs.count(1),
        n_second_ahead=signs.count(-1),
    )
