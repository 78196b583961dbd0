"""The figure of the board's page: one plot of the rows that are shown, or one for each model or benchmark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlencode

import plotly.graph_objects as go
from sqlalchemy.orm import Session

from app.db import models
from app.plots.board import build_board_figure
from app.plots.captions import STRATEGY_ADJECTIVES, Caption, describe_data, describe_oracle, describe_realised
from app.plots.leading import find_leading
from app.plots.multiples import MULTIPLES_KEY, Panel, build_multiples_figure
from app.plots.palette import CONTROL_STYLE, LineStyle
from app.plots.traces import FrontierLines, MethodLine
from app.services.board_lines import BoardKey, list_frontiers, list_operating_points, list_whiskers
from app.services.leaderboard import BoardRow, Leaderboard, list_board_curves
from app.services.release import ReleasedFrontier
from app.services.snapshots import get_snapshot
from app.web.board_query import BoardQuery, By
from app.web.board_rows import list_vivid, show_swatch
from app.web.figures import FigureView, LegendEntry, load_lines, read_frontier, show_board_figure


@dataclass(frozen=True)
class DrawnRows:
    """The rows of the whole board that a figure draws, and how; `is_part` where not all that are chosen are drawn."""

    whole: Leaderboard
    board: Leaderboard
    styles: Mapping[str, LineStyle]
    is_part: bool


def describe_figure(
    session: Session, query: BoardQuery, drawn: DrawnRows, frontier: ReleasedFrontier, *, data_dir: Path
) -> FigureView:
    """Return what a page says of its figure: the coloured lines in words and numbers, and where the picture is."""
    board = drawn.board
    snapshot = get_snapshot(session, board.snapshot)
    lines = load_lines(session, snapshot, frontier, data_dir=data_dir, is_log=query.is_log)
    vivid = list_vivid(board.rows, drawn.styles)
    figure = show_board_figure(
        lines,
        load_methods(session, replace(board, rows=tuple(vivid)), query, styles=drawn.styles),
        caption=caption_board(drawn.whole, frontier, lines),
        download_name=name_download(query),
        source=query.address("/figures/board", open=()),
        csv=address_curves(query),
    )
    if query.by is By.WHOLE:
        return replace(figure, key=f"{figure.key} Not every method is drawn.") if drawn.is_part else figure
    swatches = [(row.method, show_swatch(drawn.styles[row.submission_id])) for row in vivid]
    return replace(
        figure,
        key=MULTIPLES_KEY,
        shape=f"panels panels-{len(list_panel_keys(snapshot, query))}",
        legend=tuple(LegendEntry(name, swatch.css_class, swatch.dash) for name, swatch in swatches),
    )


def draw_figure(
    session: Session, query: BoardQuery, drawn: DrawnRows, frontier: ReleasedFrontier, *, data_dir: Path
) -> go.Figure:
    """Return the picture itself."""
    snapshot = get_snapshot(session, drawn.board.snapshot)
    lines = load_lines(session, snapshot, frontier, data_dir=data_dir, is_log=query.is_log)
    caption = caption_board(drawn.whole, frontier, lines)
    if query.by is not By.WHOLE:
        return build_multiples_figure(load_panels(session, query, drawn), caption=caption, is_log=query.is_log)
    board = drawn.board
    if query.lines == "frontier":
        board = replace(board, rows=tuple(row for row in board.rows if not row.is_control))
    methods = load_methods(session, board, query, styles=drawn.styles)
    if query.lines == "frontier":
        leads = find_leading([method.steps for method in methods])
        methods = [method for method, is_leading in zip(methods, leads, strict=True) if is_leading]
    return build_board_figure(lines, methods, caption=caption, is_log=query.is_log)


def load_methods(
    session: Session, board: Leaderboard, query: BoardQuery, *, styles: Mapping[str, LineStyle]
) -> list[MethodLine]:
    """Return the lines of a board's rows, in their order, with what the view adds to them."""
    curves = list_board_curves(session, board)
    vivid = [row.submission_id for row in board.rows if styles[row.submission_id] is not CONTROL_STYLE]
    key = BoardKey(board.model, board.benchmark)
    points_of = list_operating_points(session, vivid, board=key, scorer_version=board.scorer_version)
    whiskers_of = {}
    if query.intervals:
        whiskers_of = list_whiskers(session, vivid, board=key, scorer_version=board.scorer_version)
    return [
        MethodLine(
            row.method,
            curves[row.submission_id],
            styles[row.submission_id],
            points_of.get(row.submission_id, ()),
            key=row.submission_id,
            whiskers=whiskers_of.get(row.submission_id, ()),
        )
        for row in board.rows
        if row.submission_id in curves
    ]


def list_panel_keys(snapshot: models.Snapshot, query: BoardQuery) -> list[tuple[BoardKey, str]]:
    """Return the boards of the small multiples with their titles; one choice of the view stays for all of them."""
    is_model = query.by is By.MODEL
    named = snapshot.manifest["models" if is_model else "benchmarks"]
    keys = []
    for item in named:
        name = item["name"]
        key = BoardKey(name, query.benchmark) if is_model else BoardKey(query.model, name)
        keys.append((key, item.get("title") or name))
    return keys


def load_panels(session: Session, query: BoardQuery, drawn: DrawnRows) -> list[Panel]:
    """Return a panel for each model or benchmark whose frontier is stored, with the coloured methods' curves there."""
    snapshot = get_snapshot(session, drawn.board.snapshot)
    vivid = tuple(list_vivid(drawn.board.rows, drawn.styles))
    panels = []
    for key, title in list_panel_keys(snapshot, query):
        frontier = list_frontiers(session, snapshot, split=drawn.board.split, board=key).get(query.strategy)
        if frontier is not None:
            board = replace(drawn.board, model=key.model, benchmark=key.benchmark, rows=vivid)
            methods = load_methods(session, board, query, styles=drawn.styles)
            panels.append(Panel(title, read_frontier(frontier), tuple(methods)))
    return panels


def caption_board(board: Leaderboard, frontier: ReleasedFrontier, lines: FrontierLines) -> Caption:
    """Return the figure's title, what the best method realises, and its subtitle, on which data."""
    return Caption(
        title=describe_best(board.rows, lines),
        subtitle=describe_data(
            snapshot=board.snapshot,
            split=board.split,
            place=describe_place(frontier),
            n_questions=None,
            kind=board.kind,
        ),
    )


def describe_best(rows: Sequence[BoardRow], lines: FrontierLines) -> str:
    """Return the title: what the best method that is no control realises, else what the oracle reaches."""
    known = (row for row in rows if not row.is_control and row.flag_reason is None)
    best = next((row for row in known if row.realised_potential is not None), None)
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


def name_download(query: BoardQuery) -> str:
    """Return the name of the file that the picture is saved as."""
    parts = (query.snapshot, query.split, query.strategy, query.model, query.benchmark)
    by = () if query.by is By.WHOLE else (f"by-{query.by}",)
    return "-".join([part for part in parts if part] + list(by))


def address_curves(query: BoardQuery) -> str:
    """Return where the figure's numbers are."""
    shown = query.parameters()
    names = ("snapshot", "split", "strategy", "model", "benchmark", "by", "q", "verified", "code", "baselines")
    kept = {name: shown[name] for name in (*names, "since", "until", "scorer_version") if name in shown}
    return f"/api/v1/leaderboard/curves?{urlencode({**kept, 'format': 'csv'})}"
