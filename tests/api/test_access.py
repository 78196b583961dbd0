"""Who may do what: a rule for every address and method of the application. A new route without one fails.

The table says what it takes; the tests ask each address as nobody, as a member, as a member of another team, as an
organiser and as an operator, and with the cookie and without the token of a form.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from app.config import Config
from app.db import models
from app.main import create_app
from app.services.accounts import ALL_SCOPES, Role, Scope, ensure_account, hash_token
from app.web.templating import TEMPLATES
from tests.signing_in import cookie_header, form_token, session_cookie

PUBLIC = "anybody"
FORM = "anybody, with the token of a form"
MEMBER = "whoever is signed in"
TEAM = "members of its team"
READABLE = "members of its team and organisers, and anybody once it is published"
OWNER = "the account itself, with a browser"
ORGANISER = "organisers and operators"
OPERATOR = "operators"

RULES: dict[str, str] = {
    "GET /": PUBLIC,
    "GET /about": PUBLIC,
    "GET /account": OWNER,
    "GET /api/docs": PUBLIC,
    "GET /api/v1/badges/{submission_id}.svg": PUBLIC,
    "GET /api/v1/compare": PUBLIC,
    "GET /api/v1/efficiency-results": PUBLIC,
    "GET /api/v1/efficiency-results/sets": PUBLIC,
    "GET /api/v1/leaderboard": PUBLIC,
    "GET /api/v1/leaderboard/curves": PUBLIC,
    "GET /api/v1/me": MEMBER,
    "GET /api/v1/me/tokens": MEMBER,
    "GET /api/v1/methods/{name:path}": PUBLIC,
    "GET /api/v1/models": OPERATOR,
    "GET /api/v1/models/{name:path}": OPERATOR,
    "GET /api/v1/openapi.json": PUBLIC,
    "GET /api/v1/probe-runs": OPERATOR,
    "GET /api/v1/probe-runs/{run}": OPERATOR,
    "GET /api/v1/probe-runs/{run}/events": OPERATOR,
    "GET /api/v1/receipt-keys": PUBLIC,
    "GET /api/v1/snapshots": PUBLIC,
    "GET /api/v1/snapshots/{name}": PUBLIC,
    "GET /api/v1/snapshots/{name}/analyses": PUBLIC,
    "GET /api/v1/snapshots/{name}/analyses/{kind}": PUBLIC,
    "GET /api/v1/snapshots/{name}/download": PUBLIC,
    "GET /api/v1/snapshots/{name}/frontiers": PUBLIC,
    "GET /api/v1/snapshots/{name}/overthinking": PUBLIC,
    "GET /api/v1/snapshots/{name}/trajectories": PUBLIC,
    "GET /api/v1/submissions": MEMBER,
    "GET /api/v1/submissions/{submission_id}": READABLE,
    "GET /api/v1/submissions/{submission_id}/actions": READABLE,
    "GET /api/v1/submissions/{submission_id}/events": READABLE,
    "GET /api/v1/submissions/{submission_id}/losses": READABLE,
    "GET /api/v1/submissions/{submission_id}/operating-points": READABLE,
    "GET /api/v1/submissions/{submission_id}/receipt": READABLE,
    "GET /api/v1/submissions/{submission_id}/score": READABLE,
    "GET /api/v1/teams": MEMBER,
    "GET /api/v1/teams/{name}": TEAM,
    "GET /board-rows/{submission_id}": PUBLIC,
    "GET /compare": PUBLIC,
    "GET /confirm-email": PUBLIC,
    "GET /console/accounts": ORGANISER,
    "GET /console/probe-runs": OPERATOR,
    "GET /console/probe-runs/{name}": OPERATOR,
    "GET /efficiency": PUBLIC,
    "GET /favicon.ico": PUBLIC,
    "GET /figures/board": PUBLIC,
    "GET /forgot-password": PUBLIC,
    "GET /healthz": PUBLIC,
    "GET /join-team": PUBLIC,
    "GET /methods/{name:path}": PUBLIC,
    "GET /metrics": PUBLIC,
    "GET /readyz": PUBLIC,
    "GET /reset-password": PUBLIC,
    "GET /sign-in": PUBLIC,
    "GET /sign-in/link": PUBLIC,
    "GET /sign-in/provider": PUBLIC,
    "GET /sign-in/provider/callback": PUBLIC,
    "GET /sign-in/provider/finish": PUBLIC,
    "GET /sign-up": PUBLIC,
    "GET /snapshots": PUBLIC,
    "GET /snapshots/{name}": PUBLIC,
    "GET /snapshots/{name}/analyses": PUBLIC,
    "GET /snapshots/{name}/trajectories": PUBLIC,
    "GET /static/vendor/{plotly}": PUBLIC,
    "GET /static/{name}": PUBLIC,
    "GET /submissions": MEMBER,
    "GET /submissions/{submission_id}": READABLE,
    "GET /submit": PUBLIC,
    "GET /teams": MEMBER,
    "GET /teams/{name}": TEAM,
    "POST /account/delete": OWNER,
    "POST /account/email": OWNER,
    "POST /account/password": OWNER,
    "POST /account/sign-out-everywhere": OWNER,
    "POST /account/sign-out-others": OWNER,
    "POST /account/tokens": OWNER,
    "POST /account/unlink-provider": OWNER,
    "POST /account/tokens/{token_id}/revoke": OWNER,
    "POST /api/v1/me/tokens": MEMBER,
    "POST /api/v1/models": OPERATOR,
    "POST /api/v1/probe-runs": OPERATOR,
    "POST /api/v1/probe-runs/{run}/cancel": OPERATOR,
    "POST /api/v1/probe-runs/{run}/pause": OPERATOR,
    "POST /api/v1/probe-runs/{run}/resume": OPERATOR,
    "POST /api/v1/submissions": MEMBER,
    "POST /api/v1/submissions/{submission_id}/make-current": TEAM,
    "POST /api/v1/submissions/{submission_id}/publish": TEAM,
    "POST /api/v1/submissions/{submission_id}/retry": TEAM,
    "POST /api/v1/submissions/{submission_id}/withdraw": TEAM,
    "POST /api/v1/teams": MEMBER,
    "POST /api/v1/teams/join": MEMBER,
    "POST /api/v1/teams/{name}/invitations": TEAM,
    "POST /api/v1/validations": MEMBER,
    "DELETE /api/v1/me/tokens/{token_id}": MEMBER,
    "DELETE /api/v1/teams/{name}/invitations/{invitation_id}": TEAM,
    "DELETE /api/v1/teams/{name}/members/{member}": TEAM,
    "PUT /api/v1/teams/{name}/members/{member}": TEAM,
    "POST /check": MEMBER,
    "POST /confirm-email": FORM,
    "POST /console/accounts/invitations": ORGANISER,
    "POST /console/accounts/{name}/reset-link": ORGANISER,
    "POST /console/accounts/{name}/role": OPERATOR,
    "POST /console/probe-runs/{name}/cancel": OPERATOR,
    "POST /console/probe-runs/{name}/pause": OPERATOR,
    "POST /console/probe-runs/{name}/resume": OPERATOR,
    "POST /forgot-password": FORM,
    "POST /join-team": MEMBER,
    "POST /reset-password": FORM,
    "POST /sign-in": FORM,
    "POST /sign-in/link": FORM,
    "POST /sign-in/provider/finish": FORM,
    "POST /sign-out": FORM,
    "POST /sign-up": FORM,
    "POST /submissions/{submission_id}/make-current": TEAM,
    "POST /submissions/{submission_id}/publish": TEAM,
    "POST /submissions/{submission_id}/retry": TEAM,
    "POST /submissions/{submission_id}/withdraw": TEAM,
    "POST /submit": MEMBER,
    "POST /teams": MEMBER,
    "POST /teams/{name}/invitations": TEAM,
    "POST /teams/{name}/invitations/{invitation_id}/revoke": TEAM,
    "POST /teams/{name}/members/{member}/{role}": TEAM,
    "POST /teams/{name}/remove/{member}": TEAM,
    "DELETE /api/v1/snapshots/{name}": ORGANISER,
    "GET /api/v1/console/allowances": ORGANISER,
    "GET /api/v1/console/audit": ORGANISER,
    "GET /api/v1/console/identical-uploads": ORGANISER,
    "GET /api/v1/console/rescorings": ORGANISER,
    "GET /api/v1/console/rescorings/{rescoring_id}": ORGANISER,
    "GET /api/v1/console/rescorings/{rescoring_id}/preview": ORGANISER,
    "GET /api/v1/console/snapshot-imports": ORGANISER,
    "GET /api/v1/console/snapshot-imports/{import_id}": ORGANISER,
    "GET /api/v1/console/submissions": ORGANISER,
    "GET /api/v1/console/work": ORGANISER,
    "GET /api/v1/submissions/{submission_id}/identical-uploads": ORGANISER,
    "GET /console": ORGANISER,
    "GET /console/allowances": ORGANISER,
    "GET /console/audit": ORGANISER,
    "GET /console/flags": ORGANISER,
    "GET /console/rescorings": ORGANISER,
    "GET /console/rescorings/{rescoring_id}": ORGANISER,
    "GET /console/snapshots": ORGANISER,
    "GET /console/snapshots/imports/{import_id}": ORGANISER,
    "GET /console/submissions": ORGANISER,
    "GET /console/work": ORGANISER,
    "POST /api/v1/console/rescorings": ORGANISER,
    "POST /api/v1/console/rescorings/{rescoring_id}/apply": ORGANISER,
    "POST /api/v1/console/rescorings/{rescoring_id}/cancel": ORGANISER,
    "POST /api/v1/console/rescorings/{rescoring_id}/retry": ORGANISER,
    "POST /api/v1/console/snapshot-imports": ORGANISER,
    "POST /api/v1/console/snapshot-imports/from-path": OPERATOR,
    "POST /api/v1/snapshots/{name}/freeze": ORGANISER,
    "POST /api/v1/submissions/{submission_id}/flag": ORGANISER,
    "POST /api/v1/submissions/{submission_id}/mark-baseline": ORGANISER,
    "POST /api/v1/submissions/{submission_id}/unflag": ORGANISER,
    "POST /api/v1/submissions/{submission_id}/unmark-baseline": ORGANISER,
    "POST /api/v1/submissions/{submission_id}/unverify": ORGANISER,
    "POST /api/v1/submissions/{submission_id}/verify": ORGANISER,
    "POST /console/allowances": ORGANISER,
    "POST /console/rescorings": ORGANISER,
    "POST /console/rescorings/{rescoring_id}/apply": ORGANISER,
    "POST /console/rescorings/{rescoring_id}/cancel": ORGANISER,
    "POST /console/rescorings/{rescoring_id}/retry": ORGANISER,
    "POST /console/snapshots/import": ORGANISER,
    "POST /console/snapshots/import-path": OPERATOR,
    "POST /console/snapshots/{name}/freeze": ORGANISER,
    "POST /console/snapshots/{name}/hidden-splits": ORGANISER,
    "POST /console/snapshots/{name}/remove": ORGANISER,
    "POST /console/submissions/{submission_id}/flag": ORGANISER,
    "POST /console/submissions/{submission_id}/mark-baseline": ORGANISER,
    "POST /console/submissions/{submission_id}/unflag": ORGANISER,
    "POST /console/submissions/{submission_id}/unmark-baseline": ORGANISER,
    "POST /console/submissions/{submission_id}/unverify": ORGANISER,
    "POST /console/submissions/{submission_id}/verify": ORGANISER,
    "PUT /api/v1/console/allowances": ORGANISER,
    "PUT /api/v1/snapshots/{name}/hidden-splits": ORGANISER,
    "DELETE /api/v1/efficiency-results/sets/{name}": ORGANISER,
    "GET /api/v1/me/allowance": MEMBER,
    "GET /console/efficiency-results": ORGANISER,
    "GET /docs": PUBLIC,
    "GET /docs/search": PUBLIC,
    "GET /docs/{name:path}": PUBLIC,
    "POST /api/v1/efficiency-results": ORGANISER,
    "POST /api/v1/submissions/{submission_id}/release": ORGANISER,
    "POST /console/efficiency-results": ORGANISER,
    "POST /console/efficiency-results/{name}/remove": ORGANISER,
    "POST /submissions/{submission_id}/release": ORGANISER,
}

UPLOADS = ("POST /submit", "POST /check", "POST /console/snapshots/import", "POST /console/efficiency-results")
ROLES = ("member", "other", "organiser", "operator")
# Which of the callers a rule lets in; `member` is of the team that owns what the address names.
ALLOWED: dict[str, frozenset[str]] = {
    PUBLIC: frozenset(("nobody", *ROLES)),
    FORM: frozenset(("nobody", *ROLES)),
    READABLE: frozenset({"member", "organiser", "operator"}),
    MEMBER: frozenset(ROLES),
    OWNER: frozenset(),
    TEAM: frozenset({"member"}),
    ORGANISER: frozenset({"organiser", "operator"}),
    OPERATOR: frozenset({"operator"}),
}
# Organisers read what teams keep to themselves: who is in them.
EXCEPTIONS = {
    ("GET /teams/{name}", "organiser"),
    ("GET /teams/{name}", "operator"),
    ("GET /api/v1/teams/{name}", "organiser"),
    ("GET /api/v1/teams/{name}", "operator"),
}
REFUSED = {401, 403, 404}


def list_routes(app: FastAPI) -> Iterator[str]:
    """Yield every method and address that the application answers."""
    for route in app.routes:
        found = route.effective_route_contexts() if hasattr(route, "effective_route_contexts") else [route]
        for one in found:
            path = re.sub(r"/static/vendor/.*", "/static/vendor/{plotly}", one.path)
            for method in sorted(one.methods - {"HEAD", "OPTIONS"}):
                yield f"{method} {path}"


def make_app() -> FastAPI:
    from pathlib import Path

    return create_app(
        Config(data_dir=Path("nowhere"), database_url="postgresql://nobody@localhost/none", secret_key="s" * 32)
    )


ROUTES = sorted(set(list_routes(make_app())))
UNSAFE = [route for route in ROUTES if not route.startswith("GET ")]


def test_every_route_has_a_rule_and_every_rule_a_route() -> None:
    assert [route for route in ROUTES if route not in RULES] == []
    assert [route for route in RULES if route not in ROUTES] == []


@pytest.fixture(scope="module")
def people(shared_board: Any) -> dict[str, Any]:
    """An account of each kind with a token for everything, and a draft of the member's team."""
    roles = {"member": Role.MEMBER, "other": Role.MEMBER, "organiser": Role.ORGANISER, "operator": Role.OPERATOR}
    with shared_board.sessions.begin() as session:
        for name, role in roles.items():
            account = ensure_account(session, name=f"the-{name}", team=f"the-{name}", is_control=False, role=role)
            scopes = sorted(ALL_SCOPES)
            token = models.ApiToken(
                account_id=account.id, name="t", token_sha256=hash_token(f"otb_{name}"), scopes=scopes
            )
            session.add(token)
    headers = {"Authorization": "Bearer otb_member"}
    form = {"snapshot": "small", "split": "test", "strategy": "fixed_budget", "method": "draft"}
    answer = shared_board.reader.post(
        "/api/v1/submissions", data=form, files={"file": ("a.csv", b"model\n")}, headers=headers
    )
    assert answer.status_code == 202, answer.text
    return {"submission_id": answer.json()["id"], "name": "the-member", "member": "nobody-there", "role": "owner"}


def address(route: str, values: dict[str, Any]) -> tuple[str, str]:
    method, path = route.split(" ")
    known = {
        "run": "nowhere",
        "token_id": 2**40,
        "plotly": "nothing.js",
        "kind": "nothing",
        "rescoring_id": 2**40,
        "import_id": 2**40,
        "invitation_id": 2**40,
        **values,
    }
    return method, re.sub(r"\{(\w+)(?::path)?\}", lambda found: str(known[found[1]]), path)


def ask(board: Any, route: str, values: dict[str, Any], **options: Any) -> httpx.Response:
    method, path = address(route, values)
    cookies = options.pop("cookies", None)
    if cookies:
        options["headers"] = {**options["headers"], **cookie_header(cookies)}
    answer: httpx.Response = board.reader.request(method, path, follow_redirects=False, **options)
    return answer


def was_refused(route: str, answer: httpx.Response) -> bool:
    """A stranger is not told whether what belongs to a team is there, so that 404 is a refusal too."""
    if RULES[route] in (TEAM, READABLE):
        return answer.status_code in REFUSED
    return answer.status_code in (401, 403)


@pytest.mark.parametrize("route", ROUTES)
def test_each_route_lets_in_whom_its_rule_says(shared_board: Any, people: dict[str, Any], route: str) -> None:
    rule = RULES[route]
    for caller in ("nobody", *ROLES):
        headers = {} if caller == "nobody" else {"Authorization": f"Bearer otb_{caller}"}
        if rule == FORM:
            continue
        # Where a body is asked for before the rule, a right one.
        body = {"json": {"role": "owner"}} if route.startswith("PUT ") else {}
        answer = ask(shared_board, route, people, headers=headers, **body)
        # An unknown member of a team that one is in is no refusal.
        code = answer.json().get("code") if "json" in answer.headers.get("content-type", "") else None
        refused = was_refused(route, answer) and code not in ("unknown_member", "actions_gone")
        allowed = caller in ALLOWED[rule] or (route, caller) in EXCEPTIONS
        assert refused is not allowed, (route, caller, answer.status_code, answer.text[:200])
        if caller == "nobody" and not allowed and rule not in (READABLE,):
            assert answer.status_code == 401
        assert answer.status_code < 500 or code == "provider_failed", (route, caller)


@pytest.mark.parametrize("route", [route for route in ROUTES if RULES.get(route) == OWNER])
def test_what_belongs_to_the_owner_takes_a_browser(shared_board: Any, people: dict[str, Any], route: str) -> None:
    for caller in ROLES:
        answer = ask(shared_board, route, people, headers={"Authorization": f"Bearer otb_{caller}"})
        assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")


@pytest.mark.parametrize("route", UNSAFE)
def test_no_form_works_without_its_token_or_from_elsewhere(
    shared_board: Any, people: dict[str, Any], route: str
) -> None:
    cookie = session_cookie(shared_board.sessions, shared_board.config, "the-operator")
    token = form_token(shared_board.config, cookie)
    upload = {"files": {"file": ("a.csv", b"x")}} if route in UPLOADS else {}
    for origin in ({"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}, {"Origin": "null"}, {}):
        answer = ask(shared_board, route, people, headers=origin, cookies=cookie, data={"csrf": token}, **upload)
        assert (answer.status_code, answer.json()["code"]) == (403, "cross_site_request"), answer.text
    if route.split(" ")[1].startswith("/api/"):
        return
    ours = {"Sec-Fetch-Site": "same-origin"}
    other = session_cookie(shared_board.sessions, shared_board.config, "the-other")
    for data in ({}, {"csrf": ""}, {"csrf": "0" * 64}, {"csrf": "é"}, {"csrf": form_token(shared_board.config, other)}):
        answer = ask(shared_board, route, people, headers=ours, cookies=cookie, data={"x": "y", **data}, **upload)
        assert (answer.status_code, answer.json()["code"]) == (403, "form_expired"), answer.text
    if RULES[route] == FORM:
        answer = ask(shared_board, route, people, headers=ours, data={"csrf": token})
        assert (answer.status_code, answer.json()["code"]) == (403, "form_expired")


# The two ways to write it: in a page, and in a macro of the console.
FIELDS = ("{{ csrf() }}", "{{ console.token() }}", "{{ token() }}")


def test_every_form_of_a_page_carries_the_token() -> None:
    forms = {
        (path.name, found[0]): path.read_text(encoding="utf-8")[found.end() :].lstrip().startswith(FIELDS)
        for path in sorted(TEMPLATES.rglob("*.html"))
        for found in re.finditer(r"<form\b[^>]*method=\"post\"[^>]*>", path.read_text(encoding="utf-8"))
    }
    assert len(forms) > 20
    assert [form for form, has_token in forms.items() if not has_token] == []


def test_another_body_does_not_get_round_the_token(shared_board: Any, people: dict[str, Any]) -> None:
    """A form with a file is read where it is received, and only there."""
    cookie = session_cookie(shared_board.sessions, shared_board.config, "the-operator")
    ours = {"Sec-Fetch-Site": "same-origin"}
    path = "/account/sign-out-others"
    for options in ({"files": {"file": ("a", b"x")}}, {"json": {"csrf": form_token(shared_board.config, cookie)}}):
        answer = shared_board.reader.post(path, headers=ours | cookie_header(cookie), **options)
        assert answer.status_code in (400, 403)


@pytest.mark.parametrize("role", ROLES)
def test_a_token_does_what_its_scopes_say(shared_board: Any, people: dict[str, Any], role: str) -> None:
    asked = {
        Scope.READ: ("GET", "/api/v1/submissions"),
        Scope.SUBMIT: ("POST", "/api/v1/validations"),
        Scope.ORGANISE: ("GET", "/console/accounts"),
        Scope.OPERATE: ("GET", "/api/v1/probe-runs"),
    }
    needed = {Scope.ORGANISE: {"organiser", "operator"}, Scope.OPERATE: {"operator"}}
    with shared_board.sessions.begin() as session:
        account = ensure_account(session, name=f"the-{role}", team=f"the-{role}", is_control=False)
        for scope in Scope:
            token = f"otb_{role}_{scope}"
            session.add(
                models.ApiToken(account_id=account.id, name=scope, token_sha256=hash_token(token), scopes=[scope.value])
            )
    for scope in Scope:
        for wanted, (method, path) in asked.items():
            headers = {"Authorization": f"Bearer otb_{role}_{scope}"}
            answer = shared_board.reader.request(method, path, headers=headers)
            may = role in needed.get(wanted, set(ROLES))
            assert (answer.status_code != 403) is (may and scope is wanted), (scope, wanted, answer.text)
            if may and scope is not wanted:
                assert answer.json()["code"] == "missing_scope"
