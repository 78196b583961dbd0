"""The models that can be measured: those whose profiles are shipped, and those that somebody registered."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.db import models
from app.errors import NotFoundError
from app.files.profiles import Profile, list_profiles, profile_document
from app.services.paging import read_cursor, write_cursor
from app.services.probe_runs import register_profile


class UnknownProfileError(NotFoundError):
    """No profile has this name."""

    code = "unknown_profile"
    title = "No such model profile"


@dataclass(frozen=True)
class ModelDetails:
    """A model with its profile; `registered_at` is None for one whose profile is shipped."""

    name: str
    repository: str
    revision: str | None
    license: str | None
    is_builtin: bool
    registered_at: datetime | None
    profile: dict[str, Any]


@dataclass(frozen=True)
class ModelPage:
    """Some models, by name, and the cursor of the next page."""

    items: tuple[ModelDetails, ...]
    next_cursor: str | None


@dataclass(frozen=True)
class Registration:
    """A registered model, and whether its name is new."""

    model: ModelDetails
    created: bool


def list_models(session: Session, *, limit: int = 50, cursor: str | None = None) -> ModelPage:
    """Return models by name, each once: a registered profile stands before a shipped one of its name. One query."""
    last = None if cursor is None else read_cursor(cursor, n_parts=1)[0]
    row = models.ModelProfile
    # The database sorts as its locale does, so that order and paging are done here: there are never many.
    known = {profile.name: _describe(profile_document(profile), None) for profile in list_profiles()}
    known |= {found.name: _describe(found.document, found.created_at) for found in session.scalars(select(row))}
    names = sorted(name for name in known if last is None or name > last)
    shown = names[:limit]
    more = len(names) > limit
    return ModelPage(tuple(known[name] for name in shown), write_cursor((shown[-1],)) if more else None)


def get_model(session: Session, name: str) -> ModelDetails:
    """Return a model by its name or raise `UnknownProfileError`."""
    found = session.scalar(select(models.ModelProfile).where(models.ModelProfile.name == name))
    if found is not None:
        return _describe(found.document, found.created_at)
    for profile in list_profiles():
        if profile.name == name:
            return _describe(profile_document(profile), None)
    raise UnknownProfileError(f"There is no profile of a model {name!r}.")


def register_model(session: Session, profile: Profile, *, account_id: int) -> Registration:
    """Keep a profile under its name; runs that were created with an earlier one of that name keep theirs."""
    row = models.ModelProfile
    known = session.scalar(select(row.id).where(row.name == profile.name))
    register_profile(session, profile, account_id=account_id)
    return Registration(get_model(session, profile.name), created=known is None)


def _describe(document: dict[str, Any], registered_at: datetime | None) -> ModelDetails:
    return ModelDetails(
        name=document["name"],
        repository=document["repository"],
        revision=document.get("revision"),
        license=document.get("license"),
        is_builtin=registered_at is None,
        registered_at=registered_at,
        profile=document,
    )
