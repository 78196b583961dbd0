"""The board's page: which view is asked for, its figure, and its rows with what they mean in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlencode

from sqlalchemy.orm import Session

from app.db import models
from app.evaluator.curves import StepSeries
from app.evaluator.measurements import ALL_SPLITS
from app.evaluator.strategies import Strategy
from app.plots.captions import STRATEGY_ADJECTIVES, Caption, describe_data, describe_oracle, describe_realised
from app.plots.palette import CONTROL_STYLE, METHOD_STYLES, LineStyle, pick_method_style
from app.plots.traces import FrontierLines, MethodLine, OperatingPoint
from app.services.accounts import Identity
from app.services.board_lines import WHOLE, BoardKey, list_frontiers, list_operating_points
from app.services.leaderboard import BoardRow, Leaderboard, get_leaderboard, list_board_curves
from app.services.measurements import is_closed
from app.services.release import ReleasedFrontier
from app.services.snapshots import get_snapshot, list_snapshots, list_splits
from app.web.figures import FigureView, load_lines, show_board_figure
from app.web.formatting import RANK_REASONS, hundredths, percent, points, split_title

EXPLANATIONS = {
    Strategy.DYNAMIC_ROUTING: "Before anything is generated, decides question by question whether the model thinks.",
    Strategy.FIXED_BUDGET: "Before anything is generated, gives each question a cap on its thinking tokens.",
    Strategy.DYNAMIC_EARLY_EXIT: "While the model thinks, decides in each trajectory after which step to stop.",
}


@dataclass(frozen=True)
class BoardQuery:
    """The view an address asks for; None where it leaves the choice to the page."""

    snapshot: str | None = None
    split: str | None = None
    strategy: Strategy = Strategy.DYNAMIC_EARLY_EXIT
    model: str | None = None
    benchmark: str | None = None
    axis: str = "linear"
    scorer_version: str | None = None

    def address(self, path: str = "/", **changes: str | None) -> str:
        """Return the address of this view, or of the one with these changes."""
        shown = {**vars(self), **changes}
        parameters = {name: value for name, value in shown.items() if value and (name, value) != ("axis", "linear")}
        return f"{path}?{urlencode(parameters)}"


@dataclass(frozen=True)
class StrategyTab:
    """A strategy and the address of the same view for it."""

    strategy: Strategy
    address: str


@dataclass(frozen=True)
class SwatchStyle:
    """How a method's line is drawn in its row: the style sheet's class for the colour, dashes in pixels."""

    css_class: str
    dash: str | None


@dataclass(frozen=True)
class Bar:
    """A realised potential on the board's common scale, in hundredths of the bar's length.

    The interval's ends are None until there is one.
    """

    start: float
    width: float
    zero: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class BoardItem:
    """A row with its line's style, its bar (None without a realised potential) and its figures in words."""

    row: BoardRow
    style: SwatchStyle
    bar: Bar | None
    sentences: tuple[str, ...]


@dataclass(frozen=True)
class BoardPage:
    """Everything the board's template shows.

    `figure` is None where `is_preparing` (the frontiers are being computed) or where the split has no question here.
    """

    query: BoardQuery
    board: Leaderboard
    explanation: str
    tabs: tuple[StrategyTab, ...]
    snapshots: tuple[tuple[str, str], ...]
    splits: tuple[tuple[str, str], ...]
    models: tuple[tuple[str, str], ...]
    benchmarks: tuple[tuple[str, str], ...]
    is_preparing: bool
    figure: FigureView | None
    rows: tuple[BoardItem, ...]
    ranks: str
    bar_scale: str
    axis_address: str
    successor_address: str
    csv_address: str
    json_address: str
    submit_address: str
    submit_command: str


def load_board_page(
    session: Session, query: BoardQuery, *, reader: Identity | None, server: str, data_dir: Path
) -> BoardPage | None:
    """Return the board that `query` asks for as `reader` may see it, or None where no snapshot is frozen yet.

    `server` is the address under which the reader knows this one.

    Without a choice it is the newest frozen snapshot, and of its splits the test split, unless nothing is scored there.
    """
    frozen = [found for found in list_snapshots(session) if found.is_frozen]
    if query.snapshot is None and not frozen:
        return None
    snapshot = get_snapshot(session, query.snapshot) if query.snapshot else frozen[0]
    splits = list_splits(session, snapshot)
    split = query.split or choose_split(snapshot, splits)
    query = replace(query, snapshot=snapshot.name, split=split)
    board = get_leaderboard(
        session,
        snapshot=snapshot.name,
        split=split,
        strategy=query.strategy,
        model=query.model,
        benchmark=query.benchmark,
        reader=reader,
        scorer_version=query.scorer_version,
    )
    key = BoardKey(query.model, query.benchmark)
    frontier = list_frontiers(session, snapshot, split=split, board=key).get(query.strategy)
    whole = list_frontiers(session, snapshot, split=split, board=WHOLE)
    curves = list_board_curves(session, board)
    ids = [row.submission_id for row in board.rows]
    points_of = list_operating_points(session, ids, board=key, scorer_version=board.scorer_version)
    figure = None
    if frontier is not None:
        is_log = query.axis == "log"
        lines = load_lines(session, snapshot, frontier, data_dir=data_dir, is_log=is_log)
        figure = draw_board(board, frontier, lines=lines, curves=curves, points_of=points_of, is_log=is_log)
    rest = {name: value for name, value in vars(query).items() if name != "axis" and value}
    return BoardPage(
        query=query,
        board=board,
        explanation=EXPLANATIONS[query.strategy],
        tabs=tuple(StrategyTab(strategy, query.address(strategy=strategy.value)) for strategy in Strategy),
        snapshots=tuple((found.name, found.title) for found in frozen),
        splits=tuple((name, split_title(name).capitalize()) for name in splits),
        models=name_choices("All models", snapshot.manifest["models"]),
        benchmarks=name_choices("All benchmarks", snapshot.manifest["benchmarks"]),
        is_preparing=query.strategy not in whole,
        figure=figure,
        rows=show_rows(board.rows),
        ranks=describe_ranks(board),
        bar_scale=describe_scale(board.rows),
        axis_address=query.address(axis="linear" if query.axis == "log" else "log"),
        successor_address=BoardQuery(board.superseded_by, strategy=query.strategy).address(),
        csv_address=f"/api/v1/leaderboard?{urlencode({**rest, 'format': 'csv'})}",
        json_address=f"/api/v1/leaderboard?{urlencode(rest)}",
        submit_address=query.address("/submit", model=None, benchmark=None, axis=None),
        submit_command=write_submit_command(query, server=server),
    )


def choose_split(snapshot: models.Snapshot, splits: Sequence[str]) -> str:
    """Return the split a board shows unless another is asked for: test, else all, unless nothing is scored there."""
    shown = [split for split in ("test", ALL_SPLITS, *splits) if split in splits and not is_closed(snapshot, split)]
    return shown[0] if shown else ALL_SPLITS


def name_choices(everything: str, named: Sequence[Mapping[str, str]]) -> tuple[tuple[str, str], ...]:
    """Return the options of a picker: everything, then each model or benchmark of a manifest."""
    return (("", everything), *((item["name"], item.get("title") or item["name"]) for item in named))


def write_submit_command(query: BoardQuery, *, server: str) -> str:
    """Return the command that submits to this board."""
    return (
        f"otboard submit actions.parquet --server {server} --snapshot {query.snapshot} "
        f"--strategy {query.strategy} --split {query.split} --method NAME"
    )


def draw_board(
    board: Leaderboard,
    frontier: ReleasedFrontier,
    *,
    lines: FrontierLines,
    curves: Mapping[str, StepSeries],
    points_of: Mapping[str, tuple[OperatingPoint, ...]],
    is_log: bool,
) -> FigureView:
    """Return the board's figure: every method's curve, titled by what the best one realises."""
    methods = [
        MethodLine(row.method, curves[row.submission_id], style, points_of.get(row.submission_id, ()))
        for row, style in zip(board.rows, pick_styles(board.rows), strict=True)
        if row.submission_id in curves
    ]
    caption = Caption(
        title=describe_best(board.rows, lines),
        subtitle=describe_data(
            snapshot=board.snapshot,
            split=board.split,
            place=describe_place(frontier),
            n_questions=None,
            kind=board.kind,
        ),
    )
    name = "-".join(
        part for part in (board.snapshot, board.split, board.strategy, board.model, board.benchmark) if part
    )
    return show_board_figure(lines, methods, caption=caption, download_name=name, is_log=is_log)


def describe_best(rows: Sequence[BoardRow], lines: FrontierLines) -> str:
    """Return the title: what the best method that is no control realises, else what the oracle reaches."""
    best = next((row for row in rows if not row.is_control and row.realised_potential is not None), None)
    if best is None or best.realised_potential is None:
        return describe_oracle(lines.strategy, lines.beta_match)
    if best.realised_potential < 0:
        return f"No method beats the best mix of constant {STRATEGY_ADJECTIVES[lines.strategy]} policies yet"
    return describe_realised(best.method, best.strategy, best.realised_potential)


def describe_place(frontier: ReleasedFrontier) -> str:
    """Return which cells a board is made of, and how many questions the smallest has."""
    questions = f"{frontier.min_questions:,} question{'' if frontier.min_questions == 1 else 's'}"
    if frontier.model and frontier.benchmark:
        return f"{frontier.model} on {frontier.benchmark}, {questions}"
    whole = frontier.model or frontier.benchmark
    cells = f"{frontier.n_cells} cell{'' if frontier.n_cells == 1 else 's'} of at least {questions}"
    return f"{whole}, {cells}" if whole else cells


def pick_styles(rows: Sequence[BoardRow]) -> list[LineStyle]:
    """Return the line style of each row: controls are pale, the methods take the styles in the board's order."""
    styles, n_methods = [], 0
    for row in rows:
        styles.append(CONTROL_STYLE if row.is_control else pick_method_style(n_methods))
        n_methods += not row.is_control
    return styles


def show_rows(rows: Sequence[BoardRow]) -> tuple[BoardItem, ...]:
    """Return the rows with their styles, bars on one scale, and sentences."""
    low = scale_start(rows)
    return tuple(
        BoardItem(row, show_swatch(style), scale_bar(row, low), describe_row(row))
        for row, style in zip(rows, pick_styles(rows), strict=True)
    )


def show_swatch(style: LineStyle) -> SwatchStyle:
    """Return how a line style is drawn in a row."""
    dash = None if style.dash == "solid" else style.dash.replace("px", "").replace(",", " ")
    idx = METHOD_STYLES.index(style) if style in METHOD_STYLES else None
    return SwatchStyle("method-pale" if idx is None else f"method-{idx}", dash)


def scale_start(rows: Sequence[BoardRow]) -> float:
    """Return where the bars' common scale begins: at the lowest bar's or interval's end, or at 0 if none is below."""
    ends = [end for row in rows for end in (row.realised_potential, row.realised_potential_low)]
    return min([0.0, *(end for end in ends if end is not None)])


def describe_scale(rows: Sequence[BoardRow]) -> str:
    """Return the bars' scale in words."""
    return f"bar from {hundredths(scale_start(rows), 0)} to 100"


def scale_bar(row: BoardRow, start: float) -> Bar | None:
    """Return the bar from 0 to a realised potential with its interval, on a scale from `start` to 1."""
    if row.realised_potential is None:
        return None
    zero, end = (100 * (value - start) / (1 - start) for value in (0.0, row.realised_potential))
    low, high = (
        None if value is None else round(100 * (value - start) / (1 - start), 2)
        for value in (row.realised_potential_low, row.realised_potential_high)
    )
    return Bar(
        start=round(min(zero, end), 2),
        width=round(max(abs(end - zero), 0.6), 2),
        zero=round(zero, 2),
        low=low,
        high=high,
    )


def describe_ranks(board: Leaderboard) -> str:
    """Return in a sentence or two what the ranks of a board are."""
    if all(row.rank is None for row in board.rows):
        return "Nobody has a rank here."
    if board.ranks_are_provisional:
        return "Provisional rank, by point estimate: intervals are being computed."
    return (
        "Methods whose difference the data cannot tell from zero share a rank. "
        "The line across a bar is the 95\N{NO-BREAK SPACE}% interval."
    )


def describe_row(row: BoardRow) -> tuple[str, ...]:
    """Return a row's figures as sentences."""
    above = row.area - row.uninformed_area
    side = "above" if above >= 0 else "below"
    sentences = [
        *describe_interval(row),
        f"Over all budgets its accuracy lies {points(row.gap)} below the oracle’s and {points(abs(above))} {side} the "
        f"best mix of constant policies.",
        describe_matching(row),
        f"At a quarter, half and three quarters of the tokens it is right {percent(row.accuracy_25)}, "
        f"{percent(row.accuracy_50)} and {percent(row.accuracy_75)} of the time, at best {percent(row.max_accuracy)}.",
    ]
    if row.best_e3 is not None:
        sentences.append(f"Its best efficiency score E³ is {row.best_e3:.3f} (full thinking has 1).")
    if row.rank_reason is not None:
        sentences.append(RANK_REASONS.get(row.rank_reason, row.rank_reason))
    return tuple(sentences)


def describe_interval(row: BoardRow) -> tuple[str, ...]:
    """Return the interval of a row's realised potential as a sentence, or nothing until there is one."""
    if row.realised_potential_low is None or row.realised_potential_high is None:
        return ()
    low, high = percent(row.realised_potential_low), percent(row.realised_potential_high)
    return (f"Its realised potential has a 95\N{NO-BREAK SPACE}% interval from {low} to {high}.",)


def describe_matching(row: BoardRow) -> str:
    """Return at which share of the tokens the method matches full thinking, in words."""
    if row.beta_match is None:
        return "It never reaches full-thinking accuracy."
    return (
        f"It reaches full-thinking accuracy with {percent(row.beta_match)} of the tokens and so saves "
        f"{percent(row.tokens_saved)} of them."
    )
