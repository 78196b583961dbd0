"""The board's page: which view is asked for, its figure, and the rows that it shows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import plotly.graph_objects as go
from sqlalchemy.orm import Session

from app.db import models
from app.evaluator.measurements import ALL_SPLITS
from app.evaluator.strategies import Strategy
from app.plots.palette import LineStyle
from app.services.accounts import Identity
from app.services.board_lines import WHOLE, BoardKey, list_frontiers
from app.services.board_views import Baselines, choose_rows
from app.services.comparison import MOST
from app.services.leaderboard import BoardRow, Leaderboard, get_leaderboard
from app.services.measurements import is_closed
from app.services.release import ReleasedFrontier
from app.services.snapshots import get_snapshot, list_snapshots, list_splits
from app.web.board_columns import ColumnHead, list_choices, list_heads
from app.web.board_figures import DrawnRows, describe_figure, draw_figure
from app.web.board_query import BoardQuery, By
from app.web.board_rows import (
    BoardItem,
    SubBoard,
    describe_ranks,
    describe_row,
    describe_scale,
    pick_styles,
    scale_bar,
    scale_start,
    show_swatch,
)
from app.web.figures import FigureView
from app.web.formatting import plural, split_title

ROWS_PER_PAGE = 100
MOST_DRAWN = 100
NO_FILTERS: dict[str, Any] = {
    "q": "",
    "verified": False,
    "code": False,
    "baselines": Baselines.SHOWN,
    "since": None,
    "until": None,
}
EXPLANATIONS = {
    Strategy.DYNAMIC_ROUTING: "Before anything is generated, decides question by question whether the model thinks.",
    Strategy.FIXED_BUDGET: "Before anything is generated, gives each question a cap on its thinking tokens.",
    Strategy.DYNAMIC_EARLY_EXIT: "While the model thinks, decides in each trajectory after which step to stop.",
}


@dataclass(frozen=True)
class Link:
    """Words that lead to another view; `is_current` for the one that is shown."""

    text: str
    address: str
    is_current: bool = False


@dataclass(frozen=True)
class StrategyTab:
    """A strategy and the address of the same view for it."""

    strategy: Strategy
    address: str


@dataclass(frozen=True)
class View:
    """What a view shows: the whole board, the rows of it that are chosen, those of them on the page, all in styles."""

    query: BoardQuery
    snapshot: models.Snapshot
    whole: Leaderboard
    chosen: Leaderboard
    shown: tuple[BoardRow, ...]
    styles: Mapping[str, LineStyle]
    n_pages: int

    @property
    def drawn(self) -> DrawnRows:
        """What the figure draws: the rows on the page, best first, as many as it can bear."""
        on_page = {row.submission_id for row in self.shown}
        rows = [row for row in self.whole.rows if row.submission_id in on_page]
        pinned = [row for row in rows if row.submission_id in self.query.pin]
        others = [row for row in rows if row.submission_id not in self.query.pin]
        drawn = {row.submission_id for row in [*pinned, *others][:MOST_DRAWN]}
        kept = tuple(row for row in rows if row.submission_id in drawn)
        is_part = len(kept) < len(self.chosen.rows)
        return DrawnRows(self.whole, replace(self.whole, rows=kept), self.styles, is_part=is_part)


@dataclass(frozen=True)
class BoardPage:
    """Everything the board's template shows.

    `figure` is None where `is_preparing` (the frontiers are being computed) or where the split has no question here.
    `hidden` are the parameters of the view that the form of the rows sends along.
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
    figure_links: tuple[tuple[Link, ...], ...]
    heads: tuple[ColumnHead, ...]
    column_choices: tuple[tuple[str, str, bool], ...]
    rows: tuple[BoardItem, ...]
    summary: str
    is_filtered: bool
    pages: tuple[Link, ...]
    ranks: str
    bar_scale: str
    most_compared: int
    hidden: Mapping[str, Mapping[str, str]]
    plain_address: str
    unpinned_address: str
    open_address: str
    canonical_address: str
    successor_address: str
    csv_address: str
    json_address: str
    submit_address: str
    submit_command: str


def find_view(session: Session, query: BoardQuery, *, reader: Identity | None) -> View | None:
    """Return what `query` asks for as `reader` may see it, or None where no snapshot is frozen yet.

    Without a choice it is the newest frozen snapshot, and of its splits the test split, unless nothing is scored there.
    An open row is on the page that is shown, unless another page is asked for.
    """
    snapshot = get_snapshot(session, query.snapshot) if query.snapshot else None
    if snapshot is None:
        frozen = [found for found in list_snapshots(session) if found.is_frozen]
        if not frozen:
            return None
        snapshot = frozen[0]
    split = query.split or choose_split(snapshot, list_splits(session, snapshot))
    query = replace(query, snapshot=snapshot.name, split=split)
    whole = get_leaderboard(
        session,
        snapshot=snapshot.name,
        split=split,
        strategy=query.strategy,
        model=query.model,
        benchmark=query.benchmark,
        scorer_version=query.scorer_version,
        reader=reader,
    )
    by_id = {row.submission_id: row for row in whole.rows}
    query = replace(query, pin=tuple(one for one in query.pin if one in by_id))
    chosen = choose_rows(whole, query.choice)
    pinned = [row for row in whole.rows if row.submission_id in query.pin]
    others = [row for row in chosen.rows if row.submission_id not in query.pin]
    n_pages = 1 if query.rows == "all" else max(math.ceil(len(others) / ROWS_PER_PAGE), 1)
    query = replace(query, page=min(_find_page(query, others), n_pages))
    if query.rows != "all":
        others = others[(query.page - 1) * ROWS_PER_PAGE : query.page * ROWS_PER_PAGE]
    shown = (*pinned, *others)
    on_page = {row.submission_id for row in shown}
    styles = pick_styles([row for row in whole.rows if row.submission_id in on_page], query.pin)
    return View(query, snapshot, whole, chosen, shown, styles, n_pages)


def load_board_page(
    session: Session, query: BoardQuery, *, reader: Identity | None, server: str, data_dir: Path
) -> BoardPage | None:
    """Return the page of a view, or None where no snapshot is frozen yet.

    `server` is the address under which the reader knows this one.
    """
    view = find_view(session, query, reader=reader)
    if view is None:
        return None
    query, snapshot, board = view.query, view.snapshot, view.whole
    frozen = [found for found in list_snapshots(session) if found.is_frozen]
    frontier = find_frontier(session, view)
    figure = None
    if frontier is not None:
        figure = describe_figure(session, query, view.drawn, frontier, data_dir=data_dir)
    # A board of its own may have no cell in the split; then the whole one tells whether there is more to come.
    whole = {} if frontier else list_frontiers(session, snapshot, split=board.split, board=WHOLE)
    rest = _rest_parameters(query)
    return BoardPage(
        query=query,
        board=board,
        explanation=EXPLANATIONS[query.strategy],
        tabs=tuple(StrategyTab(one, query.address(strategy=one, pin=(), open=(), page=1)) for one in Strategy),
        snapshots=tuple((found.name, found.title) for found in frozen),
        splits=tuple((name, split_title(name).capitalize()) for name in list_splits(session, snapshot)),
        models=name_choices("All models", snapshot.manifest["models"]),
        benchmarks=name_choices("All benchmarks", snapshot.manifest["benchmarks"]),
        is_preparing=frontier is None and query.strategy not in whole,
        figure=figure,
        figure_links=link_figures(query),
        heads=list_heads(query),
        column_choices=list_choices(query),
        rows=show_items(session, view, reader=reader),
        summary=describe_choice(view),
        is_filtered=query.choice != BoardQuery(sort=query.sort).choice,
        pages=link_pages(view),
        ranks=describe_ranks(board),
        bar_scale=describe_scale(board.rows),
        most_compared=MOST,
        hidden=list_hidden(query),
        plain_address=query.address(**NO_FILTERS),
        unpinned_address=query.address(pin=()),
        open_address=query.address(open=()),
        canonical_address=query.address(),
        successor_address=BoardQuery(board.superseded_by, strategy=query.strategy).address(),
        csv_address=f"/api/v1/leaderboard?{urlencode({**rest, 'format': 'csv'})}",
        json_address=f"/api/v1/leaderboard?{urlencode(rest)}",
        submit_address=BoardQuery(query.snapshot, query.split, query.strategy).address("/submit"),
        submit_command=write_submit_command(query, server=server),
    )


def load_board_figure(
    session: Session, query: BoardQuery, *, reader: Identity | None, data_dir: Path
) -> go.Figure | None:
    """Return the picture of a view, or None where its frontier is not stored."""
    view = find_view(session, query, reader=reader)
    frontier = find_frontier(session, view) if view else None
    if view is None or frontier is None:
        return None
    return draw_figure(session, view.query, view.drawn, frontier, data_dir=data_dir)


def find_frontier(session: Session, view: View) -> ReleasedFrontier | None:
    """Return the stored frontier of a view's board."""
    key = BoardKey(view.query.model, view.query.benchmark)
    return list_frontiers(session, view.snapshot, split=view.whole.split, board=key).get(view.query.strategy)


def load_open_row(
    session: Session, query: BoardQuery, submission_id: str, *, reader: Identity | None
) -> BoardItem | None:
    """Return one row of a view, opened, or None where the submission does not stand on its board."""
    view = find_view(session, replace(query, open=(submission_id,)), reader=reader)
    if view is None:
        return None
    return next((item for item in show_items(session, view, reader=reader) if item.is_open), None)


def show_items(session: Session, view: View, *, reader: Identity | None) -> tuple[BoardItem, ...]:
    """Return the rows of the page with their styles, bars on the whole board's scale, and what of them is open."""
    query, low = view.query, scale_start(view.whole.rows)
    items = []
    for row in view.shown:
        is_open = row.submission_id in query.open
        others = tuple(one for one in query.open if one != row.submission_id)
        items.append(
            BoardItem(
                row=row,
                style=show_swatch(view.styles[row.submission_id]),
                bar=scale_bar(row, low),
                is_pinned=row.submission_id in query.pin,
                is_open=is_open,
                sentences=describe_row(row) if is_open else (),
                sub_boards=list_sub_boards(session, view, row, reader=reader) if is_open else (),
                close_address=query.address(open=others) if is_open else "",
                link=f"{link_row(query, row)}#row-{row.submission_id}" if is_open else "",
            )
        )
    return tuple(items)


def link_row(query: BoardQuery, row: BoardRow) -> str:
    """Return the address of a row that stays, whatever else the view shows."""
    board = BoardQuery(query.snapshot, query.split, query.strategy, query.model, query.benchmark)
    return board.address(open=(row.submission_id,))


def list_sub_boards(session: Session, view: View, row: BoardRow, *, reader: Identity | None) -> tuple[SubBoard, ...]:
    """Return where a row stands on the boards of single models, or on one model's board of single benchmarks."""
    query = view.query
    if query.model is not None and query.benchmark is not None:
        return ()
    word = "model" if query.model is None else "benchmark"
    found = []
    for item in view.snapshot.manifest[f"{word}s"]:
        narrower = replace(query, **{word: item["name"]})
        board = get_leaderboard(
            session,
            snapshot=view.snapshot.name,
            split=view.whole.split,
            strategy=query.strategy,
            model=narrower.model,
            benchmark=narrower.benchmark,
            scorer_version=view.whole.scorer_version,
            reader=reader,
        )
        one = next((one for one in board.rows if one.submission_id == row.submission_id), None)
        bar = None if one is None else scale_bar(one, scale_start(board.rows))
        address = narrower.address(open=(row.submission_id,), page=1)
        found.append(SubBoard(item.get("title") or item["name"], one, bar, f"{address}#row-{row.submission_id}"))
    return tuple(found)


def describe_choice(view: View) -> str:
    """Return which rows are shown, in words."""
    n_all, n_chosen = len(view.whole.rows), len(view.chosen.rows)
    told = plural(n_all, "row") if n_chosen == n_all else f"{n_chosen:,} of {plural(n_all, 'row')}"
    if view.n_pages > 1:
        told += f", page {view.query.page} of {view.n_pages}"
    return f"{told}."


def link_figures(query: BoardQuery) -> tuple[tuple[Link, ...], ...]:
    """Return the links that change the figure, in groups."""
    is_log, is_frontier = query.is_log, query.lines == "frontier"
    axis = Link("Linear axis" if is_log else "Logarithmic axis", query.address(axis="linear" if is_log else "log"))
    bands = Link(
        "Hide intervals" if query.intervals else "Show intervals", query.address(intervals=not query.intervals)
    )
    lines = Link(
        "All methods" if is_frontier else "Only the frontier of the methods",
        query.address(lines="all" if is_frontier else "frontier"),
    )
    titles = {By.WHOLE: "One plot", By.MODEL: "By model", By.BENCHMARK: "By benchmark"}
    by = tuple(Link(title, query.address(by=one), one is query.by) for one, title in titles.items())
    return ((axis, bands, *((lines,) if query.by is By.WHOLE else ())), by)


def link_pages(view: View) -> tuple[Link, ...]:
    """Return the links to the pages of rows, and to all of them; none where one page has all."""
    query = view.query
    if query.rows == "all":
        paged = Link("In pages", query.address(rows="paged", page=1))
        return (paged,) if len(view.chosen.rows) > ROWS_PER_PAGE else ()
    if view.n_pages == 1:
        return ()
    pages = [Link(str(n), query.address(page=n, open=()), n == query.page) for n in range(1, view.n_pages + 1)]
    return (*pages, Link("Show all", query.address(rows="all", page=1)))


def list_hidden(query: BoardQuery) -> dict[str, dict[str, str]]:
    """Return what each form of the page sends along: the rest of the view, without what the form itself asks for."""
    own = {
        "pickers": ("snapshot", "split", "model", "benchmark", "pin", "open", "page"),
        "filters": ("q", "verified", "code", "baselines", "since", "until", "page", "open"),
        "columns": ("columns",),
        "rows": ("pin", "page"),
    }
    shown = query.parameters()
    return {form: {name: value for name, value in shown.items() if name not in names} for form, names in own.items()}


def _find_page(query: BoardQuery, rows: Sequence[BoardRow]) -> int:
    if query.page == 1 and query.open:
        place = next((idx for idx, row in enumerate(rows) if row.submission_id in query.open), 0)
        return place // ROWS_PER_PAGE + 1
    return query.page


def _rest_parameters(query: BoardQuery) -> dict[str, str]:
    """Return what REST takes of a view: its board, its rows and their order."""
    shown = query.parameters()
    names = ("snapshot", "split", "strategy", "model", "benchmark", "scorer_version", "q", "verified", "code")
    return {name: shown[name] for name in (*names, "baselines", "since", "until", "sort") if name in shown}


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
