"""The upload form in a real browser: what it says of a file before it is sent, while it is, and after."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.signing_in import sign_in_link

pytestmark = pytest.mark.browser

ARTEFACTS = Path(__file__).resolve().parents[1] / "artefacts"
HEADER = "model,benchmark,question_id,action"
Open = Callable[..., Any]


@pytest.fixture
def form(site: Any, visit: Open) -> Page:
    """The form, for fixed budgets on the test split, with somebody signed in."""
    return sign_in(site, visit).page


def sign_in(site: Any, visit: Open, **options: Any) -> Any:
    target = "/submit%3Fstrategy=fixed_budget%26split=test%26snapshot=small"
    visited = visit(sign_in_link(site.sessions, target), is_own=True, **options)
    visited.page.locator("main").get_by_role("button", name="Sign in").click()
    visited.page.wait_for_url("**/submit?*")
    return visited


def write_caps(site: Any, cap: int) -> bytes:
    cells = site.measurements.select("test").cells
    rows = [f"{c.model},{c.benchmark},{q},{cap}" for c in cells for q in c.question_ids]
    return "\n".join([HEADER, *rows]).encode()


def choose(page: Page, content: bytes, name: str = "caps.csv") -> None:
    page.get_by_label("Action file").set_input_files({"name": name, "mimeType": "", "buffer": content})


FIRST_LOOKS = {
    "caps.txt": (b"x", ["The name ends in none of"]),
    "caps.parquet": (b"model,benchmark", ["does not begin like one"]),
    "caps.csv.gz": (HEADER.encode(), ["does not begin like one"]),
    "utf16.csv": (HEADER.encode("utf-16"), ["not UTF-8"]),
    "semicolons.csv": (b"model;benchmark;question_id;action\na;b;c;1", ["separated by something else than commas"]),
    "columns.csv": (
        b"Model,benchmark,question,action,trajectory\n",
        ["question_id is missing", "must be written model"],
    ),
    "header.csv": (HEADER.encode(), ["a header and no rows"]),
    "rows.csv": (f"{HEADER}\na,b,c,1.5\na,b,d\na,b,e,-1".encode(), ["Row 2", "Row 3 has 3 values", "is negative"]),
    "list.jsonl": (b'[\n{"model": 1}]', ["without the brackets of a list"]),
    "fields.jsonl": (b'{"model": "a", "benchmark": "b", "action": 1}', ["question_id is missing"]),
    "empty.csv": (b"", ["The file is empty"]),
}


def test_a_first_look_names_what_is_wrong_in_words(form: Page) -> None:
    notes = form.locator("#file-notes")
    for name, (content, words) in FIRST_LOOKS.items():
        choose(form, content, name)
        expect(notes).to_contain_text(name)
        for word in words:
            expect(notes).to_contain_text(word)
    form.get_by_label("Strategy").select_option("dynamic_routing")
    choose(form, f'\ufeff{HEADER}\r\n"a","b, c",d,7\r\n'.encode(), "routing.csv")
    expect(notes).to_contain_text("is 0 (no thinking) or 1 (full thinking), not 7")
    # Another strategy, another look at the same file.
    form.get_by_label("Strategy").select_option("dynamic_early_exit")
    expect(notes).to_contain_text("trajectory is missing")
    form.get_by_label("Strategy").select_option("fixed_budget")
    expect(notes).to_contain_text("nothing wrong at first sight")


def test_a_file_is_dropped_on_the_form(form: Page) -> None:
    form.evaluate(
        """() => {
          const files = new DataTransfer();
          files.items.add(new File(["model,benchmark,question_id,action\\na,b,c,1\\n"], "dropped.csv"));
          const zone = document.querySelector("[data-drop]");
          zone.dispatchEvent(new DragEvent("dragover", { dataTransfer: files, bubbles: true }));
          window.wasMarked = zone.classList.contains("over");
          zone.dispatchEvent(new DragEvent("drop", { dataTransfer: files, bubbles: true }));
        }"""
    )
    assert form.evaluate("window.wasMarked")
    expect(form.locator("#file-notes")).to_contain_text("dropped.csv")
    assert form.evaluate("document.getElementById('file').files[0].name") == "dropped.csv"


def test_problems_are_listed_in_place_and_can_be_copied(site: Any, form: Page) -> None:
    content = write_caps(site, 300).replace(b"math-test-00,300", b"math-test-0x,300") + b"\nalpha,logic,nowhere,x"
    choose(form, content)
    form.context.grant_permissions(["clipboard-read", "clipboard-write"])
    form.get_by_role("button", name="Check only").click()
    outcome = form.locator("#outcome")
    expect(outcome.locator("h2")).to_have_count(1)
    expect(outcome).to_contain_text("3 × unknown_question")
    row = outcome.locator("tbody tr").filter(has_text="not_an_integer")
    expect(row).to_contain_text("not_an_integer")
    outcome.get_by_role("button", name="Copy as a table").click()
    expect(outcome.get_by_role("button", name="Copied")).to_be_visible()
    copied = form.evaluate("navigator.clipboard.readText()").splitlines()
    assert copied[0].split("\t") == ["Code", "Row", "Column", "Unit", "What is wrong", "Count"]
    assert len(copied) == 1 + outcome.locator("tbody tr").count()
    # The form is as it was, the file chosen still: only that has to be replaced.
    assert form.evaluate("document.getElementById('file').files[0].name") == "caps.csv"
    choose(form, write_caps(site, 300))
    form.get_by_role("button", name="Check only").click()
    expect(outcome.locator("h2")).to_have_text("The file is sound")


def test_an_upload_shows_progress_and_can_be_cancelled(site: Any, form: Page) -> None:
    # A request that nobody answers.
    form.route("**/submit", lambda _: None)
    form.get_by_label("Method").fill("cancelled")
    choose(form, write_caps(site, 301))
    form.get_by_role("button", name="Submit").click()
    expect(form.locator("#upload progress")).to_be_visible()
    expect(form.get_by_role("button", name="Check only")).to_be_disabled()
    form.get_by_role("button", name="Cancel").click()
    expect(form.locator("#outcome h2")).to_have_text("The upload was cancelled.")
    expect(form.locator("#upload")).to_be_hidden()
    form.unroute("**/submit")
    form.route("**/submit", lambda route: route.abort("connectionreset"))
    form.get_by_role("button", name="Submit").click()
    expect(form.locator("#outcome h2")).to_contain_text("The connection broke off")
    form.unroute("**/submit")
    form.get_by_role("button", name="Submit").click()
    form.wait_for_url("**/submissions/*")


def test_everything_that_is_said_is_on_the_submissions_page(site: Any, form: Page) -> None:
    until = (datetime.now(UTC) + timedelta(days=20)).date().isoformat()
    form.get_by_text("Description, links, hardware, anonymity").click()
    said = {
        "Method": "told in full",
        "Version": "2.1",
        "Description": "One cap.\nFor all.",
        "Paper": "https://papers.example/1",
        "Hardware": "2 × A100",
        "Anonymous until": until,
    }
    for label, value in said.items():
        form.get_by_label(label, exact=label != "Version").fill(value)
    choose(form, write_caps(site, 302), "x" * 190 + ".csv")
    form.get_by_role("button", name="Submit").click()
    form.wait_for_url("**/submissions/*")
    main = form.locator("main")
    for value in ("2.1", "papers.example/1", "2 × A100", f"until {until} 00:00:00 UTC"):
        expect(main).to_contain_text(value)
    link = form.get_by_role("link", name="https://papers.example/1")
    expect(link).to_have_attribute("rel", "nofollow noopener")
    ARTEFACTS.mkdir(exist_ok=True)
    for width in (390, 1280):
        form.set_viewport_size({"width": width, "height": 844})
        assert form.evaluate("document.documentElement.scrollWidth") <= width
        form.screenshot(path=ARTEFACTS / f"submission-waiting-{width}-light.png", full_page=True)
    form.get_by_role("button", name="Cancel").click()
    expect(form.locator(".state")).to_have_text("Withdrawn")
    form.get_by_role("button", name="Submit it again").click()
    expect(form.locator(".state")).to_have_text("Waiting to be scored")
    # The next form knows the method's name.
    form.goto(f"{site.url}/submit")
    names = form.evaluate("[...document.querySelectorAll('#method-names option')].map((option) => option.value)")
    assert "told in full" in names


def test_the_form_works_without_scripts(site: Any, visit: Open) -> None:
    page = sign_in_plainly(site, visit)
    choose(page, b"no,actions\n1,2\n")
    page.get_by_role("button", name="Check only").click()
    expect(page.locator(".problems")).to_contain_text("missing_column")
    page.goto(f"{site.url}/submit?strategy=fixed_budget&split=test&snapshot=small")
    page.get_by_label("Method").fill("plain")
    choose(page, write_caps(site, 303))
    page.get_by_role("button", name="Submit").click()
    page.wait_for_url("**/submissions/*")
    submission_id = page.url.rpartition("/")[2]
    expect(page.get_by_role("link", name="look now")).to_be_visible()
    site.score(submission_id)
    page.get_by_role("link", name="look now").click()
    expect(page.locator(".state")).to_have_text("Scored, not published")


def sign_in_plainly(site: Any, visit: Open) -> Page:
    address, _, code = sign_in_link(site.sessions, "/submit%3Fstrategy=fixed_budget%26split=test").partition("#")
    page: Page = visit(address, is_own=True, has_scripts=False).page
    page.get_by_label("Code").fill(code)
    page.locator("main").get_by_role("button", name="Sign in").click()
    page.wait_for_url("**/submit?*")
    return page


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_the_form_fits_the_window(site: Any, visit: Open, width: int, scheme: str) -> None:
    visited = sign_in(site, visit, width=width, scheme=scheme)
    page = visited.page
    ARTEFACTS.mkdir(exist_ok=True)
    page.get_by_text("Description, links, hardware, anonymity").click()
    choose(page, write_caps(site, 304).replace(b"alpha,math", b"alhpa,math") + b"\nalpha,logic,logic-test-01,1.5")
    expect(page.locator("#file-notes p")).to_be_visible()
    page.screenshot(path=ARTEFACTS / f"submit-form-{width}-{scheme}.png", full_page=True)
    page.get_by_role("button", name="Check only").click()
    expect(page.locator("#outcome tbody tr").first).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.screenshot(path=ARTEFACTS / f"submit-problems-{width}-{scheme}.png", full_page=True)
    assert [fault for fault in visited.faults if "422" not in fault] == []
