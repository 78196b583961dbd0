"""A newcomer's way from a file to a rank and back, three times: in a browser, with curl, with `otboard submit`.

Against a real `otboard serve` with its own worker; nothing is scored by the test.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect
from sqlalchemy.orm import Session

from app.db.session import make_engine
from app.files.snapshot import Snapshot
from app.services import snapshots
from benchmarks.servers import RUN_COMMAND, Plant, Server, wait_until

pytestmark = pytest.mark.browser

TARGET = {"snapshot": "small", "split": "test", "strategy": "fixed_budget"}
ENVIRONMENT = {"OTBOARD_BOOTSTRAP_REPLICATES": "20"}


def write_caps(cap: int, *, bad: bool = False) -> bytes:
    lines = ["model,benchmark,question_id,action"]
    for model in ("alpha", "beta"):
        for benchmark, count in (("math", 21), ("logic", 3)):
            lines += [f"{model},{benchmark},{benchmark}-test-{number:02d},{cap}" for number in range(count)]
    if bad:
        lines[1] = lines[1].replace("math-test-00", "math-test-0O")
        lines.append("alpha,math,math-test-03,1.5")
    return "\n".join(lines).encode()


@pytest.fixture(scope="module")
def server(
    server_url: str, template_database: str, tmp_path_factory: pytest.TempPathFactory, board_snapshot: Snapshot
) -> Iterator[Server]:
    """A server as anybody starts one, with the small snapshot frozen."""
    from tests.web.conftest import _clone_database

    with _clone_database(server_url, template_database) as url:
        plant = Plant(tmp_path_factory.mktemp("newcomer"), ENVIRONMENT, url=url)
        plant.data_dir.mkdir()
        engine = make_engine(url)
        with Session(engine) as session, session.begin():
            snapshots.import_snapshot(session, board_snapshot)
            snapshots.freeze_snapshot(session, "small")
        engine.dispose()
        started = plant.start_server()
        yield started
        started.process.terminate()
        started.process.wait()


@pytest.fixture
def page(browser: Browser, server: Server) -> Iterator[Page]:
    """A browser's page that allows a slow machine its time."""
    context = browser.new_context(viewport={"width": 1280, "height": 844})
    context.set_default_timeout(120_000)
    yield context.new_page()
    context.close()


def test_in_a_browser(page: Page, server: Server) -> None:
    expect.set_options(timeout=120_000)
    page.goto(f"{server.address}/submit")
    page.get_by_role("link", name="Sign in").last.click()
    page.get_by_label("Token").fill(server.token)
    page.locator("main").get_by_role("button", name="Sign in").click()
    page.wait_for_url("**/submit?*")
    page.get_by_label("Strategy").select_option("fixed_budget")
    page.get_by_label("Split").select_option("test")
    page.get_by_label("Method").fill("first steps")
    page.get_by_label("Action file").set_input_files(
        {"name": "caps.csv", "mimeType": "text/csv", "buffer": write_caps(200, bad=True)}
    )
    expect(page.locator("#file-notes")).to_contain_text("“1.5” is not a whole number")
    page.get_by_role("button", name="Submit").click()
    page.wait_for_url("**/submissions/*")
    expect(page.locator(".state")).to_have_text("Rejected: the file has problems")
    expect(page.locator(".problems")).to_contain_text("math-test-0O")
    page.get_by_role("link", name="submit it again").click()
    expect(page.get_by_label("Strategy")).to_have_value("fixed_budget")
    page.get_by_label("Method").fill("first steps")
    page.get_by_label("Action file").set_input_files(
        {"name": "caps.csv", "mimeType": "text/csv", "buffer": write_caps(200)}
    )
    page.get_by_role("button", name="Submit").click()
    page.wait_for_url("**/submissions/*")
    # Followed without a reload until its figures are there.
    page.evaluate("window.isStillTheSame = true")
    page.get_by_role("button", name="Publish on the board").click()
    expect(page.locator(".state")).to_have_text("Published")
    address = page.url
    board = f"{server.address}/?snapshot=small&split=test&strategy=fixed_budget"
    page.goto(board)
    row = page.locator("tr.row").filter(has_text="first steps")
    expect(row.locator("td.rank")).to_have_text("1")
    page.goto(address)
    page.get_by_role("button", name="Withdraw for good").click()
    expect(page.locator(".state")).to_have_text("Withdrawn")
    page.goto(board)
    expect(page.locator("tr.row").filter(has_text="first steps")).to_have_count(0)


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl on this machine")
def test_with_curl(server: Server, tmp_path: Path) -> None:
    file = tmp_path / "caps.csv"

    def curl(path: str, *options: str) -> tuple[int, Any]:
        command = ["curl", "--silent", "--show-error", "--write-out", "\n%{http_code}", *options]
        headers = ["--header", f"Authorization: Bearer {server.token}"]
        done = subprocess.run(
            [*command, *headers, f"{server.address}/api/v1{path}"], check=True, capture_output=True, text=True
        )
        body, _, status = done.stdout.rpartition("\n")
        return int(status), json.loads(body)

    fields = {**TARGET, "method": "by curl", "version": "1", "paper_url": "https://example.org/paper"}
    form = [option for name, value in fields.items() for option in ("--form", f"{name}={value}")]
    form += ["--form", f"file=@{file}"]
    assert curl("/me")[0] == 200
    file.write_bytes(write_caps(210, bad=True))
    status, problem = curl("/validations", *form)
    assert (status, problem["code"]) == (422, "invalid_action_file")
    assert {"unknown_question", "not_an_integer"} <= {found["code"] for found in problem["problems"]}
    file.write_bytes(write_caps(210))
    assert curl("/validations", *form)[0] == 200
    status, submission = curl("/submissions", *form)
    assert (status, submission["state"]) == (202, "received")
    address = f"/submissions/{submission['id']}"
    wait_until(lambda: curl(address)[1]["state"] == "scored")
    assert curl(f"{address}/score")[1]["summary"]["area"] > 0
    assert curl(f"{address}/publish", "--request", "POST")[1]["state"] == "published"
    board = "/leaderboard?snapshot=small&split=test&strategy=fixed_budget"
    rows = {row["method"]: row for row in curl(board)[1]["rows"]}
    assert (rows["by curl"]["rank"], rows["by curl"]["version"]) == (1, "1")
    assert curl(f"{address}/withdraw", "--request", "POST")[1]["state"] == "withdrawn"
    assert "by curl" not in {row["method"] for row in curl(board)[1]["rows"]}


def test_with_the_command(server: Server, tmp_path: Path) -> None:
    file = tmp_path / "caps.csv"

    def submit(*options: str) -> tuple[int, Any]:
        command = [sys.executable, "-c", RUN_COMMAND, "submit", str(file), "--server", server.address, *options]
        target = [word for name, value in TARGET.items() for word in (f"--{name}", value)]
        done = subprocess.run(
            [*command, *target, "--method", "by command", "--format", "json"],
            check=False,
            capture_output=True,
            text=True,
            env={**os.environ, "OTBOARD_TOKEN": server.token},
        )
        return done.returncode, json.loads(done.stdout)

    file.write_bytes(write_caps(220, bad=True))
    status, error = submit("--dry-run")
    assert (status, error["code"], len(error["problems"])) == (1, "invalid_action_file", len(error["problems"]))
    assert {"unknown_question", "not_an_integer"} <= {found["code"] for found in error["problems"]}
    assert submit()[1]["code"] == "rejected"
    file.write_bytes(write_caps(220))
    status, checked = submit("--dry-run", "--paper", "https://example.org/paper")
    assert (status, checked["n_rows"]) == (0, 48)
    status, refused = submit("--dry-run", "--paper", "javascript:alert(1)")
    assert (status, refused["code"]) == (1, "invalid_submission")
    until = (datetime.now(UTC) + timedelta(days=30)).date().isoformat()
    status, submission = submit("--no-wait", "--version", "3", "--hardware", "none", "--anonymous-until", until)
    assert (status, submission["version"], submission["is_anonymous"]) == (0, "3", True)
    status, score = submit()
    assert (status, score["summary"]["area"] > 0) == (0, True)
    headers = {"Authorization": f"Bearer {server.token}"}
    address = f"{server.address}/api/v1/submissions/{submission['id']}"
    assert httpx.post(f"{address}/publish", headers=headers, timeout=60).json()["state"] == "published"
    board = f"{server.address}/api/v1/leaderboard"
    (row,) = [
        row for row in httpx.get(board, params=TARGET, timeout=60).json()["rows"] if row["method"] == "by command"
    ]
    assert (row["team"], row["rank"]) == ("anonymous", 1)
    assert httpx.post(f"{address}/withdraw", headers=headers, timeout=60).json()["state"] == "withdrawn"
