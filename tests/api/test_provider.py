"""Signing in with an OpenID Connect provider, a real one on this machine, and what an attacker would try there."""

from __future__ import annotations

import base64
import hashlib
import hmac
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import httpx
import pytest
from joserfc import jwt
from joserfc.jwk import RSAKey
from sqlalchemy import func, select, update

from app.db import models
from app.services.oidc import Provider
from app.services.sign_up import create_account
from tests.provider import CLIENT_ID, CLIENT_SECRET, TestProvider, encode_part
from tests.signing_in import PASSWORD, SAME_ORIGIN, send_form

CALLBACK = "/sign-in/provider/callback"
FINISH = "/sign-in/provider/finish"


@pytest.fixture
def provider(board: Any) -> Iterator[TestProvider]:
    """The provider, and the board configured for it."""
    running = TestProvider()
    config = replace(
        board.config,
        oidc_issuer=running.issuer,
        oidc_client_id=CLIENT_ID,
        oidc_client_secret=CLIENT_SECRET,
        oidc_name="Example ID",
    )
    board.app.state.config = config
    board.app.state.provider = Provider(config)
    yield running
    running.stop()


@pytest.fixture
def browser(board: Any) -> Iterator[httpx.Client]:
    """A browser that keeps its cookies."""
    with httpx.Client(base_url=board.reader.base_url, trust_env=False, timeout=60, headers=SAME_ORIGIN) as client:
        yield client


def go(browser: httpx.Client, next: str = "/submit") -> httpx.Response:
    """Begin at the board, let the provider send the browser back, and return the board's answer."""
    return browser.get(come_back(browser, next))


def come_back(browser: httpx.Client, next: str = "/submit") -> str:
    away = browser.get("/sign-in/provider", params={"next": next})
    assert away.status_code == 303
    there = httpx.get(away.headers["location"], trust_env=False, timeout=60)
    return there.headers["location"]


def make(board: Any, name: str = "grace", *, email: str | None = None) -> None:
    with board.sessions.begin() as session:
        account = create_account(session, name=name, password=PASSWORD)
        session.execute(update(models.Account).where(models.Account.id == account.id).values(email=email))


def test_without_a_provider_there_is_no_such_address(board: Any, browser: httpx.Client) -> None:
    for path in ("/sign-in/provider", CALLBACK, FINISH):
        assert browser.get(path).status_code == 404
    assert "Example ID" not in browser.get("/sign-in").text


def test_a_newcomer_chooses_a_name_and_comes_back_to_it(
    board: Any, provider: TestProvider, browser: httpx.Client
) -> None:
    assert "Sign in with Example ID" in browser.get("/sign-in").text
    first = go(browser)
    assert (first.status_code, first.headers["location"]) == (303, FINISH)
    shown = browser.get(FINISH).text
    assert "Grace &lt;Hopper&gt;" in shown
    taken = send_form(browser, FINISH, name="local")
    assert taken.status_code == 422 or taken.status_code == 409
    made = send_form(browser, FINISH, name="grace")
    assert (made.status_code, made.headers["location"]) == (303, "/submit")
    assert browser.get("/api/v1/me").json()["name"] == "grace"
    # The pending identity was good once.
    assert browser.get(FINISH).status_code == 400
    browser.cookies.clear()
    again = go(browser, "/snapshots")
    assert (again.status_code, again.headers["location"]) == (303, "/snapshots")
    assert browser.get("/api/v1/me").json()["name"] == "grace"
    with board.sessions() as session:
        stored = session.scalars(select(models.AccountIdentity)).one()
        assert (stored.issuer, stored.subject) == (provider.issuer, "subject-1")
        assert session.scalars(select(models.Account).where(models.Account.name == "grace")).one().email is None


def test_an_e_mail_address_links_nothing(board: Any, provider: TestProvider, browser: httpx.Client) -> None:
    """Whoever can write an address into their profile at a provider would get into the account that has it."""
    make(board, email="grace@example.org")
    for verified in (True, False):
        provider.claims = {"email_verified": verified}
        assert go(browser).headers["location"] == FINISH
        assert browser.get("/api/v1/me").status_code == 401


def test_linking_takes_the_account_s_own_word(board: Any, provider: TestProvider, browser: httpx.Client) -> None:
    make(board)
    send_form(browser, "/sign-in", name="grace", password=PASSWORD)
    assert go(browser, "/account").headers["location"] == FINISH
    with board.sessions() as session:
        assert session.scalar(select(func.count()).select_from(models.AccountIdentity)) == 0
    assert "Link Example ID to grace?" in browser.get(FINISH).text
    assert send_form(browser, FINISH).headers["location"] == "/account"
    assert "linked to Example ID" in browser.get("/account").text
    browser.cookies.clear()
    assert go(browser).headers["location"] == "/submit"
    assert browser.get("/api/v1/me").json()["name"] == "grace"


def test_unlinking_takes_a_password(board: Any, provider: TestProvider, browser: httpx.Client) -> None:
    go(browser)
    send_form(browser, FINISH, name="grace")
    assert "Unlink" not in browser.get("/account").text
    refused = send_form(browser, "/account/unlink-provider", page="/account")
    assert (refused.status_code, "Set a password first" in refused.text) == (409, True)
    send_form(browser, "/account/password", page="/account", password=PASSWORD)
    assert "Unlink Example ID" in browser.get("/account").text
    assert "no longer linked" in send_form(browser, "/account/unlink-provider", page="/account").text
    assert "Link Example ID" in browser.get("/account").text
    browser.cookies.clear()
    # To the provider's identity she is a stranger now; her password still lets her in.
    assert go(browser).headers["location"] == FINISH
    browser.cookies.clear()
    assert send_form(browser, "/sign-in", name="grace", password=PASSWORD).status_code == 303
    with board.sessions() as session:
        assert session.scalar(select(func.count()).select_from(models.AccountIdentity)) == 0
        actions = session.scalars(select(models.AuditEvent.action).where(models.AuditEvent.actor == "grace")).all()
        assert {"link_identity", "unlink_identity"} <= set(actions)


@pytest.mark.parametrize(("mode", "status"), [("closed", 403), ("invite", 403)])
def test_a_provider_is_no_way_round_a_closed_door(
    board: Any, provider: TestProvider, browser: httpx.Client, mode: str, status: int
) -> None:
    board.app.state.config = replace(board.app.state.config, sign_up=mode)
    go(browser)
    assert send_form(browser, FINISH, name="grace").status_code == status
    with board.sessions() as session:
        assert session.scalar(select(func.count()).where(models.Account.name == "grace")) == 0


def test_a_deleted_account_s_identity_is_nobody_s(board: Any, provider: TestProvider, browser: httpx.Client) -> None:
    go(browser)
    send_form(browser, FINISH, name="grace")
    assert send_form(browser, "/account/delete", page="/account", name="grace").status_code == 303
    assert go(browser).headers["location"] == FINISH


# ---- attacks ---------------------------------------------------------------------------------------------------------


def refused(answer: httpx.Response) -> bool:
    return answer.status_code == 400 and "sign_in_refused" in answer.text


def test_the_answer_to_another_browser_s_sign_in_is_refused(
    board: Any, provider: TestProvider, browser: httpx.Client
) -> None:
    """Else somebody could be signed in, unknowing, to the attacker's account."""
    with httpx.Client(base_url=board.reader.base_url, trust_env=False, timeout=60) as attacker:
        address = come_back(attacker)
    assert refused(browser.get(address))
    come_back(browser)
    assert refused(browser.get(address))
    assert browser.get("/api/v1/me").status_code == 401


def test_another_state_or_code_is_refused(board: Any, provider: TestProvider, browser: httpx.Client) -> None:
    address = come_back(browser)
    code, state = (part.partition("=")[2] for part in address.partition("?")[2].split("&"))
    for query in (f"code={code}&state=x", f"code={code}", f"code=x&state={state}", f"state={state}", "", "state=é"):
        assert refused(browser.get(f"{CALLBACK}?{query}")), query


def test_a_code_is_good_once(board: Any, provider: TestProvider, browser: httpx.Client) -> None:
    address = come_back(browser)
    flow = dict(browser.cookies)
    assert browser.get(address).status_code == 303
    browser.cookies.clear()
    browser.cookies.update(flow)
    assert refused(browser.get(address))


def test_a_code_without_its_verifier_is_worth_nothing(
    board: Any, provider: TestProvider, browser: httpx.Client
) -> None:
    """An intercepted code: the provider refuses whoever did not begin with the verifier."""
    address = come_back(browser)
    for asked in provider.codes.values():
        asked["code_challenge"] = "of another"
    assert refused(browser.get(address))


LIES: dict[str, dict[str, Any]] = {
    "another nonce": {"nonce": "x"},
    "no nonce": {"nonce": None},
    "another audience": {"aud": "somebody else"},
    "two audiences and no party": {"aud": [CLIENT_ID, "other"]},
    "another party": {"aud": [CLIENT_ID, "other"], "azp": "other"},
    "no audience": {"aud": None},
    "another issuer": {"iss": "https://evil.example"},
    "expired": {"exp": int(time.time()) - 3600},
    "no end": {"exp": None},
    "from the future": {"iat": int(time.time()) + 86400},
    "no subject": {"sub": None},
    "an empty subject": {"sub": ""},
    "a number as subject": {"sub": 7},
    "a long subject": {"sub": "x" * 256},
    "a subject with a NUL": {"sub": "a\x00b"},
}


@pytest.mark.parametrize("lie", LIES)
def test_a_token_for_something_else_is_refused(
    board: Any, provider: TestProvider, browser: httpx.Client, lie: str
) -> None:
    provider.claims = LIES[lie]
    assert refused(go(browser)), lie
    assert browser.get("/api/v1/me").status_code == 401


def _unsigned(provider: TestProvider, claims: dict[str, Any], algorithm: str = "none") -> str:
    return f"{encode_part({'alg': algorithm})}.{encode_part(claims)}."


def _by_another_key(provider: TestProvider, claims: dict[str, Any]) -> str:
    return jwt.encode({"alg": "RS256", "kid": "one"}, claims, RSAKey.generate_key(2048))


def _by_the_public_key(provider: TestProvider, claims: dict[str, Any]) -> str:
    """The classic confusion: what everybody may know, taken for a shared secret."""
    signed = f"{encode_part({'alg': 'HS256', 'kid': 'one'})}.{encode_part(claims)}"
    digest = hmac.new(provider.key.as_pem(private=False), signed.encode(), hashlib.sha256).digest()
    return f"{signed}.{base64.urlsafe_b64encode(digest).decode().rstrip('=')}"


def _changed(provider: TestProvider, claims: dict[str, Any]) -> str:
    header, _, signature = jwt.encode({"alg": "RS256", "kid": "one"}, claims, provider.key).split(".")
    return f"{header}.{encode_part({**claims, 'sub': 'somebody-else'})}.{signature}"


FORGERIES: dict[str, Callable[[TestProvider, dict[str, Any]], Any]] = {
    "none": _unsigned,
    "None": lambda provider, claims: _unsigned(provider, claims, "None"),
    "another key": _by_another_key,
    "the public key": _by_the_public_key,
    "changed": _changed,
    "no token": lambda *_: "no token",
    "a number": lambda *_: 7,
    "nothing": lambda *_: None,
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_token_that_the_provider_did_not_sign_is_refused(
    board: Any, provider: TestProvider, browser: httpx.Client, forgery: str
) -> None:
    provider.sign = lambda claims: FORGERIES[forgery](provider, claims)
    assert refused(go(browser)), forgery
    assert browser.get("/api/v1/me").status_code == 401


def test_keys_that_the_provider_changed_are_asked_for_anew(
    board: Any, provider: TestProvider, browser: httpx.Client
) -> None:
    go(browser)
    provider.key = RSAKey.generate_key(2048, {"kid": "two"})
    provider.sign = lambda claims: jwt.encode({"alg": "RS256", "kid": "two"}, claims, provider.key)
    assert go(browser).status_code == 303
    assert provider.seen.count("/keys") == 2
    assert provider.seen.count("/.well-known/openid-configuration") == 1


def test_a_provider_that_does_not_answer_is_told(board: Any, provider: TestProvider, browser: httpx.Client) -> None:
    provider.issuer = "http://somewhere.example"
    answer = browser.get("/sign-in/provider")
    assert answer.status_code == 502
    assert "provider_failed" in answer.text
