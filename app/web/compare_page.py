"""The page of a comparison: curves, who is better where, figures and settings side by side."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from sqlalchemy.orm import Session
from starlette.datastructures import QueryParams

from app.plots.captions import Caption, describe_data
from app.plots.palette import pick_method_style
from app.plots.traces import MethodLine
from app.services.board_lines import WHOLE, find_board_curve, list_frontiers
from app.services.comparison import FIRST, SECOND, ComparedBoard, Comparison, Difference
from app.services.snapshots import get_snapshot
from app.services.submissions import SubmissionDetails
from app.web.board_figures import describe_place
from app.web.board_query import BoardQuery
from app.web.board_rows import SwatchStyle, show_swatch
from app.web.figures import FigureView, load_lines, show_board_figure

MOST_SETTINGS = 40
AT_BUDGETS = ("0.25", "0.5", "0.75")
WIDEST = 100.0
FIGURES = (
    ("realised_potential", "Realised potential", "%"),
    ("area", "Area", "%"),
    ("gap", "Gap to the oracle", "points"),
    ("max_accuracy", "Best accuracy", "%"),
    ("tokens_saved", "Tokens saved", "%"),
    ("0.25", "Accuracy at a quarter of the tokens", "%"),
    ("0.5", "Accuracy at half", "%"),
    ("0.75", "Accuracy at three quarters", "%"),
)


@dataclass(frozen=True)
class Compared:
    """A submission with its line's style and the address of the comparison without it, None where two are left."""

    details: SubmissionDetails
    style: SwatchStyle
    without_address: str | None


@dataclass(frozen=True)
class DifferenceBar:
    """An interval of a difference on the table's common scale, in hundredths of its length."""

    start: float
    width: float
    at: float
    zero: float


@dataclass(frozen=True)
class ShownDifference:
    """A paired difference with its bar, None where there is no interval, and what it says."""

    difference: Difference
    bar: DifferenceBar | None
    verdict: str


@dataclass(frozen=True)
class PairTable:
    """All boards of one pair, and a sentence of who is better on how many cells."""

    title: str
    summary: str
    rows: tuple[tuple[str, ShownDifference], ...]


@dataclass(frozen=True)
class ComparePage:
    """Everything the template shows."""

    comparison: Comparison
    title: str
    compared: tuple[Compared, ...]
    figure: FigureView | None
    figures: tuple[tuple[str, str, tuple[float | None, ...]], ...]
    boards: tuple[tuple[str, tuple[float | None, ...]], ...]
    pairs: tuple[PairTable, ...]
    settings: tuple[tuple[dict[str, Any], ...], ...]
    most_settings: int
    board_address: str
    csv_address: str
    json_address: str


def read_ids(parameters: QueryParams) -> list[str]:
    """Return the submissions an address names: in one list, or as a form's check boxes send them."""
    given = [*parameters.getlist("submissions"), *parameters.getlist("pin")]
    return [part.strip() for text in given for part in text.split(",") if part.strip()]


def show_comparison(session: Session, comparison: Comparison, *, data_dir: Path) -> ComparePage:
    """Return the page of a comparison."""
    ids = [one.id for one in comparison.submissions]
    whole = next((b for b in comparison.boards if b.model is None and b.benchmark is None), None)
    named = urlencode({"submissions": ",".join(ids)}, safe=",")
    board = BoardQuery(comparison.snapshot, comparison.split, comparison.strategy, pin=tuple(ids))
    return ComparePage(
        comparison=comparison,
        title=" and ".join(dict.fromkeys(one.method for one in comparison.submissions)),
        compared=tuple(_show_compared(one, idx, ids) for idx, one in enumerate(comparison.submissions)),
        figure=load_figure(session, comparison, data_dir=data_dir),
        figures=tuple(
            (title, unit, tuple(read_figure(one, name) for one in (whole.figures if whole else ())))
            for name, title, unit in FIGURES
        ),
        boards=tuple((name_board(b), _list_potentials(b)) for b in comparison.boards),
        pairs=tuple(show_pair(comparison, idx) for idx in range(len(comparison.wins))),
        settings=tuple(settings[:MOST_SETTINGS] for settings in comparison.settings),
        most_settings=MOST_SETTINGS,
        board_address=board.address(),
        csv_address=f"/api/v1/compare?{named}&format=csv",
        json_address=f"/api/v1/compare?{named}",
    )


def read_figure(board: dict[str, Any] | None, name: str) -> float | None:
    """Return a figure of a score document's board, None where the submission does not stand there."""
    if board is None:
        return None
    found = board["accuracy_at"].get(name) if name in AT_BUDGETS else board.get(name)
    return None if found is None else float(found)


def load_figure(session: Session, comparison: Comparison, *, data_dir: Path) -> FigureView | None:
    """Return the plot of all their curves, or None where the frontier is not stored."""
    snapshot = get_snapshot(session, comparison.snapshot)
    frontier = list_frontiers(session, snapshot, split=comparison.split, board=WHOLE).get(comparison.strategy)
    if frontier is None:
        return None
    ids = [one.id for one in comparison.submissions]
    version = comparison.scorer_version
    curves = [find_board_curve(session, one, board=WHOLE, scorer_version=version) for one in ids]
    methods = [
        MethodLine(one.method, curve, pick_method_style(idx), key=one.id)
        for idx, (one, curve) in enumerate(zip(comparison.submissions, curves, strict=True))
        if curve is not None
    ]
    place, kind = describe_place(frontier), comparison.kind
    subtitle = describe_data(
        snapshot=comparison.snapshot, split=comparison.split, place=place, n_questions=None, kind=kind
    )
    return show_board_figure(
        load_lines(session, snapshot, frontier, data_dir=data_dir, is_log=False),
        methods,
        caption=Caption(f"{len(ids)} submissions between the constants and the oracle", subtitle),
        download_name=f"compare-{'-'.join(ids)}",
    )


def show_pair(comparison: Comparison, idx: int) -> PairTable:
    """Return the differences of pair number `idx` on all boards, their bars on one scale."""
    wins = comparison.wins[idx]
    named = {one.id: one.method for one in comparison.submissions}
    first, second = named[wins.first], named[wins.second]
    found = [(name_board(board), board.differences[idx]) for board in comparison.boards]
    ends = [end for _, one in found for end in (one.low, one.high, one.difference) if end is not None]
    low, high = min([0.0, *ends]), max([0.0, *ends])
    verdicts = {FIRST: f"{first} is better", SECOND: f"{second} is better"}
    rows = tuple(
        (name, ShownDifference(one, scale_difference(one, low, high), verdicts.get(one.better, "not told apart")))
        for name, one in found
    )
    summary = (
        f"Of {wins.n_cells} cells {first} is better on {wins.n_first_better} and {second} on {wins.n_second_better}, "
        f"by more than chance; on {wins.n_undecided} the data cannot tell them apart. Merely ahead, {first} is on "
        f"{wins.n_first_ahead} and {second} on {wins.n_second_ahead}."
    )
    return PairTable(f"{first} minus {second}", summary, rows)


def scale_difference(one: Difference, low: float, high: float) -> DifferenceBar | None:
    """Return the interval of a difference on a scale from `low` to `high`, None where it has none."""
    if one.low is None or one.high is None or one.difference is None or high <= low:
        return None
    start, end, at, zero = (WIDEST * (v - low) / (high - low) for v in (one.low, one.high, one.difference, 0.0))
    return DifferenceBar(round(start, 2), round(max(end - start, 0.6), 2), round(at, 2), round(zero, 2))


def name_board(board: ComparedBoard) -> str:
    """Return a board's name."""
    if board.model and board.benchmark:
        return f"{board.model} on {board.benchmark}"
    return board.model or board.benchmark or "Whole snapshot"


def _list_potentials(board: ComparedBoard) -> tuple[float | None, ...]:
    return tuple(None if one is None else one["realised_potential"] for one in board.figures)


def _show_compared(details: SubmissionDetails, idx: int, ids: list[str]) -> Compared:
    rest = ",".join(one for one in ids if one != details.id)
    address = f"/compare?submissions={rest}" if rest.count(",") else None
    return Compared(details, show_swatch(pick_method_style(idx)), address)
