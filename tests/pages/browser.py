"""A headless Chromium in which a user of Airflow is signed in."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from playwright.sync_api import Browser, Error, Frame, Page, sync_playwright

from airflow_occ_provider.embedded.process import EmbeddedError
from tests.pages.rig import SignedInAirflow

_TIMEOUT_MS = 120_000
_POLL_S = 0.25


class Screen:
    """What one user sees.

    :param page: of a browser context in which the user is signed in.
    """

    def __init__(self, page: Page, url: str) -> None:
        self.page = page
        self.errors: list[str] = []
        self._url = url
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", self._console)

    def open(self, path: str) -> None:
        """Open a path of Airflow's UI."""
        self.page.goto(self._url + path)

    def frame(self) -> Frame:
        """Return the frame with a page of ours, once it has one."""
        self.page.wait_for_selector("iframe")
        deadline = time.monotonic() + _TIMEOUT_MS / 1000
        while True:
            for one in self.page.frames[1:]:
                with suppress(Error):
                    if "/hudi/" in one.url and one.query_selector("#page"):
                        return one
            assert time.monotonic() < deadline, [one.url for one in self.page.frames]
            self.page.wait_for_timeout(100)

    def text(self) -> str:
        """Return the text of the page of ours, with the titles in its drawing."""
        return " ".join((self.frame().text_content("#page") or "").split())

    def wait_for(self, *words: str, without: str | None = None) -> float:
        """Wait until the page shows words, and return the time at which it did."""
        deadline = time.monotonic() + 600
        while True:
            with suppress(Error):  # a refresh replaces the page
                text = self.text()
                if all(one in text for one in words) and (without is None or without not in text):
                    return time.time()
            assert time.monotonic() < deadline, f"{words} not in: {self.text()}"
            self.page.wait_for_timeout(_POLL_S * 1000)

    def photograph(self, path: Path) -> None:
        """Write a picture of the window."""
        self.page.screenshot(path=path)

    def _console(self, message: object) -> None:
        kind, text = getattr(message, "type", ""), getattr(message, "text", "")
        if kind == "error":
            self.errors.append(text)


@contextmanager
def chromium() -> Iterator[Browser]:
    """Run the Chromium of this machine.

    :raises EmbeddedError: if there is none.
    """
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if not found:
        raise EmbeddedError("there is no Chromium on the PATH: install one, such as Debian's chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


def sign_in(
    browser: Browser, airflow: SignedInAirflow, user: str, scheme: str = "light", url: str = ""
) -> Screen:
    """Return the screen of a user.

    :param url: of another API server of the same Airflow.
    """
    url = url or airflow.url
    context = browser.new_context(color_scheme=scheme, viewport={"width": 1440, "height": 1000})
    cookie = {"name": "_token", "value": airflow.token(user), "url": url, "httpOnly": True}
    context.add_cookies([{**cookie, "sameSite": "Lax"}])
    context.set_default_timeout(_TIMEOUT_MS)
    return Screen(context.new_page(), url)
