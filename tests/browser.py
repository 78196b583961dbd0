"""Finds the browser that the tests of the pages drive, and gets one where there is none.

A system Chromium comes first, then Playwright's own, then (as root, where there is apt-get) the package manager's.
Run as ``python -m tests.browser``: exits 1 with the command to run when no browser could be had.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

SYSTEM_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
LAUNCH_ARGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)
REMEDY = "no browser for the tests of the pages; run: .venv/bin/playwright install --with-deps chromium"


def find_browser() -> Path | None:
    """Return the executable of a system Chromium, else of Playwright's own, else None."""
    for name in SYSTEM_NAMES:
        if found := shutil.which(name):
            return Path(found)
    with sync_playwright() as playwright:
        own = Path(playwright.chromium.executable_path)
    return own if own.is_file() else None


def install_browser() -> None:
    """Try Playwright's own download, then the package manager when root."""
    subprocess.run([sys.executable, "-m", "playwright", "install", "chromium"], check=False)
    if find_browser() is None and os.geteuid() == 0 and shutil.which("apt-get"):
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        subprocess.run(["apt-get", "update", "-q"], check=False, env=environment)
        command = ["apt-get", "install", "-q", "-y", "--no-install-recommends", "chromium", "fonts-dejavu-core"]
        subprocess.run(command, check=False, env=environment)


def main() -> int:
    """Exit 0 once there is a browser, 1 with the remedy otherwise."""
    if find_browser() is None:
        install_browser()
    browser = find_browser()
    print(f"browser: {browser}" if browser else REMEDY, file=sys.stderr)  # noqa: T201
    return 0 if browser else 1


if __name__ == "__main__":
    sys.exit(main())
