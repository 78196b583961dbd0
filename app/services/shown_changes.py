"""Whether anything that boards show has changed since one looked."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from app.db import models


@dataclass(frozen=True)
class ShownState:
    """A state of the tables that boards are made of: another one differs in at least one of the three.

    Triggers add a row in the transaction that changes something, so that it is seen when the change is. The largest
    number alone would not do: of two transactions the one that began first may end last.
    """

    first: int | None
    last: int | None
    n_changes: int


def read_shown_state(session: Session) -> ShownState:
    """Return the state that this transaction sees."""
    number = models.ShownChange.id
    first, last, n_changes = session.execute(select(func.min(number), func.max(number), func.count())).one()
    return ShownState(first, last, n_changes)
