"""A withheld file and the allowance as their team sees them, in a browser, on a desk and on a phone."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from playwright.sync_api import expect

from tests.signing_in import sign_in_link

WIDTHS = (1280, 390)
MODELS = ("alpha", "beta")
COUNTS = {"math": 21, "logic": 3}


def write_routes(*changed: int) -> bytes:
    """Write a routing file of the hidden test split; of the questions named, the other route."""
    routes = np.random.default_rng(4).integers(0, 2, 48)
    routes[list(changed)] ^= 1
    units = [f"{model},{name},{name}-test-{n:02d}" for model in MODELS for name, k in COUNTS.items() for n in range(k)]
    lines = [f"{unit},{route}" for unit, route in zip(units, routes.tolist(), strict=True)]
    return "\n".join(["model,benchmark,question_id,action", *lines]).encode()


@pytest.fixture(scope="module")
def withheld(site: Any) -> str:
    """The second of two files that differ in one question."""
    ids = [send(site, content) for content in (write_routes(), write_routes(3))]
    assert site.get_json(f"/submissions/{ids[1]}", headers=bearer(site))["state"] == "withheld"
    return ids[1]


def bearer(site: Any) -> dict[str, str]:
    return {"Authorization": f"Bearer {site.token}"}


def send(site: Any, content: bytes) -> str:
    form = {"snapshot": "hidden", "split": "test", "strategy": "dynamic_routing", "method": "near"}
    sent = httpx.post(
        f"{site.url}/api/v1/submissions",
        data=form,
        files={"file": ("a.csv", content)},
        headers=bearer(site),
        timeout=60,
    )
    assert sent.status_code == 202, sent.text
    submission_id = str(sent.json()["id"])
    site.score(submission_id)
    return submission_id


def sign_in(site: Any, visit: Callable[..., Any], path: str, *, width: int) -> Any:
    """Open a page with the account that sent the files."""
    page = visit(sign_in_link(site.sessions, path), width=width, is_own=True).page
    page.locator("main").get_by_role("button", name="Sign in").click()
    page.wait_for_url(f"**{path}")
    return page


def look(page: Any, name: str, width: int) -> None:
    """Make sure that nothing is wider than the window, and keep a picture where somebody wants to see one."""
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    folder = os.environ.get("OTBOARD_PICTURES")
    if folder:
        page.screenshot(path=str(Path(folder) / f"{name}-{width}.png"), full_page=True)


@pytest.mark.parametrize("width", WIDTHS)
def test_a_withheld_file_says_why_and_what_to_do(
    site: Any, visit: Callable[..., Any], withheld: str, width: int
) -> None:
    page = sign_in(site, visit, f"/submissions/{withheld}", width=width)
    notice = page.locator(".notice", has_text="withheld")
    expect(notice).to_contain_text("differs too little")
    expect(notice).to_contain_text("counts towards the allowance")
    expect(notice.get_by_role("link", name="What hidden splits tell")).to_have_attribute("href", "/docs/hidden-splits")
    expect(page.locator(".allowance")).to_contain_text("2 of 5 used, 3 left")
    look(page, "withheld", width)


@pytest.mark.parametrize("width", WIDTHS)
def test_the_form_shows_what_is_left(site: Any, visit: Callable[..., Any], withheld: str, width: int) -> None:
    page = sign_in(site, visit, "/submit", width=width)
    page.goto(f"{site.url}/submit?snapshot=hidden&split=test")
    expect(page.locator(".allowance")).to_contain_text("3 left")
    look(page, "allowance", width)
