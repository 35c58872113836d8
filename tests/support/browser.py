"""Opens pages in a headless Chromium, and keeps what went wrong there.

Debian's package is used, because the browsers that Playwright would download are not pinned here.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import pytest
from playwright.async_api import Browser, ConsoleMessage, Page, async_playwright

from tests.support.wait import until

CHROMIUM = (Path("/usr/bin/chromium-headless-shell"), Path("/usr/bin/chromium"))
"""The programs that Debian's packages have, the one that takes half the CPU first."""
_OPTIONS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip


@dataclass(frozen=True)
class Visit:
    """An open page.

    Attributes:
        page: Playwright's.
        problems: errors and warnings on the console, uncaught errors, and requests elsewhere.
    """

    page: Page
    problems: list[str] = field(default_factory=list)

    async def text(self, selector: str) -> str:
        """Return the text of all elements that match."""
        return "\n".join(await self.page.locator(selector).all_inner_texts())

    async def until_text(self, selector: str, *words: str) -> None:
        """Wait until the elements that match contain the words."""
        await self.until(
            f"{' and '.join(words)} in {selector}",
            lambda: self.text(selector),
            lambda text: all(word in text for word in words),
        )

    async def until(
        self, what: str, look: Callable[[], Awaitable[str]], holds: Callable[[str], bool]
    ) -> None:
        """Wait for what the page shows; a failure tells its problems."""
        await until(what, look, holds, explain=lambda: "\n".join(self.problems))


@asynccontextmanager
async def open_browser() -> AsyncIterator[Browser]:
    """Run Chromium while in the block; skip the test where it is not installed."""
    program = next((each for each in CHROMIUM if each.exists()), None)
    if program is None:
        pytest.skip(f"needs {CHROMIUM[0]}: apt-get install chromium-headless-shell")
    with TemporaryDirectory(prefix="browser-") as home:
        async with async_playwright() as playwright:
            browser = await playwright.chromium.launch(
                executable_path=program, args=list(_OPTIONS), env={"HOME": home}
            )
            try:
                yield browser
            finally:
                await browser.close()


@asynccontextmanager
async def pages_closed(browser: Browser) -> AsyncIterator[None]:
    """Close all pages of a browser, which the next test uses, too, at the end of the block."""
    try:
        yield
    finally:
        for context in browser.contexts:
            await context.close()


async def visit(
    browser: Browser,
    url: str,
    *,
    width: int = 1280,
    theme: Literal["light", "dark"] = "light",
) -> Visit:
    """Open a page, which may request nothing from another host than its own.

    Certificates are not checked: a browser does not know a job's authority.
    """
    page = await browser.new_page(
        viewport={"width": width, "height": 844}, color_scheme=theme, ignore_https_errors=True
    )
    visited = Visit(page)

    def on_console(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            visited.problems.append(f"console: {message.text}")

    page.on("console", on_console)
    page.on("pageerror", lambda error: visited.problems.append(f"uncaught: {error}"))

    def on_request(asked: str) -> None:
        if not asked.startswith(url.partition("#")[0].partition("?")[0]):
            visited.problems.append(f"request to {asked}")

    page.on("request", lambda request: on_request(request.url))
    await page.goto(url)
    return visited
