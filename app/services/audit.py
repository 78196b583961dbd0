"""The audit log: who did what to what, and when. Rows are only ever added."""

from __future__ import annotations

from typing import Any

from sqlalchemy.orm import Session

from app.db import models

COMMAND_LINE = "command line"


def record_audit(
    session: Session, *, actor: str, action: str, subject: str, details: dict[str, Any] | None = None
) -> None:
    """Add an act to the log: the actor's name, a snake_case verb phrase such as `flag_submission`, and what it was
    done to, such as `submission k3J9xQ2mTz7A`.

    An account is named `account 17` in subject and details, never by its name: what a deleted account was called is
    taken out of `actor` only.
    """
    session.add(models.AuditEvent(actor=actor, action=action, subject=subject, details=details or {}))
    session.flush()
