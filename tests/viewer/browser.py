"""A real Chromium. Where there is none, what needs it is skipped with the line that installs it."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

CHROMIUM = next((path for name in ("chromium", "chromium-browser") if (path := shutil.which(name))), None)
ARGUMENTS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@contextmanager
def chromium() -> Iterator[Any]:
    """The browser, for as long as the block runs."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="the browser's driver: pip install playwright")
    if CHROMIUM is None:
        pytest.skip("there is no browser; Debian, Ubuntu: apt-get install -y chromium")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        try:
            yield browser
        finally:
            browser.close()


class Complaints:
    """What a page must never do: raise, log an error, open a dialog, ask another host, or break its own policy."""

    def __init__(self, page: Any) -> None:
        self.heard: list[str] = []
        page.on("pageerror", lambda error: self.heard.append(f"error: {error}"))
        page.on("console", lambda message: message.type in ("error", "warning") and self.heard.append(message.text))
        page.on("dialog", self._dismiss)
        page.on("request", lambda request: self._check(request.url))

    def _dismiss(self, dialog: Any) -> None:
        self.heard.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _check(self, url: str) -> None:
        if not url.startswith(("http://127.0.0.1:", "data:", "file://")):
            self.heard.append(f"asked for {url}")
