"""Signing in, up and out, accounts, tokens and teams, over a real server: what a browser and what a script does."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from email import message_from_bytes, policy
from typing import Any

import httpx
import pytest
from sqlalchemy import func, select, update

from app.db import models
from app.services.accounts import Role
from app.services.sign_up import create_account, invite_account, issue_reset_link
from app.web.cookies import SESSION_COOKIE
from tests.signing_in import PASSWORD, SAME_ORIGIN, read_form_token, send_form, session_cookie, sign_in_link


@pytest.fixture
def browser(board: Any) -> Iterator[httpx.Client]:
    """A browser that keeps its cookies."""
    with httpx.Client(base_url=board.reader.base_url, trust_env=False, timeout=60) as client:
        yield client


@contextmanager
def another(board: Any) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=board.reader.base_url, trust_env=False, timeout=60) as client:
        yield client


def make(board: Any, name: str = "grace", *, role: Role = Role.MEMBER) -> None:
    with board.sessions.begin() as session:
        create_account(session, name=name, password=PASSWORD, role=role)


def sign_in(client: httpx.Client, name: str = "grace", password: str = PASSWORD, **fields: Any) -> httpx.Response:
    return send_form(client, "/sign-in", name=name, password=password, **fields)


def test_a_newcomer_signs_up_makes_a_token_and_uses_it(board: Any, browser: httpx.Client) -> None:
    answer = send_form(
        browser, "/sign-up", page="/sign-up?next=/submit", name="grace", password=PASSWORD, next="/submit"
    )
    assert (answer.status_code, answer.headers["location"]) == (303, "/submit")
    cookie = answer.headers["set-cookie"].lower()
    assert all(word in cookie for word in (f"{SESSION_COOKIE}=", "httponly", "samesite=lax", "path=/", "max-age="))
    made = send_form(browser, "/account/tokens", page="/account", name="laptop", scope=["read", "submit"], days="30")
    assert (made.status_code, made.headers["cache-control"]) == (200, "no-store")
    token = re.search(r"otb_[A-Za-z0-9_-]{43}", made.text)
    assert token is not None
    assert token[0] not in browser.get("/account").text
    me = board.reader.get("/api/v1/me", headers={"Authorization": f"Bearer {token[0]}"}).json()
    assert me == {
        "name": "grace",
        "role": "member",
        "team": "grace",
        "is_control": False,
        "teams": [{"name": "grace", "kind": "personal", "role": "owner"}],
        "scopes": ["read", "submit"],
    }
    token_id = re.search(r"/account/tokens/(\d+)/revoke", browser.get("/account").text)
    assert token_id is not None
    assert send_form(browser, token_id[0], page="/account").status_code == 303
    assert board.reader.get("/api/v1/me", headers={"Authorization": f"Bearer {token[0]}"}).status_code == 401


def test_what_is_wrong_with_a_sign_up_is_shown_and_nothing_is_kept(board: Any, browser: httpx.Client) -> None:
    make(board)
    for name, password, status, words in (
        ("grace", PASSWORD, 409, "is taken"),
        ("Grace", PASSWORD, 422, "A name has"),
        ("admin", PASSWORD, 422, "reserved"),
        ("edith", "short", 422, "at least 10"),
        ("edith", "a\x00" * 8, 422, "different"),
    ):
        answer = send_form(browser, "/sign-up", name=name, password=password)
        assert answer.status_code == status
        assert words in answer.text
        assert password not in answer.text
    with board.sessions() as session:
        assert session.scalar(select(func.count()).where(models.Account.name == "edith")) == 0


def test_an_invitation_outlives_a_name_that_was_taken(board: Any, browser: httpx.Client) -> None:
    """The page that shows the error is an answer like any other, and committed what had been done before it."""
    make(board)
    board.app.state.config = replace(board.config, sign_up="invite")
    with board.sessions.begin() as session:
        code = invite_account(session, actor="local", now=datetime.now(UTC))
    refused = send_form(browser, "/sign-up", name="edith", password=PASSWORD, code="")
    assert refused.status_code == 403
    assert send_form(browser, "/sign-up", name="grace", password=PASSWORD, code=code).status_code == 409
    assert send_form(browser, "/sign-up", name="edith", password=PASSWORD, code=code).status_code == 303
    with another(board) as client:
        assert send_form(client, "/sign-up", name="emmy", password=PASSWORD, code=code).status_code == 410


def test_a_sign_in_gets_a_key_of_its_own(board: Any, browser: httpx.Client) -> None:
    """A cookie that somebody else put into the browser is not the one it is signed in with afterwards."""
    make(board)
    planted = session_cookie(board.sessions, board.config)
    browser.cookies.update(planted)
    assert sign_in(browser).status_code == 303
    kept = [cookie.value for cookie in browser.cookies.jar if cookie.name == SESSION_COOKIE and cookie.domain != ""]
    assert planted[SESSION_COOKIE] not in kept
    # And what it was signed in with before has ended.
    stale = {"Cookie": f"{SESSION_COOKIE}={planted[SESSION_COOKIE]}"}
    assert board.reader.get("/api/v1/me", headers=stale).status_code == 401


def test_a_copy_of_the_cookie_ends_with_the_sign_in(board: Any, browser: httpx.Client) -> None:
    make(board)
    sign_in(browser)
    copy = {"Cookie": f"{SESSION_COOKIE}={browser.cookies[SESSION_COOKIE]}"}
    assert board.reader.get("/api/v1/me", headers=copy).json()["name"] == "grace"
    assert send_form(browser, "/sign-out", page="/account").status_code == 303
    assert SESSION_COOKIE not in browser.cookies
    assert board.reader.get("/api/v1/me", headers=copy).status_code == 401


@pytest.mark.parametrize("cookie", ["", "x", "otb_token", "é".encode().decode("latin-1"), "a.b.c"])
def test_a_cookie_that_was_not_signed_here_is_nobody_s(board: Any, cookie: str) -> None:
    header = {"Cookie": f"{SESSION_COOKIE}={cookie}".encode("latin-1")}
    assert board.reader.get("/api/v1/me", headers=header).status_code == 401


def test_unknown_names_and_wrong_passwords_answer_the_same(board: Any, browser: httpx.Client) -> None:
    make(board)
    wrong = sign_in(browser, password="not the password")
    unknown = sign_in(browser, name="hopper", password="not the password")
    assert (wrong.status_code, unknown.status_code) == (401, 401)
    assert re.sub("grace|hopper|[0-9a-f]{64}", "", wrong.text) == re.sub("grace|hopper|[0-9a-f]{64}", "", unknown.text)
    assert "set-cookie" not in {name.lower() for name in wrong.headers}
    for _ in range(4):
        sign_in(browser, password="not the password")
    throttled = sign_in(browser)
    assert throttled.status_code == 429
    assert 1 <= int(throttled.headers["retry-after"]) <= 901


@pytest.mark.parametrize(
    "target",
    ["https://evil.example/", "//evil.example", "/\\evil.example", "\\\\evil.example", "javascript:alert(1)", "/\tx",
     "/x\r\nSet-Cookie: a=b", "///evil.example", "evil.example", "/\\/evil.example", ""],
)  # fmt: skip
def test_signing_in_never_leads_elsewhere(board: Any, browser: httpx.Client, target: str) -> None:
    make(board)
    assert sign_in(browser, next=target).headers["location"] == "/"
    shown = browser.get("/sign-in", params={"next": target}).text
    assert 'name="next" value="/"' in shown


def test_the_printed_link_signs_the_owner_in_once(board: Any, browser: httpx.Client) -> None:
    code = sign_in_link(board.sessions).partition("#")[2]
    answer = send_form(browser, "/sign-in/link", code=code, next="/submit")
    assert (answer.status_code, answer.headers["location"]) == (303, "/submit")
    assert browser.get("/api/v1/me").json()["role"] == "operator"
    with another(board) as client:
        again = send_form(client, "/sign-in/link", code=code)
        assert again.status_code == 410
        assert "used already" in again.text


def test_another_password_signs_the_other_browsers_out(board: Any, browser: httpx.Client) -> None:
    make(board)
    sign_in(browser)
    with another(board) as client:
        sign_in(client)
        wrong = send_form(browser, "/account/password", page="/account", current="no", password=PASSWORD + "!")
        assert (wrong.status_code, client.get("/account").status_code) == (401, 200)
        short = send_form(browser, "/account/password", page="/account", current=PASSWORD, password="short")
        assert (short.status_code, client.get("/account").status_code) == (422, 200)
        right = send_form(browser, "/account/password", page="/account", current=PASSWORD, password=PASSWORD + "!")
        assert right.status_code == 200
        assert (browser.get("/account").status_code, client.get("/account").status_code) == (200, 401)
        assert sign_in(client).status_code == 401
        assert sign_in(client, password=PASSWORD + "!").status_code == 303
        assert send_form(browser, "/account/sign-out-everywhere", page="/account").status_code == 303
        assert (browser.get("/account").status_code, client.get("/account").status_code) == (401, 401)


def test_an_organiser_gives_a_way_back_in(board: Any, browser: httpx.Client) -> None:
    make(board)
    make(board, "olga", role=Role.ORGANISER)
    make(board, "otto", role=Role.OPERATOR)
    sign_in(browser, "olga")
    answer = send_form(browser, "/console/accounts/grace/reset-link", page="/console/accounts")
    assert answer.headers["cache-control"] == "no-store"
    code = re.search(r"/reset-password#([A-Za-z0-9_-]{43})", answer.text)
    assert code is not None
    above = send_form(browser, "/console/accounts/otto/reset-link", page="/console/accounts")
    assert above.status_code == 403
    with another(board) as client:
        weak = send_form(client, "/reset-password", code=code[1], password="1234567890")
        assert weak.status_code == 422
        assert send_form(client, "/reset-password", code=code[1], password=PASSWORD + "?").status_code == 303
        assert client.get("/api/v1/me").json()["name"] == "grace"
        assert send_form(client, "/reset-password", code=code[1], password=PASSWORD + "?").status_code == 410
    invited = send_form(browser, "/console/accounts/invitations", page="/console/accounts")
    assert "/sign-up#" in invited.text
    with board.sessions() as session:
        acts = session.scalars(select(models.AuditEvent.action).where(models.AuditEvent.actor == "olga")).all()
    assert acts == ["create_account", "issue_reset_link", "invite_account"]


def test_an_operator_sets_roles(board: Any, browser: httpx.Client) -> None:
    make(board)
    make(board, "otto", role=Role.OPERATOR)
    sign_in(browser, "otto")
    answer = send_form(browser, "/console/accounts/grace/role", page="/console/accounts", role="organiser")
    assert answer.status_code == 303
    assert send_form(browser, "/console/accounts/grace/role", page="/console/accounts", role="king").status_code == 422
    assert (
        send_form(browser, "/console/accounts/nobody/role", page="/console/accounts", role="member").status_code == 404
    )
    with board.sessions() as session:
        assert session.scalar(select(models.Account.role).where(models.Account.name == "grace")) == "organiser"


def test_teams_by_page_from_invitation_to_leaving(board: Any, browser: httpx.Client, make_caps: Any) -> None:
    make(board)
    make(board, "edith")
    sign_in(browser)
    assert send_form(browser, "/teams", name="edith").status_code == 409
    assert send_form(browser, "/teams", name="deep-exit").headers["location"] == "/teams/deep-exit"
    invited = send_form(browser, "/teams/deep-exit/invitations", page="/teams/deep-exit")
    code = re.search(r"/join-team#([A-Za-z0-9_-]{43})", invited.text)
    assert code is not None
    with another(board) as client:
        sign_in(client, "edith")
        assert client.get("/teams/deep-exit").status_code == 404
        assert send_form(client, "/join-team", code=code[1]).headers["location"] == "/teams/deep-exit"
        assert send_form(client, "/join-team", code=code[1]).status_code == 410
        assert "Invite by link" not in client.get("/teams/deep-exit").text
        assert send_form(client, "/teams/deep-exit/invitations", page="/teams/deep-exit").status_code == 403
        assert send_form(client, "/teams/deep-exit/remove/grace", page="/teams/deep-exit").status_code == 403
        # The only owner cannot go.
        assert send_form(browser, "/teams/deep-exit/remove/grace", page="/teams/deep-exit").status_code == 409
        promoted = send_form(browser, "/teams/deep-exit/members/edith/owner", page="/teams/deep-exit")
        assert promoted.status_code == 303
        assert send_form(browser, "/teams/deep-exit/remove/grace", page="/teams/deep-exit").status_code == 303
        assert browser.get("/teams/deep-exit").status_code == 404
        last = send_form(client, "/teams/deep-exit/members/edith/member", page="/teams/deep-exit")
        assert last.status_code == 409


def test_an_open_invitation_is_listed_and_revoked(board: Any, browser: httpx.Client) -> None:
    make(board)
    make(board, "edith")
    sign_in(browser)
    send_form(browser, "/teams", name="deep-exit")
    assert "Open invitations" not in browser.get("/teams/deep-exit").text
    invited = [send_form(browser, "/teams/deep-exit/invitations", page="/teams/deep-exit").text for _ in range(2)]
    codes = [re.findall(r"/join-team#([A-Za-z0-9_-]{43})", page)[0] for page in invited]
    shown = browser.get("/teams/deep-exit").text
    assert not any(code in shown for code in codes)
    actions = re.findall(r'action="(/teams/deep-exit/invitations/[0-9]+/revoke)"', shown)
    assert len(actions) == 2
    with another(board) as client:
        sign_in(client, "edith")
        # Of a team that is not hers she is not even told that it is there.
        assert send_form(client, actions[0], page="/teams").status_code == 404
        assert send_form(browser, actions[0], page="/teams").headers["location"] == "/teams/deep-exit"
        assert send_form(browser, actions[0], page="/teams").status_code == 404
        assert send_form(client, "/join-team", code=codes[0]).status_code == 410
        assert send_form(client, "/join-team", code=codes[1]).status_code == 303
        # A member who is no owner sees none, and one that was used is not open any more.
        assert "Open invitations" not in client.get("/teams/deep-exit").text
        assert "Open invitations" not in browser.get("/teams/deep-exit").text
        assert send_form(browser, actions[1], page="/teams").status_code == 404
        assert send_form(client, actions[1], page="/teams").status_code == 403


def as_scripts_do(board: Any, name: str) -> httpx.Client:
    make(board, name)
    headers = session_cookie(board.sessions, board.config, name)
    ours = {"Sec-Fetch-Site": "same-origin"}
    made = board.reader.post(
        "/api/v1/me/tokens",
        json={"name": "script"},
        headers={**ours, "Cookie": f"{SESSION_COOKIE}={headers[SESSION_COOKIE]}"},
    )
    assert made.status_code == 201, made.text
    assert made.json()["scopes"] == ["read", "submit"]
    authorised = {"Authorization": f"Bearer {made.json()['token']}"}
    return httpx.Client(base_url=board.reader.base_url, headers=authorised, trust_env=False, timeout=60)


def test_teams_and_tokens_by_rest(board: Any, make_caps: Any) -> None:
    with as_scripts_do(board, "grace") as grace, as_scripts_do(board, "edith") as edith:
        assert grace.post("/api/v1/teams", json={"name": "deep-exit"}).status_code == 201
        assert grace.post("/api/v1/teams", json={"name": "deep-exit"}).json()["code"] == "name_taken"
        assert grace.post("/api/v1/teams", json={"name": "Deep"}).json()["code"] == "invalid_name"
        code = grace.post("/api/v1/teams/deep-exit/invitations").json()["code"]
        revoked = grace.post("/api/v1/teams/deep-exit/invitations").json()["code"]
        _, last = grace.get("/api/v1/teams/deep-exit").json()["invitations"]
        place = f"/api/v1/teams/deep-exit/invitations/{last['id']}"
        assert grace.delete(place).status_code == 204
        assert grace.delete(place).json()["code"] == "unknown_invitation"
        assert grace.delete(f"/api/v1/teams/deep-exit/invitations/{2**70}").json()["code"] == "unknown_invitation"
        assert edith.post("/api/v1/teams/join", json={"code": revoked}).json()["code"] == "invalid_link"
        assert edith.get("/api/v1/teams/deep-exit").json()["code"] == "unknown_team"
        joined = edith.post("/api/v1/teams/join", json={"code": code})
        assert [member["name"] for member in joined.json()["members"]] == ["grace", "edith"]
        assert edith.post("/api/v1/teams/join", json={"code": code}).json()["code"] == "invalid_link"
        sent = board.send(make_caps(7), client=edith, team="deep-exit")
        assert (sent.status_code, sent.json()["team"]) == (202, "deep-exit")
        # The other member may do with it what its sender may.
        assert grace.post(f"/api/v1/submissions/{sent.json()['id']}/withdraw").status_code == 200
        assert board.send(make_caps(8), client=board.stranger, team="deep-exit").json()["code"] == "forbidden"
        path = "/api/v1/teams/deep-exit/members"
        assert edith.put(f"{path}/edith", json={"role": "owner"}).json()["code"] == "forbidden"
        assert grace.put(f"{path}/nobody", json={"role": "owner"}).json()["code"] == "unknown_member"
        assert grace.put(f"{path}/grace", json={"role": "member"}).json()["code"] == "last_owner"
        assert grace.put(f"{path}/edith", json={"role": "owner"}).json()["members"][1]["role"] == "owner"
        assert grace.delete(f"{path}/grace").status_code == 204
        assert [team["name"] for team in grace.get("/api/v1/teams").json()["items"]] == ["grace"]
        assert grace.delete("/api/v1/teams/grace/members/grace").json()["code"] == "personal_team"

        tokens = grace.get("/api/v1/me/tokens").json()["items"]
        assert [token["name"] for token in tokens] == ["script"]
        assert "token" not in tokens[0]
        # A token makes none that may do more, or that ends later.
        more = grace.post("/api/v1/me/tokens", json={"name": "x", "scopes": ["organise"], "days": None})
        assert more.json()["code"] == "invalid_token_request"
        longer = grace.post("/api/v1/me/tokens", json={"name": "x", "days": None}).json()
        assert longer["expires_at"] == tokens[0]["expires_at"]
        assert grace.delete(f"/api/v1/me/tokens/{longer['id']}").status_code == 204
        assert grace.delete(f"/api/v1/me/tokens/{longer['id']}").json()["code"] == "unknown_token"
        assert edith.delete(f"/api/v1/me/tokens/{tokens[0]['id']}").json()["code"] == "unknown_token"


def test_a_deleted_account_leaves_what_it_published_and_nothing_of_its_own(
    board: Any, browser: httpx.Client, make_caps: Any
) -> None:
    with as_scripts_do(board, "grace") as grace:
        sent = [board.send(make_caps(cap), client=grace, description="by Grace").json()["id"] for cap in (100, 200)]
        board.score(sent[0])
        assert grace.post(f"/api/v1/submissions/{sent[0]}/publish").status_code == 200
        sign_in(browser)
        wrong = send_form(browser, "/account/delete", page="/account", name="grace", password="no")
        other = send_form(browser, "/account/delete", page="/account", name="edith", password=PASSWORD)
        assert (wrong.status_code, other.status_code) == (401, 401)
        gone = send_form(browser, "/account/delete", page="/account", name="grace", password=PASSWORD)
        assert (gone.status_code, gone.headers["location"]) == (303, "/")
        assert (browser.get("/account").status_code, grace.get("/api/v1/me").status_code) == (401, 401)
    with board.sessions() as session:
        account = session.scalars(select(models.Account).where(models.Account.deleted_at.is_not(None))).one()
        tombstone = f"deleted account {account.id}"
        assert (account.name, account.password_hash, account.email) == (tombstone, None, None)
        for table in (models.ApiToken, models.SignIn, models.TeamMember):
            assert session.scalar(select(func.count()).where(table.account_id == account.id)) == 0
        actors = {
            *session.scalars(select(models.SubmissionEvent.actor)),
            *session.scalars(select(models.AuditEvent.actor)),
        }
        assert "grace" not in actors
        assert tombstone in actors
        states = dict(session.execute(select(models.Submission.id, models.Submission.state)).all())
    assert [states[submission_id] for submission_id in sent] == ["published", "withdrawn"]
    shown = board.reader.get(f"/api/v1/submissions/{sent[0]}").json()
    assert (shown["team"], shown["state"]) == (tombstone, "published")
    row = board.reader.get("/api/v1/leaderboard?snapshot=small&split=test&strategy=fixed_budget").json()["rows"][0]
    assert row["team"] == tombstone
    assert sign_in(browser).status_code == 401
    # The name is free again, and has nothing to do with what was published.
    make(board)


def test_the_last_owner_hands_a_team_on_first(board: Any, browser: httpx.Client) -> None:
    with as_scripts_do(board, "grace") as grace, as_scripts_do(board, "edith") as edith:
        grace.post("/api/v1/teams", json={"name": "deep-exit"})
        code = grace.post("/api/v1/teams/deep-exit/invitations").json()["code"]
        edith.post("/api/v1/teams/join", json={"code": code})
    sign_in(browser)
    answer = send_form(browser, "/account/delete", page="/account", name="grace", password=PASSWORD)
    assert answer.status_code == 409
    assert "Make somebody else an owner" in answer.text


def test_built_in_accounts_stay(board: Any, browser: httpx.Client) -> None:
    browser.cookies.update(session_cookie(board.sessions, board.config))
    answer = send_form(browser, "/account/delete", page="/account", name="local", password="")
    assert (answer.status_code, "belongs to the server" in answer.text) == (409, True)


def test_over_https_the_cookies_say_so(board: Any) -> None:
    make(board)
    forwarded = {**SAME_ORIGIN, "X-Forwarded-Proto": "https"}
    shown = board.reader.get("/sign-in", headers=forwarded)
    form_cookie = shown.headers["set-cookie"]
    assert form_cookie.startswith("__Host-otboard_form=")
    assert "; Secure" in form_cookie
    data = {"csrf": read_form_token(shown.text), "name": "grace", "password": PASSWORD}
    headers = {**forwarded, "Cookie": form_cookie.partition(";")[0]}
    answer = board.reader.post("/sign-in", data=data, headers=headers, follow_redirects=False)
    assert answer.headers["set-cookie"].startswith("__Host-otboard_session=")
    assert "; Secure" in answer.headers["set-cookie"]


# ---- mail ------------------------------------------------------------------------------------------------------------


class MailServer(threading.Thread):
    """A mail server of a few lines that keeps what it is sent."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.messages: list[bytes] = []
        self.arrived = threading.Event()
        self.ready = threading.Event()
        self.port = 0
        self._loop = asyncio.new_event_loop()

    def run(self) -> None:
        async def serve() -> None:
            server = await asyncio.start_server(self._talk, "127.0.0.1", 0)
            self.port = server.sockets[0].getsockname()[1]
            self._ended = asyncio.Event()
            self.ready.set()
            await self._ended.wait()
            server.close()

        self._loop.run_until_complete(serve())
        self._loop.close()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._ended.set)
        self.join()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 here\r\n")
        while line := await reader.readline():
            verb = line.strip().upper()
            if verb == b"DATA":
                writer.write(b"354 go on\r\n")
                message = b""
                while (line := await reader.readline()) != b".\r\n":
                    message += line
                self.messages.append(message)
            writer.write(b"221 bye\r\n" if verb == b"QUIT" else b"250 fine\r\n")
            await writer.drain()
            if verb == b"QUIT":
                break
        writer.close()
        if self.messages:
            self.arrived.set()


@pytest.fixture
def mail(board: Any) -> Iterator[MailServer]:
    server = MailServer()
    server.start()
    assert server.ready.wait(timeout=30)
    url = f"smtp://127.0.0.1:{server.port}/?from=board@example.org"
    board.app.state.config = replace(board.config, smtp_url=url, public_url="https://board.example.org")
    yield server
    server.stop()


def read_mail(mail: MailServer) -> tuple[str, str]:
    assert mail.arrived.wait(timeout=60)
    mail.arrived.clear()
    message = message_from_bytes(mail.messages.pop(), policy=policy.default)
    content: str = message.get_content()  # type: ignore[attr-defined]
    return str(message["To"]), content


def test_a_forgotten_password_by_mail(board: Any, browser: httpx.Client, mail: MailServer) -> None:
    make(board)
    sign_in(browser)
    bad = send_form(browser, "/account/email", page="/account", email="grace@example.org\r\nBcc: all@example.org")
    assert bad.status_code == 422
    asked = send_form(browser, "/account/email", page="/account", email="grace@example.org")
    assert asked.status_code == 200
    to, text = read_mail(mail)
    assert to == "grace@example.org"
    code = re.search(r"https://board\.example\.org/confirm-email#([A-Za-z0-9_-]{43})", text)
    assert code is not None
    with board.sessions() as session:
        # Not before the mail was read.
        assert session.scalar(select(models.Account.email).where(models.Account.name == "grace")) is None
    assert send_form(browser, "/confirm-email", code=code[1]).status_code == 303

    with another(board) as client:
        # The Host header does not get into the link.
        known = send_form(client, "/forgot-password", name="grace")
        unknown = send_form(client, "/forgot-password", name="nobody")
        assert known.status_code == unknown.status_code == 200
        assert re.sub("[0-9a-f]{64}", "", known.text) == re.sub("[0-9a-f]{64}", "", unknown.text)
        to, text = read_mail(mail)
        reset = re.search(r"https://board\.example\.org/reset-password#([A-Za-z0-9_-]{43})", text)
        assert reset is not None
        assert send_form(client, "/reset-password", code=reset[1], password=PASSWORD + "!").status_code == 303
    assert browser.get("/account").status_code == 401
    assert mail.messages == []


def test_an_address_of_another_account_is_told_only_to_whoever_reads_its_mail(
    board: Any, browser: httpx.Client, mail: MailServer
) -> None:
    make(board)
    make(board, "edith")
    with board.sessions.begin() as session:
        taken = update(models.Account).where(models.Account.name == "edith")
        session.execute(taken.values(email="Edith@example.org"))
    sign_in(browser)
    assert send_form(browser, "/account/email", page="/account", email="edith@example.org").status_code == 200
    code = re.search(r"#([A-Za-z0-9_-]{43})", read_mail(mail)[1])
    assert code is not None
    assert send_form(browser, "/confirm-email", code=code[1]).status_code == 409


def test_without_a_mail_server_no_link_is_made(board: Any, browser: httpx.Client) -> None:
    make(board)
    answer = browser.get("/forgot-password")
    assert "Ask an organiser" in answer.text
    with board.sessions.begin() as session:
        assert issue_reset_link(session, "grace", by=None, actor="command line", now=datetime.now(UTC))
