"""The questions on which a submission loses most, on its page: a table, and the worst trajectory of each drawn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

import numpy as np
from sqlalchemy.orm import Session

from app.config import Config
from app.plots.captions import Caption
from app.plots.panels import DataTable
from app.plots.stops import draw_stop
from app.services.accounts import Identity
from app.services.board_lines import BoardKey
from app.services.losses import QuestionLoss, find_losses
from app.services.operating_rows import OperatingRow
from app.services.submissions import SubmissionDetails
from app.web.panels import PanelView, show_panel

N_QUESTIONS = 10
N_DRAWN = 6


@dataclass(frozen=True)
class LossRow:
    """A question with the address of all its trajectories."""

    loss: QuestionLoss
    address: str


@dataclass(frozen=True)
class LossesView:
    """The worst questions of one setting; `is_ready` is False while a job works out where the submission stops."""

    is_ready: bool
    setting: str
    settings: tuple[tuple[str, str], ...]
    hidden_fields: tuple[tuple[str, str], ...]
    n_questions: int
    rows: tuple[LossRow, ...]
    panels: tuple[PanelView, ...]
    rest_address: str


def load_losses(
    session: Session,
    submission: SubmissionDetails,
    rows: Sequence[OperatingRow],
    *,
    reader: Identity | None,
    board: BoardKey,
    setting: str,
    subtitle: str,
    config: Config,
) -> LossesView | None:
    """Return the worst questions of the setting asked for, else of the most accurate; None where there is none.

    Parameters
    ----------
    rows : the submission's settings on the board.
    """
    covering = [row for row in rows if row.accuracy is not None]
    if not covering:
        return None
    names = [row.setting for row in covering]
    chosen = setting if setting in names else choose_setting(covering)
    place = {"model": board.model or "", "benchmark": board.benchmark or ""}
    rest = urlencode({"setting": chosen, **{key: value for key, value in place.items() if value}})
    shared = {
        "setting": chosen,
        "settings": tuple((name, name) for name in names),
        "hidden_fields": tuple((key, value) for key, value in place.items() if value),
        "rest_address": f"/api/v1/submissions/{submission.id}/losses?{rest}",
    }
    losses = find_losses(
        session, submission.id, account=reader, setting=chosen, board=board, limit=N_QUESTIONS, config=config
    )
    if losses is None:
        return LossesView(is_ready=False, n_questions=0, rows=(), panels=(), **shared)  # type: ignore[arg-type]
    return LossesView(
        is_ready=True,
        n_questions=losses.n_questions,
        rows=tuple(LossRow(loss, _address(submission, loss)) for loss in losses.questions),
        panels=tuple(_draw(loss, n, subtitle, submission.id) for n, loss in enumerate(losses.questions[:N_DRAWN], 1)),
        **shared,  # type: ignore[arg-type]
    )


def choose_setting(rows: Sequence[OperatingRow]) -> str:
    """Return the most accurate setting; of equals the cheapest, then the first."""
    key: Callable[[OperatingRow], tuple[float, float]] = lambda row: (-(row.accuracy or 0), row.beta or 0)  # noqa: E731
    return min(rows, key=key).setting


def _address(submission: SubmissionDetails, loss: QuestionLoss) -> str:
    query = {"model": loss.model, "benchmark": loss.benchmark, "question_id": loss.question_id}
    return f"/snapshots/{submission.snapshot}/trajectories?{urlencode({'split': submission.split, **query})}"


def _draw(loss: QuestionLoss, number: int, subtitle: str, submission_id: str) -> PanelView:
    curve = loss.worst
    stop = loss.stops[curve.trajectory]
    tokens = np.array(curve.retained_tokens, dtype=np.float64)
    accuracy = np.array(curve.correct_probes, dtype=np.float64) / curve.probes_per_position
    share = tokens / max(1.0, float(tokens[-1]))
    figure = draw_stop(share, accuracy, reference=stop.reference, stop=stop.position, oracle=stop.oracle_position)
    title = f"{loss.model}, {loss.benchmark}, {loss.question_id}, trajectory {stop.trajectory}"
    points = zip(curve.retained_tokens, curve.correct_probes, strict=True)
    return show_panel(
        figure,
        name=f"loss-figure-{number}",
        caption=Caption(title, subtitle),
        download_name=f"{submission_id}-{loss.question_id}-{stop.trajectory}",
        sentence=f"Stopped at position {stop.position} of {stop.n_steps} and lost {stop.lost_probes} of "
        f"{curve.probes_per_position} probes against position {stop.reference}, the best one; the oracle stops at "
        f"position {stop.oracle_position} at the setting’s cost.",
        table=DataTable(
            ("Position k", "Tokens kept L(k)", "Right probes C(k)"),
            tuple((position, tokens, correct) for position, (tokens, correct) in enumerate(points)),
        ),
    )
