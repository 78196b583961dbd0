"""A newcomer's way from sign-up to a rank and back, three times: in a browser, with curl, with `otboard submit`.

Against a real `otboard serve` with its own worker; nothing is scored by the test, and nobody is given a token.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, FilePayload, Page, expect
from sqlalchemy.orm import Session

from app.db.session import make_engine
from app.files.snapshot import Snapshot
from app.services import snapshots
from app.services.allowance_overrides import set_override
from benchmarks.servers import RUN_COMMAND, Plant, Server, wait_until
from tests.signing_in import PASSWORD, send_form

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
            set_override(session, snapshot="small", team=None, limits={"open_per_day": 5}, actor="a test")
        engine.dispose()
        started = plant.start_server()
        yield started
        with started.process:
            started.process.terminate()


@pytest.fixture
def page(browser: Browser, server: Server) -> Iterator[Page]:
    """A browser's page that allows a slow machine its time."""
    context = browser.new_context(viewport={"width": 1280, "height": 844})
    context.set_default_timeout(120_000)
    yield context.new_page()
    context.close()


def make_token(server: Server, name: str) -> str:
    """Sign up under a name and make a token on the account's page, by the forms that a browser would send."""
    with httpx.Client(base_url=server.address, timeout=60) as client:
        assert send_form(client, "/sign-up", name=name, password=PASSWORD).status_code == 303
        shown = send_form(
            client, "/account/tokens", page="/account", name="script", scope=["read", "submit"], days="30"
        )
    found = re.search(r'<pre id="new-token">(otb_[^<]+)</pre>', shown.text)
    assert found is not None
    return found[1]


def ask(server: Server, token: str, path: str) -> Any:
    headers = {"Authorization": f"Bearer {token}"}
    return httpx.get(f"{server.address}/api/v1{path}", headers=headers, timeout=60).raise_for_status().json()


def sign_up(page: Page, name: str) -> None:
    """Come to the form that makes an account from the page where one is needed, and be sent back there."""
    page.get_by_role("link", name="make an account").click()
    page.get_by_label("Name", exact=True).fill(name)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Make the account").click()
    page.wait_for_url("**/submit?*")


def make_token_on_page(page: Page, server: Server) -> str:
    """Make a token on the account's page, which shows it once."""
    page.goto(f"{server.address}/account")
    page.get_by_label("Name", exact=True).fill("laptop")
    page.get_by_role("button", name="Make a token").click()
    token = page.locator("#new-token").inner_text()
    page.goto(f"{server.address}/account")
    expect(page.locator("#tokens tbody th")).to_have_text(["laptop"])
    assert token not in page.content()
    return token


def choose_file(page: Page, content: bytes) -> None:
    page.get_by_label("Strategy").select_option("fixed_budget")
    page.get_by_label("Split").select_option("test")
    page.get_by_label("Method").fill("first steps")
    file: FilePayload = {"name": "caps.csv", "mimeType": "text/csv", "buffer": content}
    page.get_by_label("Action file").set_input_files(file)


def test_in_a_browser(page: Page, server: Server) -> None:
    expect.set_options(timeout=120_000)
    page.goto(f"{server.address}/submit")
    sign_up(page, "newcomer")
    token = make_token_on_page(page, server)
    assert ask(server, token, "/me")["name"] == "newcomer"
    page.goto(f"{server.address}/submit")
    choose_file(page, write_caps(200, bad=True))
    expect(page.locator("#file-notes")).to_contain_text("“1.5” is not a whole number")
    page.get_by_role("button", name="Submit").click()
    page.wait_for_url("**/submissions/*")
    expect(page.locator(".state")).to_have_text("Rejected: the file has problems")
    expect(page.locator(".problems")).to_contain_text("math-test-0O")
    page.get_by_role("link", name="submit it again").click()
    expect(page.get_by_label("Strategy")).to_have_value("fixed_budget")
    choose_file(page, write_caps(200))
    page.get_by_role("button", name="Submit").click()
    page.wait_for_url("**/submissions/*")
    # Followed without a reload until its figures are there.
    page.evaluate("window.isStillTheSame = true")
    expect(page.get_by_role("button", name="Publish on the board")).to_be_visible()
    assert page.evaluate("window.isStillTheSame")
    page.get_by_role("button", name="Publish on the board").click()
    expect(page.locator(".state")).to_have_text("Published")
    expect(page.locator(".allowance meter")).to_have_text(["1 of 5", "1 of 50"])
    allowance = ask(server, token, "/me/allowance?snapshot=small")
    assert [allowance[name]["used"] for name in ("open_day", "rejected_day")] == [1, 1]
    address = page.url
    board = f"{server.address}/?snapshot=small&split=test&strategy=fixed_budget"
    page.goto(board)
    row = page.locator("tr.row").filter(has_text="first steps")
    expect(row.locator("td.rank")).to_have_text("1")
    expect(row).to_contain_text("newcomer")
    page.goto(address)
    page.get_by_role("button", name="Withdraw for good").click()
    expect(page.locator(".state")).to_have_text("Withdrawn")
    page.goto(board)
    expect(page.locator("tr.row").filter(has_text="first steps")).to_have_count(0)
    # What is withdrawn is not given back.
    assert ask(server, token, "/me/allowance?snapshot=small")["open_day"]["used"] == 1


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl on this machine")
def test_with_curl(server: Server, tmp_path: Path) -> None:
    file, token = tmp_path / "caps.csv", make_token(server, "curler")

    def curl(path: str, *options: str) -> tuple[int, Any]:
        command = ["curl", "--silent", "--show-error", "--write-out", "\n%{http_code}", *options]
        headers = ["--header", f"Authorization: Bearer {token}"]
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
    file, token = tmp_path / "caps.csv", make_token(server, "commander")

    def submit(*options: str) -> tuple[int, Any]:
        command = [sys.executable, "-c", RUN_COMMAND, "submit", str(file), "--server", server.address, *options]
        target = [word for name, value in TARGET.items() for word in (f"--{name}", value)]
        done = subprocess.run(
            [*command, *target, "--method", "by command", "--format", "json"],
            check=False,
            capture_output=True,
            text=True,
            env={**os.environ, "OTBOARD_TOKEN": token},
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
    headers = {"Authorization": f"Bearer {token}"}
    address = f"{server.address}/api/v1/submissions/{submission['id']}"
    assert httpx.post(f"{address}/publish", headers=headers, timeout=60).json()["state"] == "published"
    board = f"{server.address}/api/v1/leaderboard"
    (row,) = [
        row for row in httpx.get(board, params=TARGET, timeout=60).json()["rows"] if row["method"] == "by command"
    ]
    assert (row["team"], row["rank"]) == ("anonymous", 1)
    assert httpx.post(f"{address}/withdraw", headers=headers, timeout=60).json()["state"] == "withdrawn"
