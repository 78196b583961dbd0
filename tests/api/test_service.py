"""What every address has: headers, errors, health, documentation, signing in."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from typing import Any

from sqlalchemy import create_engine, text

from app.api.problems import list_error_kinds
from app.services.submissions import SubmissionState


def test_errors_of_the_framework_are_problems_too(board: Any) -> None:
    for method, path, status, code in (
        ("GET", "/api/v1/nothing", 404, "not_found"),
        ("DELETE", "/api/v1/snapshots", 405, "method_not_allowed"),
        ("GET", "/api/v1/leaderboard", 422, "invalid_request"),
    ):
        answer = board.reader.request(method, path)
        assert answer.headers["content-type"] == "application/problem+json"
        body = answer.json()
        assert (answer.status_code, body["status"], body["code"], body["instance"]) == (status, status, code, path)
    assert board.reader.delete("/api/v1/snapshots").headers["allow"] == "GET"


def test_our_own_fault_is_a_500_without_details(board: Any) -> None:
    @board.app.get("/api/v1/broken")
    def break_down() -> None:
        raise ValueError("the password is hunter2")

    answer = board.reader.get("/api/v1/broken")
    assert (answer.status_code, answer.json()["code"]) == (500, "internal_error")
    assert "hunter2" not in answer.text


def test_an_error_at_commit_is_no_success(board: Any, make_caps: Callable[[int], bytes]) -> None:
    """With a dependency's default scope, an error at COMMIT still answered 201."""
    with board.sessions.begin() as session:
        session.execute(text("CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE ''late''; END'"))
        session.execute(
            text(
                "CREATE CONSTRAINT TRIGGER late AFTER INSERT ON submissions DEFERRABLE INITIALLY DEFERRED "
                "FOR EACH ROW EXECUTE FUNCTION fail()"
            )
        )
    assert board.send(make_caps(1)).status_code == 500
    assert board.me.get("/api/v1/submissions").json()["items"] == []


def test_people_get_pages_and_programs_problems(board: Any) -> None:
    page = board.reader.get("/nothing", headers={"Accept": "text/html"})
    assert (page.status_code, page.headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert board.reader.get("/nothing").headers["content-type"] == "application/problem+json"


def test_security_headers_are_everywhere(board: Any) -> None:
    for path in ("/", "/api/docs", "/api/v1/snapshots", "/nothing", "/static/otboard.css"):
        headers = board.reader.get(path).headers
        policy = headers["content-security-policy"]
        assert "script-src 'self'" in policy
        assert "unsafe-inline" not in policy.split("style-src")[0]
        assert "frame-ancestors 'none'" in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "same-origin"


def test_answers_are_compressed_under_a_tag_of_their_own(board: Any) -> None:
    """A strong ETag promises the same bytes, and compressed ones are others."""
    path = "/api/v1/snapshots/small/frontiers"
    with board.reader.stream("GET", path, headers={"Accept-Encoding": "gzip"}) as answer:
        assert answer.headers["content-encoding"] == "gzip"
        raw = b"".join(answer.iter_raw())
    plain = board.reader.get(path, headers={"Accept-Encoding": "identity"})
    assert gzip.decompress(raw) == plain.content
    assert answer.headers["etag"] != plain.headers["etag"]
    for etag in (answer.headers["etag"], plain.headers["etag"]):
        assert board.reader.get(path, headers={"If-None-Match": etag}).status_code == 304


def test_health(board: Any) -> None:
    assert board.reader.get("/healthz").text == "ok\n"
    assert board.reader.get("/readyz").text == "ready\n"
    with board.sessions.begin() as session:
        session.execute(text("UPDATE alembic_version SET version_num = '0000'"))
    answer = board.reader.get("/readyz")
    assert (answer.status_code, answer.json()["code"]) == (503, "not_ready")


def test_a_database_that_is_gone(board: Any) -> None:
    url = board.config.database_url
    name = url.rpartition("/")[2].partition("?")[0]
    board.sessions.kw["bind"].dispose()
    other = create_engine(board.sessions.kw["bind"].url.set(database="postgres"), isolation_level="AUTOCOMMIT")
    with other.connect() as connection:
        connection.execute(text(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false"))
        connection.execute(
            text("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = :n"), {"n": name}
        )
    answer = board.reader.get("/api/v1/snapshots")
    assert (answer.status_code, answer.json()["code"]) == (503, "unreachable")
    assert board.reader.get("/healthz").status_code == 200
    with other.connect() as connection:
        connection.execute(text(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true"))
    other.dispose()
    assert board.reader.get("/api/v1/snapshots").status_code == 200


def test_metrics(board: Any, make_caps: Callable[[int], bytes]) -> None:
    board.submit(make_caps(1))
    board.publish(make_caps(2))
    answer = board.reader.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = answer.text.splitlines()
    assert 'otboard_submissions{state="received"} 1' in lines
    assert 'otboard_submissions{state="published"} 1' in lines
    assert 'otboard_queue_length{task="score_submission"} 2' in lines
    assert "otboard_workers 0" in lines
    assert sum(line.startswith("otboard_submissions{") for line in lines) == len(SubmissionState)


def test_openapi_describes_what_there_is(board: Any) -> None:
    spec = board.reader.get("/api/v1/openapi.json").json()
    paths = spec["paths"]
    for path, method in (
        ("/api/v1/snapshots", "get"),
        ("/api/v1/snapshots/{name}", "get"),
        ("/api/v1/snapshots/{name}/trajectories", "get"),
        ("/api/v1/snapshots/{name}/overthinking", "get"),
        ("/api/v1/snapshots/{name}/frontiers", "get"),
        ("/api/v1/snapshots/{name}/download", "get"),
        ("/api/v1/validations", "post"),
        ("/api/v1/submissions", "post"),
        ("/api/v1/submissions", "get"),
        ("/api/v1/submissions/{submission_id}", "get"),
        ("/api/v1/submissions/{submission_id}/actions", "get"),
        ("/api/v1/submissions/{submission_id}/score", "get"),
        ("/api/v1/submissions/{submission_id}/events", "get"),
        ("/api/v1/submissions/{submission_id}/publish", "post"),
        ("/api/v1/submissions/{submission_id}/make-current", "post"),
        ("/api/v1/submissions/{submission_id}/withdraw", "post"),
        ("/api/v1/leaderboard", "get"),
        ("/api/v1/methods/{name}", "get"),
        ("/api/v1/me", "get"),
        ("/healthz", "get"),
        ("/readyz", "get"),
        ("/metrics", "get"),
    ):
        assert method in paths[path], path
    form = paths["/api/v1/submissions"]["post"]["requestBody"]["content"]["multipart/form-data"]["schema"]
    assert form["required"] == ["file", "snapshot", "strategy", "method"]
    schemas = spec["components"]["schemas"]
    assert "example" in schemas["SubmissionOut"]
    assert "example" in schemas["LeaderboardOut"]
    for operations in paths.values():
        for operation in operations.values():
            for status, answer in operation["responses"].items():
                if status.startswith(("4", "5")):
                    assert list(answer["content"]) == ["application/problem+json"]


def test_the_documentation_is_a_page_of_our_own(board: Any) -> None:
    page = board.reader.get("/api/docs")
    assert page.headers["content-type"].startswith("text/html")
    assert "POST /api/v1/submissions" in page.text
    assert "<script" not in page.text
    assert "https://" not in page.text.replace("https://www.rfc-editor.org", "")


def test_a_stale_cookie_only_signs_out(board: Any) -> None:
    board.reader.cookies.set("otboard_session", "stale")
    assert board.reader.get("/").status_code == 200
    assert board.reader.get("/api/v1/me").status_code == 401


def test_every_error_code_is_in_the_documentation() -> None:
    """Every code of an error that REST can answer with is explained in docs/rest-api.md."""
    from pathlib import Path

    import app.main  # noqa: F401  (loads every module that defines an error)

    documented = (Path(__file__).resolve().parents[2] / "docs" / "rest-api.md").read_text(encoding="utf-8")

    codes = {kind.code for kind in list_error_kinds()}
    assert {"not_found", "invalid_request", "internal_error", "snapshot_not_frozen"} <= codes
    assert sorted(code for code in codes if f"`{code}`" not in documented) == []


def test_errors_of_workers_are_not_the_server_s() -> None:
    """They may be loaded in the same process, as here."""
    from worker.probing import ContextTooShortError

    assert ContextTooShortError not in list_error_kinds()


def test_the_type_of_an_error_is_an_address(board: Any) -> None:
    address, _, anchor = board.reader.get("/api/v1/snapshots/nowhere").json()["type"].partition("#")
    assert f'id="{anchor}"' in board.reader.get(address).text
