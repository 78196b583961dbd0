"""Which snapshot takes the place of which: what the boards of an older one say."""

from __future__ import annotations

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from app.db import models


def list_successors(session: Session) -> dict[str, str]:
    """Return the snapshot that takes the place of each superseded one: its name, by the old one's identity.

    A snapshot names those that it supersedes in its manifest, and its word counts once it is frozen. Of several
    successors it is the latest imported; where that one was superseded as well, it is the end of the chain. The
    identities are those that scores refer to. One query.
    """
    snapshot = models.Snapshot
    identity = func.coalesce(snapshot.manifest["full_sha256"].as_string(), snapshot.sha256)
    query = (
        select(snapshot.name, identity, snapshot.manifest["supersedes"])
        .where(snapshot.state == "frozen", snapshot.manifest["supersedes"].as_string().is_not(None))
        .order_by(snapshot.id)
    )
    names: dict[str, str] = {}
    next_one: dict[str, str] = {}
    for name, sha256, superseded in session.execute(query):
        names[sha256] = name
        next_one.update({entry["sha256"]: sha256 for entry in superseded})
    return {sha256: names[_follow(sha256, next_one)] for sha256 in next_one}


def find_successor(session: Session, snapshot: models.Snapshot) -> str | None:
    """Return the name of the snapshot that takes the place of this one, or None."""
    return list_successors(session).get(snapshot.full_sha256)


def _follow(sha256: str, next_one: dict[str, str]) -> str:
    """Return the end of a chain. An identity covers what its snapshot supersedes, so there is no way round a circle.

    A public export states the identity of another snapshot without proof, so that here a circle ends where it closes.
    """
    seen = {sha256}
    while (following := next_one.get(sha256)) is not None:
        sha256 = following
        if sha256 in seen:
            break
        seen.add(sha256)
    return sha256
