"""The form that takes an action file, and what it sends."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import TypeVar
from urllib.parse import urlencode

from pydantic import BaseModel
from sqlalchemy.orm import Session

from app.config import Config
from app.evaluator.measurements import ALL_SPLITS, SPLITS
from app.evaluator.strategies import Strategy
from app.services.accounts import Identity, list_team_names
from app.services.allowance import Allowance, get_allowance
from app.services.method_notes import (
    MAX_ANONYMITY,
    MAX_DESCRIPTION,
    MAX_HARDWARE,
    MAX_LINK,
    MAX_METHOD_NAME,
    MAX_VERSION,
    list_method_names,
)
from app.services.snapshots import find_snapshot, list_snapshots
from app.services.submission_forms import read_form
from app.services.uploads import ReceivedForm
from app.web.formatting import split_title

LIMITS = {
    "method": MAX_METHOD_NAME,
    "version": MAX_VERSION,
    "description": MAX_DESCRIPTION,
    "link": MAX_LINK,
    "hardware": MAX_HARDWARE,
}
SPLIT_NAMES = (*SPLITS, ALL_SPLITS)

Form = TypeVar("Form", bound=BaseModel)


@dataclass(frozen=True)
class SubmitQuery:
    """What of the form is chosen at first."""

    snapshot: str | None
    split: str
    strategy: Strategy


@dataclass(frozen=True)
class SubmitPage:
    """What the form offers, and what is chosen in it at first."""

    snapshots: tuple[tuple[str, str], ...]
    splits: tuple[tuple[str, str], ...]
    strategies: tuple[Strategy, ...]
    snapshot: str | None
    split: str
    strategy: Strategy
    teams: tuple[str, ...]
    team: str | None
    method_names: tuple[str, ...]
    first_day: date
    last_day: date
    limit_bytes: int
    sign_in_address: str
    sign_up_address: str
    check_command: str
    submit_command: str
    allowance: Allowance | None


def load_submit_page(
    session: Session, query: SubmitQuery, *, reader: Identity | None, config: Config, server: str
) -> SubmitPage:
    """Return the form with these choices; the newest frozen snapshot where none is chosen."""
    frozen = [found for found in list_snapshots(session) if found.is_frozen]
    chosen = query.snapshot or (frozen[0].name if frozen else None)
    row = find_snapshot(session, chosen) if chosen else None
    target = {"snapshot": chosen or "", "split": query.split, "strategy": query.strategy.value}
    way_back = urlencode({"next": f"/submit?{urlencode(target)}"})
    today = datetime.now(UTC).date()
    options = f"--strategy {query.strategy} --split {query.split}"
    return SubmitPage(
        snapshots=tuple((found.name, found.title) for found in frozen),
        splits=tuple((name, split_title(name).capitalize()) for name in SPLIT_NAMES),
        strategies=tuple(Strategy),
        snapshot=chosen,
        split=query.split,
        strategy=query.strategy,
        teams=() if reader is None else list_team_names(session, reader),
        team=None if reader is None else reader.team,
        method_names=() if reader is None else list_method_names(session, reader),
        first_day=today + timedelta(days=1),
        last_day=today + MAX_ANONYMITY,
        limit_bytes=config.upload_limit_bytes,
        sign_in_address=f"/sign-in?{way_back}",
        sign_up_address=f"/sign-up?{way_back}",
        check_command=f"otboard check FOLDER actions.parquet {options}",
        submit_command=(
            f"otboard submit actions.parquet --server {server} --snapshot {chosen or 'NAME'} {options} --method NAME"
        ),
        allowance=get_allowance(session, reader.team_id, row, now=datetime.now(UTC)) if reader and row else None,
    )


def read_page_form(form: ReceivedForm, model: type[Form]) -> Form:
    """Return the form's fields that are of the submission; a page may send others."""
    return read_form({name: value for name, value in form.fields.items() if name in model.model_fields}, model)
