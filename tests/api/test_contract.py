"""Every operation of the OpenAPI document, asked in many ways by each kind of caller, answers as the document says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
import schemathesis
from fastapi import FastAPI
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from app.api.bodies import receive_object
from app.config import Config
from app.db import models
from app.main import create_app
from app.services.accounts import ALL_SCOPES, Role, ensure_account, hash_token
from app.web.body_limit import MAX_BODY_BYTES, OWN_LIMIT
from app.web.security import identify, receive_organisers_upload, receive_snapshot, receive_upload

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
CALLERS = {"nobody": None, "member": Role.MEMBER, "organiser": Role.ORGANISER, "operator": Role.OPERATOR}
# What only operators may do; elsewhere they are organisers.
OPERATORS_PATHS = ("/api/v1/models", "/api/v1/probe-runs", "/api/v1/console/snapshot-imports/from-path")
N_EXAMPLES = 6
# What addresses and questions name: things that are there, besides whatever the document lets one write.
NAMES = {
    "snapshot": ["small", "secret", "loose"],
    "split": ["test", "train", "all"],
    "strategy": ["fixed_budget", "dynamic_early_exit", "dynamic_routing"],
    "model": ["alpha"],
    "benchmark": ["math"],
    "question_id": ["math-test-00"],
    "kind": ["lengths", "oracle-regret"],
    "member": ["the-member", "bob"],
    "team": ["the-member"],
}


CONFIG = Config(data_dir=Path("nowhere"), database_url="postgresql://nobody@localhost/none", secret_key="s" * 32)
DOCUMENT = schemathesis.openapi.from_dict(create_app(CONFIG).openapi())
FOUND: list[Any] = list(DOCUMENT.get_all_operations())
OPERATIONS = {found.ok().label: found.ok() for found in FOUND}


def list_callers(label: str) -> list[str]:
    return [caller for caller in CALLERS if caller != "operator" or label.split(" ")[1].startswith(OPERATORS_PATHS)]


@pytest.fixture(scope="module")
def world(shared_board: Any) -> dict[str, list[Any]]:
    """Accounts of each kind with a token for everything, and submissions: published, scored, rejected, waiting."""
    with shared_board.sessions.begin() as session:
        for caller, role in CALLERS.items():
            if role is None:
                continue
            account = ensure_account(session, name=f"the-{caller}", team=f"the-{caller}", is_control=False, role=role)
            digest, scopes = hash_token(f"otb_{caller}"), sorted(ALL_SCOPES)
            session.add(models.ApiToken(account_id=account.id, name="t", token_sha256=digest, scopes=scopes))
    return NAMES | {"submission_id": list(make_submissions(shared_board)), "name": ["small", "first", "the-member"]}


def make_submissions(board: Any) -> Iterator[str]:
    headers = {"Authorization": "Bearer otb_member"}
    lines = [f"{model},math,math-test-{n:02d},CAP" for model in ("alpha", "beta") for n in range(21)]
    lines += [f"{model},logic,logic-test-{n:02d},CAP" for model in ("alpha", "beta") for n in range(3)]
    content = "\n".join(["model,benchmark,question_id,action", *lines])
    for state, cap in {"published": "100", "scored": "200", "rejected": "x", "received": "300"}.items():
        form = {"snapshot": "small", "split": "test", "strategy": "fixed_budget", "method": "first"}
        file = {"file": ("caps.csv", content.replace("CAP", cap).encode())}
        answer = board.reader.post("/api/v1/submissions", data=form, files=file, headers=headers)
        submission_id = answer.json()["id"]
        if state != "received":
            board.score(submission_id)
        if state == "published":
            board.reader.post(f"/api/v1/submissions/{submission_id}/publish", headers=headers).raise_for_status()
        yield submission_id


@pytest.fixture(scope="module")
def http() -> Iterator[requests.Session]:
    with requests.Session() as session:
        session.trust_env = False
        yield session


@pytest.mark.parametrize("label", OPERATIONS)
def test_the_answer_is_one_that_the_document_describes(
    shared_board: Any, world: dict[str, list[Any]], http: requests.Session, label: str
) -> None:
    operation, callers = OPERATIONS[label], list_callers(label)
    base_url = str(shared_board.reader.base_url).rstrip("/")
    cases = st.one_of(
        operation.as_strategy(generation_mode=GenerationMode.POSITIVE),
        operation.as_strategy(generation_mode=GenerationMode.NEGATIVE),
    )

    # Always the same examples: what they find is found again, and nothing is kept between runs.
    @settings(
        max_examples=N_EXAMPLES,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=cases, data=st.data())
    def ask(case: Any, data: st.DataObject) -> None:
        for place in (case.path_parameters, case.query):
            for name in sorted(set(place or {}) & set(world)):
                if data.draw(st.booleans()):
                    place[name] = data.draw(st.sampled_from(world[name]))
        for caller in callers:
            note(f"asked by: {caller}")
            headers = {} if caller == "nobody" else {"Authorization": f"Bearer otb_{caller}"}
            case.validate_response(case.call(base_url=base_url, session=http, headers=headers), checks=CHECKS)

    ask()


def list_routes(app: FastAPI) -> Iterator[Any]:
    """Yield the routes of the application, those of its routers one by one."""
    listed: list[Any] = list(app.routes)
    for route in listed:
        yield from route.effective_route_contexts() if hasattr(route, "effective_route_contexts") else [route]


def list_declared() -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """Yield every operation with what it depends on and its description."""
    app = create_app(CONFIG)
    document = app.openapi()
    for route in list_routes(app):
        path = route.path.replace(":path}", "}")
        for method in getattr(route, "methods", None) or ():
            operation = document["paths"].get(path, {}).get(method.lower())
            if operation is not None:
                yield f"{method} {path}", route.dependant, operation


def depends_on(dependant: Any, *calls: Any) -> bool:
    return dependant.call in calls or any(depends_on(part, *calls) for part in dependant.dependencies)


def test_what_every_operation_of_a_kind_may_answer_is_declared() -> None:
    """A token may be nobody's or lack the scope wherever one is read; a body may be broken or too large."""
    lacking = {}
    declared = list(list_declared())
    assert len(declared) == len(OPERATIONS)
    for label, dependant, operation in declared:
        owed = {"401", "403"} if depends_on(dependant, identify) else set()
        owed |= {"400", "413"} if "requestBody" in operation else set()
        if not owed <= operation["responses"].keys():
            lacking[label] = owed - operation["responses"].keys()
    assert lacking == {}


def test_the_addresses_with_a_limit_of_their_own_are_those_that_read_their_body_themselves() -> None:
    receivers = (receive_object, receive_upload, receive_organisers_upload, receive_snapshot)
    routes = [route for route in list_routes(create_app(CONFIG)) if getattr(route, "dependant", None) is not None]
    found = {route.path for route in routes if depends_on(route.dependant, *receivers)}
    assert found == OWN_LIMIT


@pytest.mark.parametrize("is_declared", [True, False])
@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/api/v1/teams", "application/json"),
        ("/api/v1/me/tokens", "application/json"),
        ("/sign-in", "application/x-www-form-urlencoded"),
        ("/sign-up", "multipart/form-data; boundary=x"),
    ],
)
def test_a_body_that_no_form_has_is_refused(shared_board: Any, path: str, kind: str, is_declared: bool) -> None:
    body = b'--x\r\nContent-Disposition: form-data; name="csrf"\r\n\r\n' if "multipart" in kind else b"name="
    body += b"a" * (MAX_BODY_BYTES + 1)
    headers = {"Content-Type": kind, "Sec-Fetch-Site": "same-origin"}
    # Without a length it is sent in pieces.
    content = body if is_declared else iter([body[:1000], body[1000:]])
    answer = shared_board.me.post(path, content=content, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (413, "upload_too_large")
    assert shared_board.me.post("/api/v1/teams", json={"name": "a" * 200}).status_code == 422
