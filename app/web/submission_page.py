"""A submission's page: where it stands, and once it is scored what it reached, where, and with which settings."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from sqlalchemy.orm import Session

from app.config import Config
from app.evaluator.scorers import current_scorer_version
from app.plots.captions import Caption, describe_data, describe_realised
from app.plots.palette import METHOD_STYLES
from app.plots.traces import MethodLine
from app.services.accounts import Identity
from app.services.allowance import Allowance, find_team_id, get_allowance
from app.services.board_lines import BoardKey, find_board_curve, list_frontiers, list_operating_points
from app.services.identical_uploads import IdenticalUpload, list_identical_uploads
from app.services.operating_rows import OperatingRow, Order, SortKey, list_rows
from app.services.receipts import may_have_receipt
from app.services.release import ReleasedFrontier
from app.services.scoring import get_score, list_told_versions
from app.services.snapshots import get_snapshot
from app.services.submissions import (
    SubmissionChange,
    SubmissionDetails,
    SubmissionState,
    get_submission,
    list_events,
    may_organise,
)
from app.services.waiting import find_wait
from app.web.board_figures import describe_place
from app.web.figures import FigureView, load_lines, show_board_figure
from app.web.formatting import percent, points
from app.web.losses_view import LossesView, load_losses
from app.web.panels import KeyEntry
from app.web.settings_view import SettingsView, show_settings

SCORED_STATES = (SubmissionState.SCORED, SubmissionState.PUBLISHED, SubmissionState.WITHDRAWN)

# What the page does anyway stays out of its address.
UNSAID = (("axis", "linear"), ("sort", "setting"), ("order", "asc"))
LOSS_KEY = (
    KeyEntry("Stopped early; tokens forgone", "loss-early"),
    KeyEntry("Stopped late; tokens wasted", "loss-late"),
)

Document = Mapping[str, Any]


@dataclass(frozen=True)
class BoardCell:
    """A submission's figures on one board, with the address that plots them; `board` is None where it has none."""

    board: Document | None
    address: str
    is_shown: bool


@dataclass(frozen=True)
class BoardGrid:
    """All boards of a score, models down and benchmarks across, the averages last in both directions."""

    benchmarks: tuple[str, ...]
    rows: tuple[tuple[str, tuple[BoardCell, ...]], ...]


@dataclass(frozen=True)
class ScoreView:
    """What a score says: the figures of the board shown, its plot, all boards, the settings on that board."""

    headline: str
    place: str
    board: Document
    sentences: tuple[str, ...]
    figure: FigureView | None
    axis_address: str
    grid: BoardGrid
    settings_view: SettingsView | None
    losses: LossesView | None
    settings_address: str
    file_order_address: str
    loss_key: tuple[KeyEntry, ...]
    scorer_version: str
    versions: tuple[tuple[str, str], ...]
    newer_version: str | None
    held_back: tuple[Document, ...]
    quantum: float | None


@dataclass(frozen=True)
class Organising:
    """What an organiser is shown beside: the submissions of other teams with the same bytes."""

    identical: tuple[IdenticalUpload, ...]


@dataclass(frozen=True)
class SubmissionPage:
    """Everything the template of a submission shows; `seen` is what a script compares to notice a change."""

    submission: SubmissionDetails
    events: tuple[SubmissionChange, ...]
    worker_alive: bool
    estimated_seconds: float | None
    seen: str
    score: ScoreView | None
    has_receipt: bool
    board_address: str
    compare_address: str
    submit_address: str
    organising: Organising | None
    allowance: Allowance | None


@dataclass(frozen=True)
class BoardChoice:
    """Which of a submission's boards its page plots, how its settings are listed, and by which scorer version.

    Without a version it is the one that the boards show.
    """

    model: str | None = None
    benchmark: str | None = None
    axis: str = "linear"
    sort: SortKey = "setting"
    order: Order = "asc"
    settings: str = ""
    scorer_version: str | None = None
    losses: str = ""

    def address(self, submission_id: str, **changes: str | None) -> str:
        """Return the address of the page with this board, or with these changes."""
        shown = {**vars(self), **changes}
        parameters = {name: value for name, value in shown.items() if value and (name, value) not in UNSAID}
        return f"/submissions/{submission_id}{'?' if parameters else ''}{urlencode(parameters)}"


def load_submission_page(
    session: Session, submission_id: str, *, reader: Identity | None, choice: BoardChoice, config: Config
) -> SubmissionPage:
    """Return a submission that the reader may see, with its score where there is one."""
    submission = get_submission(session, submission_id, account=reader)
    wait = find_wait(session, submission)
    is_alive = wait is not None and wait.worker_alive
    is_tombstone = submission.state == SubmissionState.WITHDRAWN and not submission.is_mine
    has_score = submission.state in SCORED_STATES and submission.scored_at is not None and not is_tombstone
    is_published = submission.state == SubmissionState.PUBLISHED
    query = {"snapshot": submission.snapshot, "split": submission.split, "strategy": submission.strategy.value}
    return SubmissionPage(
        submission=submission,
        events=list_events(session, submission_id, account=reader),
        worker_alive=is_alive,
        estimated_seconds=None if wait is None else wait.seconds,
        seen=write_seen(submission, is_alive=is_alive),
        score=load_score_view(session, submission, reader=reader, choice=choice, config=config) if has_score else None,
        has_receipt=has_score and may_have_receipt(session, submission),
        board_address=f"/?{urlencode(query)}",
        compare_address=f"/?{urlencode({**query, 'pin': submission.id})}" if is_published else "",
        submit_address=f"/submit?{urlencode(query)}",
        organising=load_organising(session, submission) if may_organise(reader) else None,
        allowance=find_team_allowance(session, submission, reader=reader),
    )


def load_organising(session: Session, submission: SubmissionDetails) -> Organising:
    """Return what an organiser is shown of a submission beside what everyone is."""
    found = list_identical_uploads(session, actions_sha256=submission.actions_sha256)
    return Organising(tuple(upload for upload in found if upload.submission_id != submission.id))


def find_team_allowance(
    session: Session, submission: SubmissionDetails, *, reader: Identity | None
) -> Allowance | None:
    """Return what the submission's team may still submit on its snapshot, to those who belong to the team."""
    if reader is None or not submission.is_mine:
        return None
    snapshot = get_snapshot(session, submission.snapshot)
    return get_allowance(session, find_team_id(session, submission.id), snapshot, now=datetime.now(UTC))


def write_seen(submission: SubmissionDetails, *, is_alive: bool) -> str:
    """Return what the page's script builds from the REST resource to notice a change."""
    parts = (submission.state, submission.queue_place, submission.attempts, submission.progress, str(is_alive).lower())
    return " ".join("" if part is None else str(part) for part in parts)


def load_score_view(
    session: Session,
    submission: SubmissionDetails,
    *,
    reader: Identity | None,
    choice: BoardChoice,
    config: Config,
) -> ScoreView | None:
    """Return the score; None where no board of it can be shown."""
    stored = get_score(session, submission.id, account=reader, scorer_version=choice.scorer_version)
    document = json.loads(stored.text)
    board = choose_board(document["boards"], choice)
    if board is None:
        return None
    choice = replace(choice, model=board["model"], benchmark=board["benchmark"])
    key = BoardKey(choice.model, choice.benchmark)
    # A score of a split whose labels are hidden has no settings.
    rows = list_rows(session, submission, document, board=key) if document.get("settings") else ()
    return ScoreView(
        headline=describe_score(submission, board),
        place=describe_board(board),
        board=board,
        sentences=describe_figures(board),
        figure=load_figure(
            session,
            submission,
            board,
            scorer_version=stored.scorer_version,
            data_dir=config.data_dir,
            is_log=choice.axis == "log",
        ),
        axis_address=choice.address(submission.id, axis="linear" if choice.axis == "log" else "log"),
        grid=arrange_boards(document["boards"], submission.id, choice),
        settings_view=load_settings(submission, rows, choice=choice),
        losses=load_losses(
            session,
            submission,
            rows,
            reader=reader,
            board=key,
            setting=choice.losses,
            subtitle=write_subtitle(submission, choice),
            config=config,
        ),
        settings_address=address_settings(submission.id, choice),
        file_order_address=f"{choice.address(submission.id, sort='setting', order='asc')}#settings",
        loss_key=LOSS_KEY,
        scorer_version=stored.scorer_version,
        versions=tuple(
            (version, choice.address(submission.id, scorer_version=version))
            for version in list_told_versions(session, submission)
        ),
        newer_version=None if stored.scorer_version == current_scorer_version() else current_scorer_version(),
        held_back=tuple(document.get("held_back", ())),
        quantum=board.get("quantum"),
    )


def load_settings(
    submission: SubmissionDetails, rows: Sequence[OperatingRow], *, choice: BoardChoice
) -> SettingsView | None:
    """Return the settings on the board shown; None where labels are hidden, and with them what a setting reached."""
    if not rows:
        return None
    return show_settings(
        rows,
        sort=choice.sort,
        order=choice.order,
        shows_all=choice.settings == "all",
        make_address=lambda **changes: choice.address(submission.id, **changes),
        caption=Caption(submission.method, write_subtitle(submission, choice)),
        download_name=f"{submission.id}-{submission.snapshot}-{submission.split}",
    )


def write_subtitle(submission: SubmissionDetails, choice: BoardChoice) -> str:
    """Return what the small figures of the page are of."""
    subtitle = describe_data(
        snapshot=submission.snapshot,
        split=submission.split,
        place=describe_board({"model": choice.model, "benchmark": choice.benchmark}),
        n_questions=None,
        kind=submission.kind,
    )
    return f"{submission.method}. {subtitle}"


def address_settings(submission_id: str, choice: BoardChoice) -> str:
    """Return the REST address of the settings on the board shown."""
    place = {"model": choice.model, "benchmark": choice.benchmark, "sort": choice.sort, "order": choice.order}
    place |= {"scorer_version": choice.scorer_version}
    return f"/api/v1/submissions/{submission_id}/operating-points?{urlencode({k: v for k, v in place.items() if v})}"


def choose_board(boards: Sequence[Document], choice: BoardChoice) -> Document | None:
    """Return the board asked for; where the submission does not stand there, its widest one, or None without any."""
    asked = (choice.model, choice.benchmark)
    found = next((board for board in boards if (board["model"], board["benchmark"]) == asked), None)
    return found or max(boards, key=lambda board: board["n_cells"], default=None)


def arrange_boards(boards: Sequence[Document], submission_id: str, choice: BoardChoice) -> BoardGrid:
    """Return the boards as a grid; the boards of a whole model or benchmark stand at its end."""
    found = {(board["model"], board["benchmark"]): board for board in boards}
    all_models = list(dict.fromkeys(model for model, _ in found if model is not None))
    all_benchmarks = list(dict.fromkeys(benchmark for _, benchmark in found if benchmark is not None))

    def show(model: str | None, benchmark: str | None) -> BoardCell:
        address = choice.address(submission_id, model=model, benchmark=benchmark)
        is_shown = (model, benchmark) == (choice.model, choice.benchmark)
        return BoardCell(found.get((model, benchmark)), f"{address}#board-figure", is_shown)

    return BoardGrid(
        benchmarks=(*all_benchmarks, "All benchmarks"),
        rows=tuple(
            (model or "All models", tuple(show(model, benchmark) for benchmark in (*all_benchmarks, None)))
            for model in (*all_models, None)
        ),
    )


def load_figure(
    session: Session,
    submission: SubmissionDetails,
    board: Document,
    *,
    scorer_version: str,
    data_dir: Path,
    is_log: bool,
) -> FigureView | None:
    """Return the plot of one board, or None where its frontier is not stored."""
    snapshot = get_snapshot(session, submission.snapshot)
    key = BoardKey(board["model"], board["benchmark"])
    frontier = list_frontiers(session, snapshot, split=submission.split, board=key).get(submission.strategy)
    curve = find_board_curve(session, submission.id, board=key, scorer_version=scorer_version)
    if frontier is None or curve is None:
        return None
    settings = list_operating_points(session, [submission.id], board=key, scorer_version=scorer_version).get(
        submission.id, ()
    )
    method = MethodLine(submission.method, curve, METHOD_STYLES[0], settings)
    return show_board_figure(
        load_lines(session, snapshot, frontier, data_dir=data_dir, is_log=is_log),
        [method],
        caption=caption_figure(submission, frontier),
        download_name=f"{submission.id}-{submission.snapshot}-{submission.split}",
        is_log=is_log,
    )


def caption_figure(submission: SubmissionDetails, frontier: ReleasedFrontier) -> Caption:
    """Return the plot's title and subtitle."""
    return Caption(
        title=f"{submission.method} between the constants and the oracle",
        subtitle=describe_data(
            snapshot=submission.snapshot,
            split=submission.split,
            place=describe_place(frontier),
            n_questions=None,
            kind=submission.kind,
        ),
    )


def describe_board(board: Document) -> str:
    """Return a board's name."""
    if board["model"] and board["benchmark"]:
        return f"{board['model']} on {board['benchmark']}"
    return board["model"] or board["benchmark"] or "the whole snapshot"


def describe_score(submission: SubmissionDetails, board: Document) -> str:
    """Return the sentence that heads the page."""
    realised = board["realised_potential"]
    if realised is None:
        return f"{submission.method} has an area of {percent(board['area'])}; there is no potential to realise here"
    return describe_realised(submission.method, submission.strategy, realised)


def describe_figures(board: Document) -> tuple[str, ...]:
    """Return a board's figures as sentences."""
    lead = board["area"] - board["uninformed_area"]
    matching = (
        "It never reaches the accuracy of full thinking."
        if board["beta_match"] is None
        else f"It reaches the accuracy of full thinking at {percent(board['beta_match'])} of the tokens."
    )
    return (
        f"Over all budgets it is {points(board['gap'])} below the oracle and {points(abs(lead))} "
        f"{'above' if lead >= 0 else 'below'} the best mix of constant policies.",
        matching,
    )
