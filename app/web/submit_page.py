"""The form that takes an action file, and what it sends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import urlencode

from pydantic import BaseModel
from sqlalchemy.orm import Session

from app.config import Config
from app.evaluator.measurements import ALL_SPLITS, SPLITS
from app.evaluator.strategies import Strategy
from app.services.accounts import Identity, list_team_names
from app.services.method_notes import MAX_DESCRIPTION, MAX_METHOD_NAME
from app.services.snapshots import list_snapshots
from app.services.submission_forms import read_form
from app.services.uploads import ReceivedForm
from app.web.formatting import split_title

Form = TypeVar("Form", bound=BaseModel)


@dataclass(frozen=True)
class SubmitPage:
    """What the form offers, and what is chosen in it at first."""

    teams: tuple[str, ...]
    snapshots: tuple[tuple[str, str], ...]
    splits: tuple[tuple[str, str], ...]
    strategies: tuple[Strategy, ...]
    snapshot: str | None
    split: str
    strategy: Strategy
    limit_bytes: int
    max_method_name: int
    max_description: int
    sign_in_address: str
    command: str


def load_submit_page(
    session: Session,
    *,
    config: Config,
    reader: Identity | None,
    snapshot: str | None,
    split: str,
    strategy: Strategy,
) -> SubmitPage:
    """Return the form with these choices; the newest frozen snapshot where none is chosen."""
    frozen = [found for found in list_snapshots(session) if found.is_frozen]
    chosen = snapshot or (frozen[0].name if frozen else None)
    target = {"snapshot": chosen or "", "split": split, "strategy": strategy.value}
    return SubmitPage(
        teams=list_team_names(session, reader) if reader else (),
        snapshots=tuple((found.name, found.title) for found in frozen),
        splits=tuple((name, split_title(name).capitalize()) for name in (*SPLITS, ALL_SPLITS)),
        strategies=tuple(Strategy),
        snapshot=chosen,
        split=split,
        strategy=strategy,
        limit_bytes=config.upload_limit_bytes,
        max_method_name=MAX_METHOD_NAME,
        max_description=MAX_DESCRIPTION,
        sign_in_address=f"/sign-in?{urlencode({'next': f'/submit?{urlencode(target)}'})}",
        command=f"otboard check SNAPSHOT actions.parquet --strategy {strategy} --split {split}",
    )


def read_page_form(form: ReceivedForm, model: type[Form]) -> Form:
    """Return the form's fields that are of the submission; a page may send others."""
    return read_form({name: value for name, value in form.fields.items() if name in model.model_fields}, model)
