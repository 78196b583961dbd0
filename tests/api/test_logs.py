"""No line of the log holds a secret: not of what people type, not of what is sent, not of what the database quotes."""

from __future__ import annotations

import io
import logging
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
from sqlalchemy import select
from sqlalchemy.exc import IntegrityError

from app.db import models
from app.log import QUIET, configure_logging
from app.services.oidc import Provider
from app.services.sign_up import invite_account, issue_reset_link
from app.web.cookies import FORM_COOKIE, SESSION_COOKIE
from tests.provider import CLIENT_ID, CLIENT_SECRET, TestProvider
from tests.signing_in import PASSWORD, SAME_ORIGIN, read_form_token, send_form

OTHER_PASSWORD = "another walk in other woods"


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    """What the program logs at the most talkative level, as it would be written."""
    root, written = logging.getLogger(), io.StringIO()
    before = root.handlers[:], root.level, {name: logging.getLogger(name).level for name in QUIET}
    configure_logging("DEBUG")
    (handler,) = root.handlers
    assert isinstance(handler, logging.StreamHandler)
    handler.setStream(written)
    yield written
    root.handlers[:] = before[0]
    root.setLevel(before[1])
    for name, level in before[2].items():
        logging.getLogger(name).setLevel(level)


@pytest.fixture
def browser(board: Any) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=board.reader.base_url, trust_env=False, timeout=60, headers=SAME_ORIGIN) as client:
        yield client


def issue_links(board: Any) -> dict[str, str]:
    now = datetime.now(UTC)
    with board.sessions.begin() as session:
        reset = issue_reset_link(session, "grace", by=None, actor="a test", now=now)
        return {"reset code": reset, "invitation": invite_account(session, actor="a test", now=now)}


def test_a_newcomers_secrets(board: Any, browser: httpx.Client, log: io.StringIO, make_caps: Any) -> None:
    secrets = {"password": PASSWORD, "other password": OTHER_PASSWORD, "token of the server": board.token}
    send_form(browser, "/sign-up", name="grace", password=PASSWORD)
    shown = send_form(browser, "/account/tokens", page="/account", name="laptop", scope=["read", "submit"], days="30")
    secrets["token"] = re.findall(r"otb_[A-Za-z0-9_-]{20,}", shown.text)[0]
    secrets["form token"] = read_form_token(shown.text)
    secrets["session cookie"] = browser.cookies[SESSION_COOKIE]
    secrets["form cookie"] = browser.cookies[FORM_COOKIE]
    send_form(browser, "/teams", name="deep-exit")
    invited = send_form(browser, "/teams/deep-exit/invitations", page="/teams/deep-exit").text
    secrets["team's invitation"] = re.findall(r"/join-team#([A-Za-z0-9_-]{43})", invited)[0]
    headers = {"Authorization": f"Bearer {secrets['token']}"}
    with httpx.Client(base_url=board.reader.base_url, headers=headers, trust_env=False, timeout=60) as script:
        secrets["file's contents"] = "file-contents-of-grace"
        bad = board.send(make_caps(200).replace(b"math-test-00", b"file-contents-of-grace"), client=script)
        good = board.send(make_caps(200), client=script, method="grace-method")
        for answer in (bad, good):
            board.score(answer.json()["id"])
        assert script.get(f"/api/v1/submissions/{bad.json()['id']}").json()["state"] == "rejected"
        # A file that ends in the middle, a wrong token, a wrong body.
        broken = {"Content-Type": "multipart/form-data; boundary=x"}
        assert script.post("/api/v1/submissions", content=b"--x\r\n", headers=broken).status_code == 400
        assert script.get("/api/v1/me", headers={"Authorization": "Bearer otb_wrong-token"}).status_code == 401
        assert script.post("/api/v1/me/tokens", json={"name": "otb_wrong-token", "days": -1}).status_code == 422
    secrets["wrong token"] = "otb_wrong-token"
    secrets |= issue_links(board)
    browser.cookies.clear()
    wrong = send_form(browser, "/sign-in", name="grace", password="a wrong password of grace")
    assert wrong.status_code == 401
    secrets["wrong password"] = "a wrong password of grace"
    reset = send_form(browser, "/reset-password", code=secrets["reset code"], password=OTHER_PASSWORD)
    assert reset.status_code == 303
    secrets["second cookie"] = browser.cookies[SESSION_COOKIE]
    with board.sessions() as session:
        account = select(models.Account).where(models.Account.name == "grace")
        secrets["hash"] = session.scalars(account).one().password_hash or ""
        secrets["key of the sign-in"] = session.scalars(select(models.SignIn.key_sha256)).first() or ""
    written = log.getvalue()
    assert "POST /reset-password" in written
    assert {name: secret for name, secret in secrets.items() if not secret or secret in written} == {}


def test_what_a_provider_sends(board: Any, browser: httpx.Client, log: io.StringIO) -> None:
    provider = TestProvider()
    config = replace(
        board.config, oidc_issuer=provider.issuer, oidc_client_id=CLIENT_ID, oidc_client_secret=CLIENT_SECRET
    )
    board.app.state.config, board.app.state.provider = config, Provider(config)
    try:
        away = browser.get("/sign-in/provider").headers["location"]
        back = httpx.get(away, trust_env=False, timeout=60).headers["location"]
        assert browser.get(back).status_code == 303
    finally:
        provider.stop()
    parameters = httpx.URL(back).params
    written = log.getvalue()
    assert "GET /sign-in/provider/callback" in written
    assert [name for name in ("code", "state") if parameters[name] in written] == []
    assert CLIENT_SECRET not in written


def test_the_row_of_a_failed_statement_is_left_out(board: Any, log: io.StringIO) -> None:
    """SQLAlchemy quotes the values of a statement in its error, and PostgreSQL the whole row at fault."""
    hidden = models.Account(name="", team_id=1, password_hash="$argon2id$of-grace", email="grace@example.org")
    for _ in range(2):
        with board.sessions() as session:
            session.add(hidden)
            with pytest.raises(IntegrityError) as refused:
                session.flush()
            logging.getLogger("app.services.scoring").error("it failed", exc_info=refused.value)
            session.rollback()
        hidden = models.Account(name="local", team_id=1, password_hash="$argon2id$of-grace", email="grace@example.org")
    written = log.getvalue()
    # Each is told twice: as the driver's error, and as SQLAlchemy's that wraps it.
    assert written.count("DETAIL: left out") == 2 * 2
    assert ("ck_accounts_name" in written, "uq_accounts_name" in written) == (True, True)
    assert [secret for secret in ("of-grace", "grace@example.org", "Failing row", "(name)=") if secret in written] == []


def test_hidden_labels_of_a_failed_import(board: Any, log: io.StringIO) -> None:
    with board.sessions() as session:
        trajectory = session.scalars(select(models.Trajectory).limit(1)).one()
        labels = [987654, *([1] * (len(trajectory.retained_tokens) - 2)), -987654]
        row = {name: getattr(trajectory, name) for name in ("snapshot_id", "model_id", "question_pk")}
        added = models.Trajectory(
            **row,
            trajectory=99,
            thinking_tokens=trajectory.thinking_tokens,
            retained_tokens=trajectory.retained_tokens,
            correct_probes=labels,
        )
        session.add(added)
        with pytest.raises(IntegrityError) as refused:
            session.flush()
        logging.getLogger("app.services.snapshot_imports").error("it failed", exc_info=refused.value)
    assert "ck_trajectories_correct_probes" in log.getvalue()
    assert "987654" not in log.getvalue()
