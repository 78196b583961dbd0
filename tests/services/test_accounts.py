"""The local account and its token."""

from __future__ import annotations

import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

from sqlalchemy import func, select, update
from sqlalchemy.orm import Session

from app.db import models
from app.services.accounts import ensure_account, ensure_local_account, find_account_by_token


def test_the_local_account_keeps_its_token(session: Session, tmp_path: Path) -> None:
    token = ensure_local_account(session, tmp_path)
    assert token.startswith("otb_")
    assert len(token) > 40
    assert ensure_local_account(session, tmp_path) == token
    account = find_account_by_token(session, token)
    assert account is not None
    assert (account.name, account.team, account.is_control) == ("local", "local", False)
    file = tmp_path / "local-token"
    assert file.read_text().strip() == token
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_the_database_knows_only_a_hash(session: Session, tmp_path: Path) -> None:
    token = ensure_local_account(session, tmp_path)
    stored = session.scalars(select(models.ApiToken)).one()
    assert token not in {stored.token_sha256, stored.name}


def test_a_removed_token_file_ends_the_old_token(session: Session, tmp_path: Path) -> None:
    old = ensure_local_account(session, tmp_path)
    (tmp_path / "local-token").unlink()
    new = ensure_local_account(session, tmp_path)
    assert new != old
    session.execute(update(models.ApiToken).values(expires_at=models.ApiToken.expires_at - timedelta(seconds=1)))
    assert find_account_by_token(session, old) is None
    assert find_account_by_token(session, new) is not None


def test_unknown_and_expired_tokens_are_nobody_s(session: Session, tmp_path: Path) -> None:
    token = ensure_local_account(session, tmp_path)
    for unknown in ("", "otb_", token[:-1], token + "x"):
        assert find_account_by_token(session, unknown) is None
    session.execute(update(models.ApiToken).values(expires_at=datetime.now(UTC) - timedelta(minutes=1)))
    assert find_account_by_token(session, token) is None


def test_the_use_of_a_token_is_noted_now_and_then(session: Session, tmp_path: Path) -> None:
    token = ensure_local_account(session, tmp_path)
    find_account_by_token(session, token)
    stored = session.scalars(select(models.ApiToken)).one()
    first = stored.last_used_at
    assert first is not None
    find_account_by_token(session, token)
    assert stored.last_used_at == first
    stored.last_used_at = first - timedelta(hours=1)
    find_account_by_token(session, token)
    assert stored.last_used_at > first - timedelta(hours=1)


def test_an_account_is_made_once(session: Session) -> None:
    first = ensure_account(session, name="controls", team="controls", is_control=True)
    assert ensure_account(session, name="controls", team="controls", is_control=True) == first
    assert first.is_control
    assert session.scalar(select(func.count()).select_from(models.Team)) == 1
