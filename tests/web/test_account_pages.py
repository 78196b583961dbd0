"""The pages of accounts in a real browser: what they look like, and a newcomer's way from sign-up to a token."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.signing_in import PASSWORD, sign_in_link

pytestmark = pytest.mark.browser

ARTEFACTS = Path(__file__).resolve().parents[1] / "artefacts"
ENTRANCES = ("/sign-in", "/sign-up", "/sign-in/link", "/forgot-password", "/reset-password", "/join-team")
PAGES = ("/account", "/teams", "/teams/local", "/console/accounts")
Open = Callable[..., Any]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_pages_are_drawn_without_fault_inside_the_window(site: Any, visit: Open, width: int, scheme: str) -> None:
    ARTEFACTS.mkdir(exist_ok=True)
    visited = visit("/about", width=width, scheme=scheme, is_own=True)
    page = visited.page

    def look(path: str) -> None:
        page.goto(site.url + path)
        expect(page.locator("h1")).to_have_count(1)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path
        page.screenshot(path=ARTEFACTS / f"{path[1:].replace('/', '-')}-{width}-{scheme}.png", full_page=True)

    for path in ENTRANCES:
        look(path)
    page.goto(site.url + sign_in_link(site.sessions, "/account"))
    page.locator("main").get_by_role("button", name="Sign in").click()
    page.wait_for_url("**/account")
    for path in PAGES:
        look(path)
    assert visited.faults == []
    assert visited.hosts == {site.url.removeprefix("http://")}


@pytest.mark.parametrize("has_scripts", [True, False])
def test_a_newcomer_signs_up_and_makes_a_token(site: Any, visit: Open, has_scripts: bool) -> None:
    name = f"newcomer-{'with' if has_scripts else 'without'}"
    visited = visit("/sign-up?next=/account", is_own=True, has_scripts=has_scripts)
    page = visited.page
    page.get_by_label("Name", exact=True).fill(name)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Make the account").click()
    page.wait_for_url("**/account")
    expect(page.locator("h1")).to_have_text(name)
    page.get_by_label("Name", exact=True).fill("laptop")
    page.get_by_role("button", name="Make a token").click()
    token = page.locator("#new-token").inner_text()
    assert site.get_json("/me", headers={"Authorization": f"Bearer {token}"})["name"] == name
    page.get_by_role("button", name="Sign out", exact=True).click()
    expect(page.get_by_role("link", name="Sign in")).to_be_visible()
    assert visited.faults == []


@pytest.mark.parametrize("width", [1280, 390])
def test_an_owner_sees_and_revokes_an_open_invitation(site: Any, visit: Open, width: int) -> None:
    visited = visit("/sign-up?next=/teams", width=width, is_own=True)
    page = visited.page
    page.get_by_label("Name", exact=True).fill(f"owner-{width}")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Make the account").click()
    page.wait_for_url("**/teams")
    page.get_by_label("Name of the team").fill(f"deep-exit-{width}")
    page.get_by_role("button", name="Make the team").click()
    page.get_by_role("button", name="Invite by link").click()
    expect(page.locator("#invitation")).to_contain_text("/join-team#")
    page.goto(f"{site.url}/teams/deep-exit-{width}")
    expect(page.locator("#invitation")).to_have_count(0)
    expect(page.get_by_role("heading", name="Open invitations")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    ARTEFACTS.mkdir(exist_ok=True)
    page.screenshot(path=ARTEFACTS / f"team-with-invitation-{width}.png", full_page=True)
    page.get_by_role("button", name="Revoke").click()
    expect(page.get_by_role("heading", name="Open invitations")).to_have_count(0)
    assert visited.faults == []
