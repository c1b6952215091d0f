"""A real browser for tests of pages: Debian's Chromium, driven by Playwright."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-sync", "--disable-background-networking", "--disable-component-update",
    "--use-angle=swiftshader", "--enable-unsafe-swiftshader",
]  # fmt: skip
WIDE, NARROW = (1280, 900), (390, 800)


@contextmanager
def browser() -> Iterator[object]:
    """Yield a browser; skip the test where there is none."""
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed (Debian: apt install chromium)")
    sync = pytest.importorskip(
        "playwright.sync_api", reason="Playwright is not installed (extra `browser`)"
    )
    with sync.sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        try:
            yield found
        finally:
            found.close()


class Opened:
    """A page that is open, with what its console and its network have seen."""

    def __init__(self, browser, file: Path, size=WIDE, dark=False, scripts=True):
        self.context = browser.new_context(
            viewport={"width": size[0], "height": size[1]}, java_script_enabled=scripts,
            color_scheme="dark" if dark else "light",
        )  # fmt: skip
        self.page, self.file = self.context.new_page(), file
        self.page.set_default_timeout(300_000)
        self.errors, self.outside, self.dialogs = list[str](), list[str](), list[str]()
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        for event in ("console", "dialog", "request"):
            self.page.on(event, getattr(self, f"_note_{event}"))
        self.page.goto(file.resolve().as_uri())
        if scripts:
            self.page.wait_for_selector("html.scripted")

    def until(self, fact: str) -> None:
        """Wait until a JavaScript expression is true; at most five minutes.

        Playwright's own way evaluates it inside the page, which the page forbids. While
        a page loads itself again, nothing is true.
        """
        from playwright.sync_api import Error

        for _ in range(3000):
            with suppress(Error):
                if self.page.evaluate(fact):
                    return
            self.page.wait_for_timeout(100)
        raise AssertionError(f"never: {fact}")

    def _note_console(self, said) -> None:
        if said.type == "error":
            self.errors.append(said.text)

    def _note_dialog(self, dialog) -> None:
        self.dialogs.append(dialog.message)
        dialog.dismiss()

    def _note_request(self, request) -> None:
        if not request.url.startswith(("file:", "data:", "blob:")):
            self.outside.append(request.url)
