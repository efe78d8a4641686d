"""A real browser without a window, to look at the demonstration page."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

#: Programs that Debian and others call Chromium.
_NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")


def find_browser() -> str:
    """The program; the test is skipped where there is none."""
    found = next(filter(None, map(shutil.which, _NAMES)), None)
    if found is None:
        pytest.skip(f"no browser is installed ({', '.join(_NAMES)})")
    return found


@contextmanager
def open_page(address: str) -> Iterator[Any]:
    """The page at ``address``, by playwright."""
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    program = find_browser()
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1200, "height": 900})
        page.goto(address, timeout=60_000)
        yield page
        browser.close()


def translate_and_picture(page: Any, sentence: str, models: int, picture: Path) -> str:
    """Type a sentence, send it, wait for all columns, take a picture; the page's text."""
    box = page.get_by_label("A sentence")
    box.wait_for(timeout=120_000)
    box.fill(sentence)
    page.get_by_role("button", name="Translate").click()
    page.get_by_text("key/value cache at the end").nth(models - 1).wait_for(timeout=120_000)
    page.locator("img").nth(models - 1).wait_for(timeout=120_000)
    page.locator("[data-stale='true']").first.wait_for(state="detached", timeout=120_000)
    page.wait_for_timeout(500)
    page.screenshot(path=str(picture), full_page=True)
    return str(page.locator("body").inner_text())
