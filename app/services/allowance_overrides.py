"""Limits that organisers set for a team, or for every team, on a snapshot: listed, and changed with an audit entry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.db import models
from app.errors import ContentError
from app.services.allowance import Limits, set_limits
from app.services.audit import record_audit
from app.services.snapshots import get_snapshot

LIMIT_NAMES = tuple(field.name for field in fields(Limits))
MOST = 2**31 - 1


class InvalidLimitError(ContentError):
    """A limit or team that cannot be used."""

    code = "invalid_limit"
    title = "The limit cannot be used"


@dataclass(frozen=True)
class Override:
    """What is set on a snapshot for a team, or for every team where `team` is None; a limit of None is not set here."""

    snapshot: str
    team: str | None
    hidden_per_day: int | None
    hidden_total: int | None
    open_per_day: int | None
    rejected_per_day: int | None


def list_overrides(session: Session) -> tuple[Override, ...]:
    """Return all limits that are set, by snapshot, those of every team first."""
    table, snapshot, team = models.AllowanceLimit, models.Snapshot, models.Team
    query = (
        select(snapshot.name, team.name, *(getattr(table, name) for name in LIMIT_NAMES))
        .join(snapshot, snapshot.id == table.snapshot_id)
        .outerjoin(team, team.id == table.team_id)
        .order_by(snapshot.name, team.name.nulls_first())
    )
    found = tuple(Override(*row) for row in session.execute(query))
    return tuple(one for one in found if any(getattr(one, name) is not None for name in LIMIT_NAMES))


def set_override(
    session: Session, *, snapshot: str, team: str | None, limits: Mapping[str, int | None], actor: str
) -> Override:
    """Set limits on a snapshot, for a team or for all; None takes one back. Only those that are named change.

    Raises
    ------
    InvalidLimitError : no such team, no such limit, or a number that is none.
    """
    stored = get_snapshot(session, snapshot)
    team_id = None if team is None else session.scalar(select(models.Team.id).where(models.Team.name == team))
    if team is not None and team_id is None:
        raise InvalidLimitError(f"There is no team {team!r}.")
    for name, value in limits.items():
        if name not in LIMIT_NAMES or (value is not None and not 0 <= value <= MOST):
            raise InvalidLimitError(f"{name} is no limit, or {value} is no number of submissions.")
    set_limits(session, stored, team_id=team_id, limits=dict(limits))
    record_audit(
        session,
        actor=actor,
        action="set_allowance",
        subject=f"snapshot {snapshot}",
        details={"team": team, **limits},
    )
    table = models.AllowanceLimit
    query = select(*(getattr(table, name) for name in LIMIT_NAMES)).where(
        table.snapshot_id == stored.id, table.team_id.is_not_distinct_from(team_id)
    )
    return Override(snapshot, team, *session.execute(query).one())


def describe_defaults() -> dict[str, int | None]:
    """Return the limits that hold where nothing is set."""
    return asdict(Limits())
